"""Everything that distinguishes one trial from another, as data that can be written down and run again."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.untrusted.checks import MOST, is_count, is_number

SAFETY: Final = "safety"
LIVENESS: Final = "liveness"

Checks = Mapping[str, Callable[[Any], bool]]


@dataclass(frozen=True, slots=True)
class Noise:
    """What the network does to every message: seconds on the way, some longer by chance, some twice."""

    latency_s: float = 0.01
    jitter_s: float = 0.0
    twice: float = 0.0


@dataclass(frozen=True, slots=True)
class Copying:
    """How servers are protected.

    Attributes
    ----------
    bound, unit
        Of the whole model: 0 ``updates`` for a chain, else updates, or a distance (``norm``).
    source
        Whether replicas take gradients from the ``workers`` instead of from their ``server``.
    """

    replicas: int = 1
    bound: float = 0.0
    unit: str = "updates"
    pause: bool = False
    source: str = "server"


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

    Attributes
    ----------
    seed
        Of everything that chance decides within it.
    mode
        ``safety`` or ``liveness``.
    workload, options
        What is trained.
    policy, parameters
        Under which policy.
    copying
        How servers are protected, or ``None``.
    standby, shared, spares
        Whether there are standbys, as many as replicas, whether the coordinator lives in the process of server 0, and
        how many copies can be made anew.
    hosts, processes
        How many hosts there are, with how many Dask workers on all of them; 0 where each role has a process of its own.
    most_workers
        Gradient workers at most, with those that start in Dask workers which come later; ``None`` for any number.
    nannies
        Whether Dask workers that have ended are started again.
    refusing
        Share of the Dask workers in which a gradient worker cannot be started, the first times or ever.
    again_s
        Most seconds that gradients which a lost server had take to the one in its place.
    overwritten
        Share of the gradients whose parameters are written over while they are computed: these lie in the servers'
        memory, where a worker that is slow reads of two versions.
    closes
        Whether copies that nobody needs any more are closed, as they are in a run on a cluster.
    leases
        Whether silence is noticed; else only the end of a process is.
    rates
        How much faster or slower, by copy, a process's own clock runs.
    fabric
        Whether transfers of gradients are planned, at rates that are not the network's.
    cut_every
        Updates between checkpoints; 0 for none.
    faults
        The schedule.
    """

    seed: int
    mode: str = SAFETY
    workload: str = "digits"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "bsp"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 2
    shards: int = 1
    updates: int = 12
    batch_size: int = 4
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"name": "sgd", "lr": 0.1})
    clip: float | None = None
    epochs: bool = False
    copying: Copying | None = None
    standby: bool = False
    shared: bool = False
    spares: int = 0
    hosts: int = 0
    processes: int = 0
    most_workers: int | None = None
    nannies: bool = True
    refusing: float = 0.0
    again_s: float = 0.0
    overwritten: float = 0.0
    closes: bool = False
    leases: bool = False
    fabric: bool = False
    cut_every: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)
    noise: Noise = field(default_factory=Noise)
    late: tuple[float, ...] = ()
    faults: tuple[Fault, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        faults = [one.to_plain() for one in self.faults]
        return {**asdict(replace(self, faults=())), "late": list(self.late), "faults": faults}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Trial:
        """Return the trial that `to_plain` described; what is left out is as usual.

        Raises
        ------
        ConfigurationError
            If a field is unknown or makes no sense.
        """
        values = dict(plain)
        known = {one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                raise ConfigurationError(f"a trial has no field {name!r}", field=f"faults.{name}")
        _require(values, _TRIAL, "trial")
        if values.get("copying") is not None:
            values["copying"] = _made(Copying, values["copying"], _COPYING)
        if "noise" in values:
            values["noise"] = _made(Noise, values["noise"], _NOISE)
        values["faults"] = tuple(Fault.from_plain(one) for one in values.get("faults", ()))
        values["late"] = tuple(values.get("late", ()))
        return cls(**{"seed": 0, **values})


def _made(kind: type[Any], plain: Any, checks: Checks) -> Any:
    name = kind.__name__.lower()
    if not isinstance(plain, Mapping):
        raise ConfigurationError(f"a trial's {name} makes no sense: it is no table", field=f"faults.{name}")
    _require(plain, checks, f"trial's {name}")
    try:
        return kind(**plain)
    except TypeError as error:
        raise ConfigurationError(f"a trial's {name} makes no sense: {error}", field="faults") from None


def _require(plain: Mapping[str, Any], checks: Checks, what: str) -> None:
    for name, holds in checks.items():
        if name in plain and not holds(plain[name]):
            text = f"a {what} makes no sense: {name} is {reprlib.repr(plain[name])}; give it as --fuzz prints it"
            raise ConfigurationError(text, field=f"faults.{name}")


def _upto(most: int, least: int = 0) -> Callable[[Any], bool]:
    return lambda value: is_count(value, most) and value >= least


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_amount(value: Any) -> bool:
    return is_number(value) and 0 <= value <= _MOST_AMOUNT


def _are_amounts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_amount, value))


_MOST_AMOUNT: Final = 1e9
"""Seconds, chances and bounds of a trial, which lasts some minutes of its own time."""

_TRIAL: Final[Checks] = {
    **dict.fromkeys(("mode", "workload", "policy"), _is_text),
    **dict.fromkeys(("options", "parameters", "optimizer", "noise"), _is_table),
    **dict.fromkeys(("epochs", "standby", "shared", "nannies", "leases", "fabric", "closes"), _is_flag),
    **dict.fromkeys(("workers", "shards"), _upto(1000, least=1)),
    **dict.fromkeys(("updates", "batch_size"), _upto(100_000, least=1)),
    "seed": _upto(MOST**2),
    **dict.fromkeys(("refusing", "overwritten"), lambda value: _is_amount(value) and value < 1),
    "again_s": _is_amount,
    "spares": _upto(1000),
    "most_workers": lambda value: value is None or _upto(1000, least=1)(value),
    "cut_every": _upto(100_000),
    "clip": lambda value: value is None or (_is_amount(value) and value > 0),
    "rates": lambda value: _is_table(value) and _are_amounts(list(value.values())),
    "late": _are_amounts,
    "faults": lambda value: isinstance(value, list | tuple) and all(map(_is_table, value)),
}
_COPYING: Final[Checks] = {
    "replicas": _upto(64, least=1),
    "bound": _is_amount,
    "pause": _is_flag,
    "unit": lambda value: value in ("updates", "norm"),
    "source": lambda value: value in ("server", "workers"),
}
_NOISE: Final[Checks] = dict.fromkeys(("latency_s", "jitter_s", "twice"), _is_amount)
