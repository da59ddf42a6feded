"""How much of a run the loss of a server may cost: what is copied, where to, and how far a copy may lag.

A specification is light: it says what must hold; `psplatform.core` holds it.  ``max_divergence`` bounds the Euclidean
distance between the parameters of a server and of its replica, or the number of updates the replica lacks, at every
version that workers may pull.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Final, Literal, get_args

from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import nearest, parse_count, parse_number

Unit = Literal["norm", "updates"]
Source = Literal["server", "workers"]
Target = Literal["replica", "store"]
OnReplicaLoss = Literal["continue", "pause"]

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
        if mode not in MODES:
            raise _refused(f'replication has no mode "{mode}"; {nearest(mode, MODES)}')
        kind = MODES[mode]
        _check_known(kind, options)
        return kind(**_typed(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplication(Replication):
    """A server has no copy: what it learned since the newest checkpoint is lost with it."""

    mode: ClassVar[str] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Replication):
    """No acknowledged update is ever lost: a version becomes visible when every copy in sync has it.

    Attributes
    ----------
    replicas
        Copies of each server.
    source
        Who sends updates to the copies: the ``server``, or the ``workers``, from whom a copy takes the very gradients
        that its server applies, in the server's order: its state is exact for every optimiser.  Whatever it cannot get
        from them, because a worker has died or written over it, the server sends when the bound needs it.
    target
        A process that takes over at once (``replica``), or the run's ``store``.
    on_replica_loss
        Whether a server goes on without a copy in sync (``continue``) or waits for one (``pause``).
    """

    mode: ClassVar[str] = "chain"

    replicas: int = field(default=1, metadata={"help": "copies of each server"})
    source: Source = field(default="server", metadata={"help": "who sends updates to the copies"})
    target: Target = field(default="replica", metadata={"help": "a process that takes over, or the store"})
    on_replica_loss: OnReplicaLoss = field(default="continue", metadata={"help": "what a server without a copy does"})

    def __post_init__(self) -> None:
        _check_copies(self)

    @property
    def bound(self) -> float:
        """Nothing may be lacking."""
        return 0.0

    @property
    def unit(self) -> Unit:
        """Counted in updates."""
        return "updates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded(Replication):
    """A copy may lag behind what workers can pull, but never by more than the bound.

    Attributes
    ----------
    max_divergence
        The bound for the whole model: a distance, or a number of updates; ``None`` stands for `USUAL_UPDATES` updates.
    unit
        ``norm`` or ``updates``; ``norm`` where only a bound is given.
    replicas, source, target, on_replica_loss
        As in `Chain`.
    """

    mode: ClassVar[str] = "bounded"

    max_divergence: float | None = field(default=None, metadata={"help": "how far a copy may lag"})
    unit: Unit | None = field(default=None, metadata={"help": "norm, or updates"})
    replicas: int = field(default=1, metadata={"help": "copies of each server"})
    source: Source = field(default="server", metadata={"help": "who sends updates to the copies"})
    target: Target = field(default="replica", metadata={"help": "a process that takes over, or the store"})
    on_replica_loss: OnReplicaLoss = field(default="continue", metadata={"help": "what a server without a copy does"})

    def __post_init__(self) -> None:
        usual = self.max_divergence is None
        unit = self.unit or ("updates" if usual else "norm")
        _require_one_of("unit", unit, Unit)
        if usual and unit == "norm":
            raise _refused("replication in the unit norm needs a bound; give max_divergence, such as 0.5")
        bound = _checked_bound(USUAL_UPDATES if self.max_divergence is None else self.max_divergence, unit)
        object.__setattr__(self, "max_divergence", bound)
        object.__setattr__(self, "unit", unit)
        _check_copies(self)

    @property
    def bound(self) -> float:
        """The bound, the usual one where none was given."""
        return USUAL_UPDATES if self.max_divergence is None else self.max_divergence


def replicas_of(replication: Replication) -> int:
    """Return how many hot copies each server has."""
    hot = isinstance(replication, Chain | Bounded) and replication.target == "replica"
    return replication.replicas if isinstance(replication, Chain | Bounded) and hot else 0


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
        try:
            typed["replicas"] = parse_count(typed["replicas"], "replication", "replicas")
        except ConfigurationError as error:
            raise _refused(str(error)) from None
    return typed


def _check_known(kind: type[Replication], options: Mapping[str, Any]) -> None:
    known = [option.name for option in fields(kind)]  # type: ignore[arg-type]  # every member is a dataclass
    for name in options:
        if name not in known:
            of_others = name in Bounded.__dataclass_fields__
            other = "chain or bounded" if name in Chain.__dataclass_fields__ else "bounded"
            remedy = f"take the mode {other}" if of_others else nearest(str(name), known) if known else "it has none"
            raise _refused(f'replication {kind.mode} has no "{name}"; {remedy}')


def _check_copies(given: Chain | Bounded) -> None:
    whole = isinstance(given.replicas, int) and not isinstance(given.replicas, bool)
    if not (whole and 1 <= given.replicas <= MOST_REPLICAS):
        remedy = "write the mode none for no copy"
        raise _refused(f"replication: replicas={given.replicas!r} must be from 1 to {MOST_REPLICAS}; {remedy}")
    _require_one_of("source", given.source, Source)
    _require_one_of("target", given.target, Target)
    _require_one_of("on_replica_loss", given.on_replica_loss, OnReplicaLoss)
    if given.target == "store" and given.replicas > 1:
        raise _refused(f"replication: the store holds one copy, not {given.replicas}; leave replicas out")
    if given.target == "store" and given.source == "workers":
        raise _refused("replication: workers cannot send to the store; take the source server, or the target replica")


def _require_one_of(name: str, value: object, kind: Any) -> None:
    known = get_args(kind)
    if value not in known:
        raise _refused(f"replication: {name}={value!r} is not known; {nearest(str(value), known)}")


def _checked_bound(value: object, unit: Unit) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):  # type: ignore[operator]  # it is a number where this is asked
        remedy = "write the mode chain to lose nothing"
        raise _refused(f"replication: max_divergence={value!r} must be a finite number above 0; {remedy}")
    bound = float(value)  # type: ignore[arg-type]  # it is a number
    if unit == "norm":
        return bound
    if not bound.is_integer():
        raise _refused(f"replication: {bound:g} updates are no whole number; round it, or take the unit norm")
    return int(bound)


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="replication")
