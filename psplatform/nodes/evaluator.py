"""The evaluator: fetches versions, and has them measured and saved, one order of the coordinator after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from psplatform.core.protocol.effects import Evaluate, SaveModel, Send
from psplatform.core.protocol.events import Evaluated, EvaluationFailed, ModelSaved, SaveFailed
from psplatform.core.protocol.messages import Moved, Pull, Pulled
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.quality import Watch
from psplatform.core.workers.pulling import Pulling
from psplatform.nodes.in_turn import InTurn
from psplatform.nodes.ports import Evaluation

Order = Evaluate | SaveModel


class _Phase(Enum):
    """What is being done about the order at hand."""

    IDLE = "idle"
    FETCHING = "fetching"
    MEASURING = "measuring"
    KEEPING = "keeping"
    SAVING = "saving"


class EvaluatorNode(InTurn):
    """Executes `Evaluate` and `SaveModel`, in the order in which they come.

    An `Evaluate` that comes while another is executed is given again by a coordinator that has taken over.  It takes
    the place of that one: while a version is fetched, the newer one is fetched instead; once one is measured, the
    answer answers both.  Executed afterwards, it would be taken for the answer to what is ordered next.

    Parameters
    ----------
    name
        That servers answer to.
    servers
        By shard, the copy that serves it and its epoch.
    exact
        Whether the shards have versions in common; else the newest one of each is fetched.
    watch
        What versions are compared by, and whether the best is kept.
    send
        Takes pulls for servers, and answers for the coordinator.
    make_evaluation
        Returns the port; what it is given takes the events that the port answers with.
    """

    def __init__(
        self,
        name: str,
        servers: Sequence[tuple[str, int]],
        watch: Watch,
        send: Callable[[Send], None],
        make_evaluation: Callable[[Callable[[Any], None]], Evaluation],
        *,
        exact: bool,
    ) -> None:
        self._pulling = Pulling(name, len(servers), exact)
        self._serving = [copy for copy, _ in servers]
        self._epochs = [epoch for _, epoch in servers]
        for shard, epoch in enumerate(self._epochs):
            self._pulling.moved(shard, epoch, pulling=False)
        self._watch = watch
        self._send = send
        self._evaluation = make_evaluation(self.feed)
        self._phase = _Phase.IDLE
        self._order: Order | None = None
        self._waiting: deque[Order] = deque()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Evaluate: self._on_evaluate,
            SaveModel: self._on_order,
            Moved: self._on_moved,
            Pulled: self._on_pulled,
            Evaluated: self._on_evaluated,
            EvaluationFailed: self._answer,
            ModelSaved: self._answer,
            SaveFailed: self._answer,
        }

    def expects(self, answer: Pulled) -> bool:
        """Whether the content that comes with `answer` belongs to what is being fetched."""
        return self._phase is _Phase.FETCHING and self._pulling.expects(answer)

    def feed(self, event: Any) -> None:
        """Take an order, news of a shard's server, an answer to a pull, or what the evaluation has found, in turn."""
        self._take_in_turn(self._handlers[type(event)], event)

    def _on_evaluate(self, order: Evaluate) -> None:
        if self._phase is _Phase.FETCHING:
            self._begin(order)
        elif self._phase in (_Phase.MEASURING, _Phase.KEEPING):
            self._order = order
        else:
            self._on_order(order)

    def _on_order(self, order: Order) -> None:
        self._waiting.append(order)
        if self._phase is _Phase.IDLE:
            self._begin(self._waiting.popleft())

    def _begin(self, order: Order) -> None:
        self._order = order
        if isinstance(order, Evaluate):
            self._phase = _Phase.FETCHING
            self._ask(self._pulling.begin(order.version))
        else:
            self._phase = _Phase.SAVING
            self._evaluation.save(order.version)

    def _on_moved(self, moved: Moved) -> None:
        if moved.epoch >= self._epochs[moved.shard]:
            self._serving[moved.shard], self._epochs[moved.shard] = moved.copy, moved.epoch
        self._ask(self._pulling.moved(moved.shard, moved.epoch, pulling=self._phase is _Phase.FETCHING))

    def _on_pulled(self, answer: Pulled) -> None:
        if not self.expects(answer):
            return
        self._ask(self._pulling.on_pulled(answer))
        label = self._pulling.label
        if label is None:
            return
        self._phase = _Phase.MEASURING
        if isinstance(self._order, Evaluate) and self._order.measure:
            self._evaluation.measure(label.version)
        else:
            self._answer(Evaluated(label.version, None, None))

    def _on_evaluated(self, found: Evaluated) -> None:
        best = self._order.best if isinstance(self._order, Evaluate) else None
        if self._phase is _Phase.MEASURING and self._watch.keeps(found, best):
            # Before it is known as the best: what is known can be loaded.
            self._phase = _Phase.KEEPING
            self._evaluation.keep(found)
        else:
            self._answer(found)

    def _answer(self, answer: Any) -> None:
        self._phase, self._order = _Phase.IDLE, None
        self._send(Send(COORDINATOR, answer))
        if self._waiting:
            self._begin(self._waiting.popleft())

    def _ask(self, pulls: list[Pull]) -> None:
        for pull in pulls:
            self._send(Send(Role.copy(self._serving[pull.shard]), pull))
