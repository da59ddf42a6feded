"""What the engine must know of a policy before the first event."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from psplatform.core.workers.pulling import WHOLE, PullRule
from psplatform.errors import ConfigurationError


class Change(Enum):
    """What can change the answer to `Policy.may_start`."""

    COMMIT = "commit"
    MINIMUM_CLOCK = "minimum clock"
    ROSTER = "roster"
    TIMER = "timer"


class Scope(Enum):
    """What a policy decides about at a time."""

    MODEL = "model"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Traits:
    """What the engine must know of a policy before the first event.

    Attributes
    ----------
    exact
        Workers pull exactly one version from all shards (synchronous policies); else each shard's newest.
    scope
        With ``BLOCK`` every shard is a block with an order of commits of its own: `admit`, `pool_ready`, `step_scale`
        and `on_commit` are asked for each, with a view of that block.  A gradient is meant for the version after the
        one that its worker was released for (`Policy.wanted`): a block that has that one already drops it unasked.
    pull
        How much of the model a worker waits for; less than all of it with scope ``BLOCK`` only.
    interrupt
        A busy worker aborts when the model moves on; else it finishes what it began.  With scope ``MODEL`` only.
    wakes
        The changes after which waiting workers are looked at again.
    mean_norm
        `on_commit` needs the squared norm of the mean gradient, and is called when the servers have reported it.
    awaits_all
        No commit is made before every busy worker has announced.  Then a version stays as it is until all have computed
        on it, and workers on the server's host compute on the server's memory instead of a copy.  With `exact` only.
    sums
        Gradients may be summed on the way to the servers: `Policy.admit` changes nothing, so that it can be asked about
        each of a sum, all or none of which is applied, goes by `Gradient.ahead` where it bounds staleness, and counts
        on nothing between the arrivals of two gradients.  With scope ``MODEL`` and without `interrupt` only: what is in
        a sum cannot be taken back.

    Raises
    ------
    ConfigurationError
        If one is not of its kind, or they contradict each other.
    """

    exact: bool
    scope: Scope = Scope.MODEL
    pull: PullRule = WHOLE
    interrupt: bool = False
    wakes: frozenset[Change] = frozenset({Change.COMMIT, Change.ROSTER})
    mean_norm: bool = False
    awaits_all: bool = False
    sums: bool = False

    def __post_init__(self) -> None:
        self._require_kinds()
        if self.exact and self.pull.fraction < 1:
            raise _contradiction("a pull of exactly one version takes it from every shard: exact needs pull = 1")
        if self.exact and self.scope is Scope.BLOCK:
            raise _contradiction("blocks have no version in common: scope BLOCK needs exact = False")
        if self.awaits_all and not self.exact:
            raise _contradiction("who may compute on any version is passed by: awaits_all needs exact")
        if self.interrupt and self.scope is Scope.BLOCK:
            raise _contradiction("of several blocks none says that the model moved on: interrupt needs scope MODEL")
        if self.sums and (self.interrupt or self.scope is Scope.BLOCK):
            raise _contradiction(
                "what was summed on the way cannot be taken back: sums needs scope MODEL, no interrupt"
            )
        if self.pull.fraction < 1 and self.scope is Scope.MODEL:
            # Only a pull from every shard proves that all have read the last gradient where it lies.
            raise _contradiction("who goes on before all shards have answered must push copies: pull < 1 needs BLOCK")

    def _require_kinds(self) -> None:
        for name, (kind, words) in _KINDS.items():
            given: Any = getattr(self, name)
            if not isinstance(given, kind) or (
                kind is AbstractSet and not all(isinstance(one, Change) for one in given)
            ):
                raise ConfigurationError(f"the policy's traits have {name}={given!r}; give {words}", field="policy")


_SWITCH: Final = (bool, "True or False")
_KINDS: Final[dict[str, tuple[Any, str]]] = {
    "exact": _SWITCH,
    "scope": (Scope, "Scope.MODEL or Scope.BLOCK"),
    "pull": (PullRule, "a PullRule, such as PullRule(0.5)"),
    "interrupt": _SWITCH,
    "wakes": (AbstractSet, "a set of Change, such as frozenset({Change.COMMIT})"),
    "mean_norm": _SWITCH,
    "awaits_all": _SWITCH,
    "sums": _SWITCH,
}


def _contradiction(text: str) -> ConfigurationError:
    return ConfigurationError(f"the policy's traits contradict each other: {text}", field="policy")
