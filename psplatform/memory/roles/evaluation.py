"""Measuring and saving versions where time is virtual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from psplatform.core.plan import Plan
from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import Evaluated, ModelSaved
from psplatform.core.protocol.messages import Pulled
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine
from psplatform.memory.roles.leading import VirtualCoordinator
from psplatform.nodes.evaluator import EvaluatorNode

EVALUATOR: Final = "evaluator"
"""The name that servers answer to where there is one evaluator only; no gradient worker may join under it."""


class VirtualEvaluation:
    """Measures what the run's arithmetic holds for the evaluator, as long as the world says.

    Parameters
    ----------
    name
        Of the evaluator, in whose process it is done.
    feed
        Takes the answers.
    """

    def __init__(self, name: str, engine: Engine, arithmetic: Arithmetic, feed: Callable[[Any], None]) -> None:
        self._name, self._engine, self._arithmetic = name, engine, arithmetic
        self._feed = feed

    def measure(self, version: int) -> None:
        """Answer with what it was found to be, when the time of an evaluation is over."""
        seconds = self._engine.world.evaluation_s()
        self._engine.later(self._name, seconds, self._feed, self._arithmetic.evaluate(version))

    def keep(self, found: Evaluated) -> None:
        """Keep it as the best so far."""
        self._arithmetic.keep(found.version)
        self._feed(replace(found, kept=True))

    def save(self, version: int) -> None:
        """Keep it as the result of the run."""
        self._arithmetic.save(version)
        self._feed(ModelSaved(version))


class EvaluatedRun(Protocol):
    """What is asked of the run whose evaluators these are."""

    plan: Plan
    engine: Engine
    arithmetic: Arithmetic
    leads: list[VirtualCoordinator]

    @property
    def addresses(self) -> list[str]:
        """The processes in which roles are placed, where they are."""

    def tell_lead(self, event: Any) -> None:
        """Tell the coordinator in charge; where there is none, the next."""


class Evaluators:
    """The evaluators that an in-memory run has had: what others than the coordinator's fetch and say is dropped.

    Parameters
    ----------
    serving
        By shard, the name and the epoch of the copy that serves, now and later on.
    """

    def __init__(self, run: EvaluatedRun, traits: Traits, serving: Sequence[tuple[str, int]]) -> None:
        self._nodes: dict[str, EvaluatorNode] = {}
        self._run, self._serving = run, serving
        self._exact = traits.scope is not Scope.BLOCK

    def __contains__(self, name: str) -> bool:
        """Whether there has been an evaluator of that name."""
        return name in self._nodes

    def make(self, name: str) -> None:
        """Make an evaluator."""
        self._nodes[name] = node = EvaluatorNode(
            name,
            self._serving,
            self._run.plan.watch,
            partial(self._send, name),
            partial(VirtualEvaluation, name, self._run.engine, self._run.arithmetic),
            exact=self._exact,
        )
        self._run.engine.network.listen(name, node.feed, partial(self._load, name))

    def feed(self, name: str, message: Any) -> None:
        """Tell the evaluator of that name."""
        self._nodes[name].feed(message)

    def _send(self, name: str, effect: Send) -> None:
        if effect.to != COORDINATOR:
            self._run.engine.network.send(Role.member(name), effect)
            return
        # Without places there is no way between them either.
        engine, answer, delays_s = self._run.engine, effect.message, [0.0]
        if self._run.addresses:
            delays_s = engine.world.deliver(Role.member(name), self._run.leads[-1].role, answer, engine.agenda.now)
        engine.agenda.enter(min(delays_s), self._answer, name, answer)

    def _answer(self, name: str, answer: Any) -> None:
        if self._is_present(name):
            self._run.tell_lead(answer)

    def _load(self, name: str, answer: Pulled, content: Any) -> None:
        if self._is_present(name) and self._nodes[name].expects(answer):
            self._run.arithmetic.load(EVALUATOR, answer.shard, content)

    def _is_present(self, name: str) -> bool:
        return self._run.leads[-1].workers.evaluator == name
