"""How much of a run the loss of a server may cost: what is copied, where to, and how far a copy may lag.

A specification is light: it says what must hold; `psplatform.core` holds it.  ``max_divergence`` bounds the Euclidean
distance between the parameters of a server and of its replica, or the number of updates the replica lacks, at every
version that workers may pull.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

from psplatform.core.parameters import built, declared, parameter, require_known, settle
from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import naming, parse_count, parse_number

Unit = Literal["norm", "updates"]
Source = Literal["server", "workers"]
Target = Literal["replica", "store"]
OnReplicaLoss = Literal["continue", "pause"]
OnIsolation = Literal["wait", "continue"]

USUAL_UPDATES: Final = 8
"""Updates a replica may lack where nothing is said: few to compute again, enough to merge transfers."""

MOST_REPLICAS: Final = 64  # each is a process and a share of every server's sending; more are a mistake


class Replication:
    """Base of the specifications.

    Attributes
    ----------
    mode
        The specification's name.

    Raises
    ------
    ConfigurationError
        If an option is unknown, of the wrong type or out of range.
    """

    __slots__ = ()

    mode: ClassVar[str]

    @property
    def bound(self) -> float | None:
        """What a copy of the whole model may lack, in `unit`; ``None`` where there is no copy."""
        return None

    @property
    def unit(self) -> Unit | None:
        """Whether `bound` is a distance or a number of updates; ``None`` where there is no copy."""
        return None

    def shard_bound(self, shards: int) -> float | None:
        """Return the part of the bound that each of `shards` shards may use up.

        Distances of shards add up as squares, so a distance is divided by the square root of their number; an update
        is one update of every shard.
        """
        return self.bound / math.sqrt(shards) if self.bound is not None and self.unit == "norm" else self.bound

    def to_plain(self) -> dict[str, Any]:
        """Return the mode and its options as numbers and strings."""
        return {"mode": self.mode, **asdict(self)}  # type: ignore[call-overload]  # every member is a dataclass

    @staticmethod
    def from_plain(plain: Replication | Mapping[str, Any] | str | None) -> Replication:
        """Return what a mode's name, a mapping with or without ``mode``, or `to_plain` describes.

        Values may be texts, as on a command line; `parse_divergence` says how a bound is written.
        """
        if isinstance(plain, Replication):
            return plain
        if plain is None:
            return NoReplication()
        if not isinstance(plain, str | Mapping):
            raise _refused(f"replication must be such as ps.Bounded(), not {plain!r}; write none, chain or bounded")
        options = {"mode": plain} if isinstance(plain, str) else dict(plain)
        mode = str(options.pop("mode", Bounded.mode))
        require_known(mode, MODES, "replication has no mode", field="replication")
        kind = MODES[mode]
        for name in options:
            _require_of_mode(kind, name)
        return built(kind, _typed(options), f"replication {mode} has no", field="replication")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplication(Replication):
    """A server has no copy: what it learned since the newest checkpoint is lost with it."""

    mode: ClassVar[str] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied(Replication):
    """What is the same whether or not copies may lag.

    From ``workers`` a copy takes the very gradients that its server applies, in the server's order: its state is exact
    for every optimiser.  Whatever it cannot get from them, because a worker has died or written over it, the server
    sends when the bound needs it.
    """

    replicas: int = parameter(
        1, minimum=1, maximum=MOST_REPLICAS, help="copies of each server", remedy="write the mode none for no copy"
    )
    source: Source = parameter("server", help="who sends updates to the copies")
    target: Target = parameter("replica", help="a process that takes over at once, or the run's store")
    on_replica_loss: OnReplicaLoss = parameter(
        "continue", help="whether a server without a copy in sync goes on, or waits until there is one"
    )
    on_isolation: OnIsolation = parameter(
        "wait", help="whether a coordinator that hears neither copies nor the scheduler waits, or goes on alone"
    )

    def __post_init__(self) -> None:
        settle(self, "replication: ", field="replication")
        if self.target == "store" and self.replicas > 1:
            raise _refused(f"replication: the store holds one copy, not {self.replicas}; leave replicas out")
        if self.target == "store" and self.source == "workers":
            remedy = "take the source server, or the target replica"
            raise _refused(f"replication: workers cannot send to the store; {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(_Copied):
    """No acknowledged update is ever lost: a version becomes visible when every copy in sync has it."""

    mode: ClassVar[str] = "chain"

    @property
    def bound(self) -> float:
        """Nothing may be lacking."""
        return 0.0

    @property
    def unit(self) -> Unit:
        """Counted in updates."""
        return "updates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded(_Copied):
    """A copy may lag behind what workers can pull, but never by more than the bound, which is for the whole model."""

    mode: ClassVar[str] = "bounded"

    max_divergence: float | None = parameter(
        None,
        above=0,
        finite=True,
        help=f"how far copies may lag: 0.5 (a distance) or 8updates; none: {USUAL_UPDATES} updates",
        remedy="write the mode chain to lose nothing",
    )
    unit: Unit | None = parameter(None, help="unit of the bound; none: norm where a bound is given")

    def __post_init__(self) -> None:
        _Copied.__post_init__(self)  # a slotted dataclass is not the class that `super` knows
        usual = self.max_divergence is None
        unit = self.unit or ("updates" if usual else "norm")
        if usual and unit == "norm":
            raise _refused("replication in the unit norm needs a bound; give max_divergence, such as 0.5")
        object.__setattr__(self, "max_divergence", _in_unit(self.bound, unit))
        object.__setattr__(self, "unit", unit)

    @property
    def bound(self) -> float:
        """The bound, the usual one where none was given."""
        return USUAL_UPDATES if self.max_divergence is None else self.max_divergence


def replicas_of(replication: Replication) -> int:
    """Return how many hot copies each server has."""
    hot = isinstance(replication, _Copied) and replication.target == "replica"
    return replication.replicas if isinstance(replication, _Copied) and hot else 0


MODES: Final[dict[str, type[Replication]]] = {kind.mode: kind for kind in (NoReplication, Chain, Bounded)}


def parse_divergence(text: str) -> tuple[float, Unit]:
    """Return the bound in ``0.5`` (a norm), ``8updates`` or ``8u`` (updates).

    Raises
    ------
    ConfigurationError
        If it is neither.
    """
    words = text.replace(" ", "")
    try:
        for ending in ("updates", "update", "u"):
            if words.endswith(ending):
                return parse_count(words.removesuffix(ending), "replication", "max_divergence"), "updates"
        return parse_number(words, "replication", "max_divergence"), "norm"
    except ConfigurationError:
        message = f'max_divergence="{text}" is no bound; write a norm such as 0.5, or updates such as 8updates'
        raise _refused(f"replication: {message}") from None


def _typed(options: Mapping[str, Any]) -> dict[str, Any]:
    typed = dict(options)
    if isinstance(typed.get("max_divergence"), str):
        typed["max_divergence"], unit = parse_divergence(typed["max_divergence"])
        if typed.setdefault("unit", unit) not in (None, unit):
            raise _refused(f"replication: max_divergence speaks of {unit}, the unit of {typed['unit']}; give one")
        typed["unit"] = unit
    if isinstance(typed.get("replicas"), str):
        with naming("replication"):
            typed["replicas"] = declared(_Copied)["replicas"].accept(typed["replicas"])
    return typed


def _require_of_mode(kind: type[Replication], name: str) -> None:
    modes = [mode for mode, other in MODES.items() if name in declared(other)]
    if modes and kind.mode not in modes:
        raise _refused(f'replication {kind.mode} has no "{name}"; take the mode {" or ".join(modes)}')


def _in_unit(bound: float, unit: Unit) -> float:
    if unit == "norm":
        return bound
    if not float(bound).is_integer():
        raise _refused(f"replication: {bound:g} updates are no whole number; round it, or take the unit norm")
    return int(bound)


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="replication")
