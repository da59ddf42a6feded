"""Measuring and saving versions where time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from psplatform.core.plan import Plan
from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol.effects import COORDINATOR, Role, Send, first_server
from psplatform.core.protocol.events import Evaluated, ModelSaved
from psplatform.core.protocol.messages import Pulled
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine
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


class Evaluators:
    """The evaluators that an in-memory run has had.

    Parameters
    ----------
    is_present
        Whether the evaluator of that name is the coordinator's: what others fetch is dropped.
    answer
        Takes the name of an evaluator and what it has to say to the coordinator.
    """

    def __init__(
        self,
        plan: Plan,
        traits: Traits,
        engine: Engine,
        arithmetic: Arithmetic,
        is_present: Callable[[str], bool],
        answer: Callable[[str, Any], None],
    ) -> None:
        self._nodes: dict[str, EvaluatorNode] = {}
        self._plan, self._exact = plan, traits.scope is not Scope.BLOCK
        self._engine, self._arithmetic = engine, arithmetic
        self._is_present, self._answer = is_present, answer
        self._serving = [(first_server(shard), 1) for shard in range(plan.shards)]

    def __contains__(self, name: str) -> bool:
        """Whether there has been an evaluator of that name."""
        return name in self._nodes

    def make(self, name: str) -> None:
        """Make an evaluator."""
        self._nodes[name] = node = EvaluatorNode(
            name,
            self._serving,
            self._plan.watch,
            partial(self._send, name),
            partial(VirtualEvaluation, name, self._engine, self._arithmetic),
            exact=self._exact,
        )
        self._engine.network.listen(name, node.feed, partial(self._load, name))

    def note_server(self, shard: int, copy: str, epoch: int) -> None:
        """Let those that are made later know who serves a shard."""
        self._serving[shard] = copy, epoch

    def feed(self, name: str, message: Any) -> None:
        """Tell the evaluator of that name."""
        self._nodes[name].feed(message)

    def _send(self, name: str, effect: Send) -> None:
        if effect.to == COORDINATOR:
            self._answer(name, effect.message)
        else:
            self._engine.network.send(Role.member(name), effect)

    def _load(self, name: str, answer: Pulled, content: Any) -> None:
        if self._is_present(name) and self._nodes[name].expects(answer):
            self._arithmetic.load(EVALUATOR, answer.shard, content)
