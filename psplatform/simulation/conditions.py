"""What a simulated cluster is like, as it is written on the command line and in programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from psplatform.core.limits import nearest
from psplatform.core.parameters import parameter, parameters_of, settle
from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import (
    naming,
    parse_count,
    parse_number,
    parse_pairs,
    require_not_negative,
    require_positive,
)
from psplatform.jobs.distributions import DISTRIBUTIONS, Constant
from psplatform.jobs.stragglers import Stragglers
from psplatform.simulation.network import Links
from psplatform.simulation.regimes import Regime, Switching
from psplatform.simulation.round_trips import with_transfers
from psplatform.simulation.run_times import Correlated, Independent, Nodes, RunTimes, Slowed, Traced

Read = Callable[[str], str]

_OWN_S: Final = 0.1
"""What a gradient takes where nothing is said about it."""

_TIMES: Final = (*DISTRIBUTIONS, "nodes", "trace", "slow", "factors", "regime")
_NETWORK: Final = ("nic", "change", "hosts", "model", "report", "server")
_BYTES_PER_MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a simulated cluster is like: times in the words of `parse_run_times`, the network in `parse_network`'s."""

    compute: str | None = parameter(None, help=f"seconds of a gradient; none: constant:seconds={_OWN_S}")
    round_trip: str | None = parameter(
        None, help="seconds of pull, gradient and push together; then the network takes no time"
    )
    network: str | None = parameter(
        None, help="interfaces and servers, such as 'nic:gbps=10,latency=0.0001'; none: it takes no time"
    )
    timing_only: bool = parameter(
        default=False, help="compute no gradients: times only, no loss, no model, any number of workers"
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.compute is not None and self.round_trip is not None:
            text = "compute and round_trip both say how long a gradient takes; give one of them"
            raise ConfigurationError(text, field="compute")
        if self.network is not None and self.round_trip is not None:
            raise ConfigurationError(
                "a round_trip includes the network's time; give compute with a network instead", field="network"
            )

    def run_times(self, *, seed: int, workers: int, stragglers: Stragglers | None, read: Read | None) -> RunTimes:
        """Return how long gradients take, the job's own stragglers included.

        Raises
        ------
        ConfigurationError
            If the words cannot be understood, or a trace is of another number of workers.
        """
        field = "compute" if self.round_trip is None else "round_trip"
        text = self.compute if self.round_trip is None else self.round_trip
        # Stragglers with a target time say all there is to say, unless an own time is given beside them.
        targeted = stragglers is not None and (stragglers.distribution is not None or stragglers.trace is not None)
        own: RunTimes = Independent(Constant(0.0 if targeted else _OWN_S), seed)
        if self.round_trip is not None and read is not None:
            read = partial(_read_whole, read)
        if text is not None:
            own = parse_run_times(text, seed=seed, workers=workers, field=field, read=read)
        if stragglers is None:
            return own
        if stragglers.trace is not None:
            with naming("stragglers"):
                _require_all(len(stragglers.trace), workers)
        return Slowed(own, stragglers, seed)


def _read_whole(read: Read, path: str) -> str:
    return with_transfers(read(path), path)


def parse_run_times(text: str, *, seed: int, workers: int, field: str, read: Read | None = None) -> RunTimes:
    """Return the run times that `text` describes: clauses between semicolons, in any order.

    A distribution as ``uniform:low=0.1,high=0.2``, or ``nodes:size=40,mean=1,sd=0.4,share=0.5,memory=0.9``, or
    ``trace:FILE``; beside it ``slow:chance=0.1,factor=4``, ``factors:1,1,2`` and any number of
    ``regime:first=0,last=9,factor=3,from=0,until=60``.

    Raises
    ------
    ConfigurationError
        Naming `field` and the clause that is wrong.
    """
    clauses = [clause.strip() for clause in text.split(";") if clause.strip()]
    kinds = [clause.partition(":")[0] for clause in clauses]
    with naming(field):
        for kind in kinds:
            if kind not in _TIMES:
                raise ConfigurationError(f'"{kind}" says nothing about run times; {nearest(kind, _TIMES)}')
        nodes = [clause for clause, kind in zip(clauses, kinds, strict=True) if kind == "nodes"]
        regimes = [clause for clause, kind in zip(clauses, kinds, strict=True) if kind == "regime"]
        rest = ";".join(clause for clause in clauses if clause not in nodes + regimes)
        slowness = Stragglers.parse(rest, field=field, read=read)
        times = _base(nodes, slowness, seed, workers)
        plain = replace(slowness, distribution=None, trace=None)
        if plain != Stragglers():
            times = Slowed(times, plain, seed)
        return Switching(times, tuple(_regime(one, workers) for one in regimes)) if regimes else times


def _base(nodes: list[str], slowness: Stragglers, seed: int, workers: int) -> RunTimes:
    ways = len(nodes) + (slowness.distribution is not None) + (slowness.trace is not None)
    if ways != 1:
        raise ConfigurationError("give one distribution, or nodes, or a trace, beside which others may slow it down")
    if slowness.trace is not None:
        _require_all(len(slowness.trace), workers)
        return Traced(slowness.trace)
    if slowness.distribution is not None:
        return Independent(slowness.distribution, seed)
    pairs = _pairs(nodes[0], [one.spelled for one in parameters_of(Nodes)])
    size = parse_count(pairs.pop("size"), "nodes", "size")
    return Correlated(Nodes(size, *(parse_number(value, "nodes", key) for key, value in pairs.items())), seed)


def _require_all(slots: int, workers: int) -> None:
    if slots != workers:
        text = f"the trace is of {slots} workers and the job has {workers}; give the job {slots} workers"
        raise ConfigurationError(text)


def _regime(clause: str, workers: int) -> Regime:
    pairs = _pairs(clause, ("first", "last", "factor", "from", "until"))
    first, last, begin, end = (parse_count(pairs[key], "regime", key) for key in ("first", "last", "from", "until"))
    if first >= workers:
        text = f"regime: first={first} is no slot of a job with {workers} workers; they are 0 to {workers - 1}"
        raise ConfigurationError(text)
    return Regime(first, last, parse_number(pairs["factor"], "regime", "factor"), begin, end)


@dataclass(frozen=True, slots=True)
class SimulatedNetwork:
    """What `parse_network` returns.

    Attributes
    ----------
    links
        The interfaces; ``None`` where transfers take no time.
    update_s
        Seconds a server takes to add up a gradient.
    model_bytes
        What all shards of the model take in a transfer; ``None`` for what they really do.
    lag_s
        Seconds by which monitors are late that tell who plans transfers the rates of all interfaces; ``None`` for none.
    """

    links: Links | None = None
    update_s: float = 0.0
    model_bytes: float | None = None
    lag_s: float | None = None


def parse_network(text: str, *, field: str = "network") -> SimulatedNetwork:
    """Return the interfaces, what they carry, and how fast servers are.

    Clauses between semicolons, in any order: ``nic:gbps=10,latency=0.0001``,
    ``change:every=5,gbps=5+10,chance=0.1+0.9`` (instead of the steady rate), ``hosts:workers=2,servers=1``,
    ``model:mb=100`` (instead of the model's own size), ``report:lag=0.2``, ``server:update=0.01``.

    Raises
    ------
    ConfigurationError
        Naming the clause that is wrong.
    """
    with naming(field):
        clauses: dict[str, str] = {}
        for clause in filter(None, (one.strip() for one in text.split(";"))):
            kind = clause.partition(":")[0]
            if kind not in _NETWORK:
                raise ConfigurationError(f'"{kind}" is no part of a network; {nearest(kind, _NETWORK)}')
            if kind in clauses:
                raise ConfigurationError(f'"{clause}" is a second {kind}; keep one of them')
            clauses[kind] = clause
        update_s = _numbers(clauses["server"], ("update",))["update"] if "server" in clauses else 0.0
        require_not_negative("server", "update", update_s)
        if "nic" not in clauses:
            if clauses.keys() - {"server"}:
                raise ConfigurationError("a network needs its interfaces; write nic:gbps=10,latency=0.0001")
            return SimulatedNetwork(None, update_s)
        return SimulatedNetwork(_links(clauses), update_s, _model_bytes(clauses), _lag_s(clauses))


def _lag_s(clauses: Mapping[str, str]) -> float | None:
    if "report" not in clauses:
        return None
    lag_s = _numbers(clauses["report"], ("lag",))["lag"]
    require_not_negative("report", "lag", lag_s)
    return lag_s


def _model_bytes(clauses: Mapping[str, str]) -> float | None:
    if "model" not in clauses:
        return None
    size_mb = _numbers(clauses["model"], ("mb",))["mb"]
    require_positive("model", "mb", size_mb)
    return size_mb * _BYTES_PER_MB


def _links(clauses: dict[str, str]) -> Links:
    nic = _numbers(clauses["nic"], ("gbps", "latency"))
    require_positive("nic", "gbps", nic["gbps"])
    gigabits: tuple[float, ...] = (nic["gbps"],)
    chances: tuple[float, ...] = (1.0,)
    every_s = math.inf
    if "change" in clauses:
        pairs = _pairs(clauses["change"], ("every", "gbps", "chance"))
        every_s = parse_number(pairs["every"], "change", "every")
        gigabits, chances = _list(pairs["gbps"], "gbps"), _list(pairs["chance"], "chance")
    hosts = _pairs(clauses["hosts"], ("workers", "servers")) if "hosts" in clauses else {}
    counts = {key: parse_count(value, "hosts", key) for key, value in hosts.items()}
    return Links(gigabits, chances, every_s, nic["latency"], counts.get("workers", 1), counts.get("servers", 1))


def _list(text: str, key: str) -> tuple[float, ...]:
    return tuple(parse_number(part.strip(), "change", key) for part in text.split("+"))


def _pairs(clause: str, keys: Sequence[str]) -> dict[str, str]:
    kind, _, rest = clause.partition(":")
    return parse_pairs(rest, kind, keys)


def _numbers(clause: str, keys: tuple[str, ...]) -> dict[str, float]:
    kind = clause.partition(":")[0]
    return {key: parse_number(value, kind, key) for key, value in _pairs(clause, keys).items()}
