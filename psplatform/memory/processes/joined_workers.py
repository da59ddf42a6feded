"""The gradient workers of an in-memory run whose roles are not placed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.protocol.effects import Evaluate, Redirect, SaveModel
from psplatform.core.protocol.events import MemberLost
from psplatform.core.protocol.messages import Moved
from psplatform.memory.roles.evaluation import EVALUATOR, Evaluators
from psplatform.memory.roles.shards import VirtualShards


class JoinedRun(Protocol):
    """What is asked of the run."""

    evaluators: Evaluators
    shards: VirtualShards

    def tell_lead(self, event: Any) -> None:
        """Tell the coordinator in charge; where there is none, the next."""


class JoinedWorkers:
    """Gradient workers that join by themselves, and one evaluator that nothing happens to: none is replaced."""

    def __init__(self, run: JoinedRun) -> None:
        self._run, self.evaluator = run, EVALUATOR
        self.names: tuple[str, ...] = ()
        if EVALUATOR not in run.evaluators:
            run.evaluators.make(EVALUATOR)

    def dismiss(self, name: str, reason: str) -> None:
        """Do nothing: a worker that lives ends by itself, when it hears of it."""

    def order(self, order: Evaluate | SaveModel) -> None:
        """Give the evaluator an order."""
        self._run.evaluators.feed(EVALUATOR, order)

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""
        if self._run.shards.serve(effect.shard, effect.epoch, effect.copy):
            self._run.evaluators.feed(EVALUATOR, Moved(0, effect.shard, effect.epoch, effect.copy))

    def beside(self, feed: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return `feed`."""
        return feed

    def on_beat(self, name: str, delay_s: float) -> None:
        """Do nothing: they have no leases."""

    def on_lost(self, name: str, reason: str) -> None:
        """Report it to the coordinator in charge."""
        self._run.tell_lead(MemberLost(name, reason))

    def on_silent(self, name: str) -> None:
        """Report it to the coordinator in charge."""
        self._run.tell_lead(MemberLost(name, "silent"))

    def succeed(self, before: Any) -> None:
        """Go on with those there are."""

    def watch(self) -> None:
        """Do nothing: nobody is looked for."""
