"""Measures versions on held-out data and saves them, as a Dask actor beside the training.

It pulls one published version like any worker and measures it in a thread of its own: nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from distributed import get_worker

from psplatform.core.policy import Scope
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Pulled
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.protocol.place_messages import ActorAt, CoordinatorAt
from psplatform.nodes.evaluator import EvaluatorNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.evaluation import ThreadedEvaluation
from psplatform.runtime.actors.retirement import before_the_end, begin_to_forget_the_end
from psplatform.runtime.comms.answering import Listening
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.lines import Line, Said, messages_of
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.program import Program


class EvaluatorHost(Listening):
    """Hosts `psplatform.nodes.evaluator.EvaluatorNode`.

    Parameters
    ----------
    name
        That servers answer to.
    servers
        By shard, the copy that serves it and its epoch.
    copies
        The copies of shards by name, with the shard of each.
    """

    def __init__(
        self,
        run: str,
        name: str,
        coordinator: Peer,
        servers: Sequence[tuple[str, int]],
        copies: Mapping[str, tuple[int, Peer]],
    ) -> None:
        self._run, self._name = run, name
        self._coordinator = CoordinatorLine(coordinator)
        self._copies = {copy: peer for copy, (_, peer) in copies.items()}
        self._servers = servers
        self._early: list[Any] | None = []
        self._log = ActorLog(run, name)
        # An evaluator that fails falls silent, and another takes its place.
        self._new_background = partial(Background, self._stop, self._log)
        self._background = self._new_background()
        self._closing = ExitStack()
        self._closing.callback(self._background.close)
        self._closed = False

    async def open(self, program: Program) -> None:
        """Build the task and begin to answer; must be called once, before anything else.

        Raises
        ------
        UserCodeError
            If the user's code raises while the task is opened.
        """
        worker = self._worker = get_worker()
        self._connect = await TRANSPORTS[program.transport].connections(worker, self._closing)
        self._loop = asyncio.get_running_loop()
        try:
            evaluation = await self._loop.run_in_executor(None, ThreadedEvaluation, program, self._background)
        except BaseException:
            self._closing.close()
            raise
        if self._closed:
            self._closing.close()
            return
        self._make_line(program)
        self._make_node(program, evaluation)
        early, self._early = self._early or [], None
        for message in early:
            self._take(message)
        await before_the_end(worker, f"{self._run}-{self._name}", self.close)
        self._log.info("an evaluator is ready at %s", worker.address)

    def _make_line(self, program: Program) -> None:
        line = Line(
            self._connect,
            self._coordinator.peer,
            self._name,
            self._new_background(),
            patience_s=program.patience_s,
            on_lost=self._stop,
            on_refused=lambda: self._stop("the coordinator no longer knows this evaluator"),
            beat_s=program.worker_lease_s / 8,
        )
        self._coordinator.open(line)
        self._closing.callback(begin_to_forget_the_end, self._worker, f"{self._run}-{self._name}")
        self._closing.callback(line.close)

    def _make_node(self, program: Program, evaluation: ThreadedEvaluation) -> None:
        def make_evaluation(feed: Callable[[Any], None]) -> ThreadedEvaluation:
            evaluation.feed = feed
            return evaluation

        self._node = node = EvaluatorNode(
            self._name,
            self._servers,
            program.plan.watch,
            self._send,
            make_evaluation,
            # Blocks with versions of their own have none in common.
            exact=program.policy.traits.scope is Scope.MODEL,
        )
        deliver: Callable[[Pulled], None] = node.feed
        self._fetcher = Fetcher(
            self._connect,
            evaluation.layout,
            self._name,
            None,
            self._copies,
            Parameters(evaluation.layout, evaluation.values),
            node.expects,
            deliver,
            TRANSPORTS[program.transport],
            self._new_background(),
            slow_s=program.slow_s,
        )
        self._closing.callback(self._fetcher.close)
        self._closing.callback(evaluation.close)

    def take(self, sender: str, said: Said) -> bool:
        """Take orders of the coordinator."""
        for message in messages_of(said) if not self._closed else ():
            if self._early is not None:
                self._early.append(message)
            else:
                self._take(message)
        return True

    def _take(self, message: Any) -> None:
        if isinstance(message, ActorAt):
            self._fetcher.peers[message.name] = Peer(message.address, message.key)
        elif isinstance(message, CoordinatorAt):
            self._coordinator.turn_to(message)
        else:
            try:
                self._node.feed(message)
            except Exception as error:  # noqa: BLE001  the evaluator ends because of it, and another takes its place
                self._background.tell_of(error)

    async def close(self) -> None:
        """Stop answering; one that is still being opened never begins."""
        self._stop("closed")

    def _send(self, effect: Send) -> None:
        if effect.to == COORDINATOR:
            self._coordinator.send(effect.message)
        else:
            self._fetcher.pull(effect.message, effect.to.name)

    def _stop(self, reason: str) -> None:
        if not self._closed:
            self._log.info("ends: %s", reason)
        self._closed = True
        self._closing.close()
