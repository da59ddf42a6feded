"""What a coordinator sends: to each by the way there is to it, and to the standbys no sooner than it must be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from psplatform.core.protocol.effects import Effect, Send
from psplatform.core.protocol.messages import Commit, Lease, LogEntry, Moved, Release, Route
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.runtime.actors.coordinator.held_answers import HeldAnswers
from psplatform.runtime.comms.answering import Reply
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.timeouts import TIMEOUTS


class CoordinatorOutbox:
    """Takes what one coordinator sends.

    Parameters
    ----------
    copies, worker_pool, standbys
        The ways to servers and replicas, to workers and the evaluator, and to the standbys.
    """

    def __init__(
        self, lead: ReplicatedCoordinator, copies: DaskShardPool, worker_pool: DaskWorkerPool, standbys: Standbys
    ) -> None:
        self._lead = lead
        self._copies, self._worker_pool, self._standbys = copies, worker_pool, standbys
        self._decided = False
        self._listener = ""
        self._answers: list[Any] = []
        # Whether the sender that is answered waited for its release before it was heard.
        self._waited = False
        self._held = HeldAnswers(worker_pool.note_answer)
        # Which worker was told where which other is.
        self._introduced: set[tuple[str, str]] = set()

    def look_at(self, effects: Iterable[Effect]) -> None:
        """Take the effects that are about to be executed together."""
        self._decided = any(isinstance(one, Send) and isinstance(one.message, Commit) for one in effects)

    def send(self, effect: Send) -> None:
        """Send a message; one that names a server, a replica or another worker goes with where that is."""
        to, message = effect.to, effect.message
        if to.name == self._listener and self._may_answer_with(to.name, message):
            self._answers.append(message)
        elif to.kind == "copy":
            self._copies.send(to.name, message)
        elif to.kind == "standby":
            self._standbys.tell(message, self._may_wait_s(message))
        elif not self._answer_held(to.name, message):
            if isinstance(message, Moved) and (place := self._copies.place_of(message.copy)) is not None:
                self._worker_pool.send(to.name, place)
            elif (helper := _helper_in(message)) and not self._knows(to.name, helper):
                self._introduce(to.name, helper)
            self._worker_pool.send(to.name, message)

    def _answer_held(self, worker: str, message: Any) -> bool:
        """Answer a worker with a message, if an answer to it is held; whatever else it is sent ends that."""
        if self._may_answer_with(worker, message) and self._held.give(worker, message):
            return True
        self._held.end(worker)
        return False

    def _knows(self, worker: str, other: str) -> bool:
        return worker == other or (worker, other) in self._introduced

    def _introduce(self, worker: str, other: str) -> None:
        if (place := self._worker_pool.place_of(other)) is not None:
            self._introduced.add((worker, other))
            self._worker_pool.send(worker, place)

    def hold(self, worker: str, said: bytes) -> Reply:
        """Return the answer to an announcement that has led to no release yet: a future, or that it was heard.

        It is a future only for the call that has made the worker wait, and once the worker has heard all that it was
        sent.  A repeat is answered at once: the release may come to whichever of its calls the worker has given up.
        """
        holds = not self._waited and self._lead.is_waiting(worker) and self._worker_pool.has_heard_all(worker)
        return self._held.hold(worker, said) if holds else True

    def close(self) -> None:
        """Let no worker wait for an answer any longer."""
        self._held.close()

    @contextmanager
    def answering(self, sender: str) -> Iterator[list[Any]]:
        """Collect what can be said to `sender`, which waits for an answer, instead of sending it."""
        self._held.end(sender)  # only a worker's; it has given that call up, or this one before
        self._waited = self._lead.is_waiting(sender)
        self._listener, self._answers = sender, []
        try:
            yield self._answers
        finally:
            self._listener = ""

    def _may_answer_with(self, name: str, message: Any) -> bool:
        # A release that comes before what was sent earlier would be in no order.
        return isinstance(message, Lease) or (
            isinstance(message, Release)
            and (not message.relay or self._knows(name, message.relay))
            and self._worker_pool.has_heard_all(name)
        )

    def _may_wait_s(self, message: Any) -> float:
        if not isinstance(message, LogEntry) or self._lead.awaits_acknowledgment:
            return 0.0
        return TIMEOUTS.decided_s if self._decided else TIMEOUTS.together_s


def _helper_in(message: Any) -> str:
    """Return the worker that a message asks another to send to, or to pull from; empty where it names none."""
    if isinstance(message, Route):
        return message.aggregator
    return message.relay if isinstance(message, Release) else ""
