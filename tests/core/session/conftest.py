"""A worker's session in front of a test that plays coordinator, servers and driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Send
from psplatform.core.protocol.events import Begin, Computed
from psplatform.core.workers.session import Activity, WorkerSession

FIGURES = {"samples": 4, "loss": 0.5, "squared_norm": 2.0, "seconds": 0.75}


@dataclass
class Worker:
    """A session, what it did about the last event, and short words for what can happen to it."""

    session: WorkerSession
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def handle(self, event: Any, *, after: float = 0.0) -> list[Effect]:
        self.now += after
        self.effects = self.session.handle(event, self.now)
        self.sent += [one.message for one in self.effects if isinstance(one, Send)]
        return self.effects

    def welcome(self, term: int = 1) -> Worker:
        self.handle(Begin())
        self.handle(msg.Welcome(term, 3, 1))
        return self

    def release(
        self, sequence: int, version: int = 0, *, term: int = 1, assignment: msg.BatchAssignment | None = None
    ) -> Worker:
        self.handle(msg.Release(term, sequence, version, assignment))
        return self

    def pulls(self) -> list[msg.Pull]:
        return [one.message for one in self.effects if isinstance(one, Send) and isinstance(one.message, msg.Pull)]

    def serve(self, *versions: int, after: float = 0.0, decided_in: int = 0) -> Worker:
        """Answer the pulls just sent, by default with the version asked for."""
        self.now += after
        for number, pull in enumerate(self.pulls()):
            version = versions[number] if versions else pull.version
            self.handle(msg.Pulled(pull.shard, pull.request, version, 1, decided_in))
        return self

    def computed(self, sequence: int, *, after: float = 0.0) -> Worker:
        self.handle(Computed(sequence, **FIGURES), after=after)
        return self

    @property
    def activity(self) -> Activity:
        return self.session.activity

    def messages(self, kind: type) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]


# How to bring a worker into each state with gradient 5 released, as far as that state has one.
WAYS: dict[Activity, Callable[[Worker], Any]] = {
    Activity.JOINING: lambda one: one.handle(Begin()),
    Activity.WAITING: lambda one: one.welcome(),
    Activity.PULLING: lambda one: one.welcome().release(5),
    Activity.COMPUTING: lambda one: one.welcome().release(5).serve(),
    Activity.OFFERED: lambda one: one.welcome().release(5).serve().computed(5),
    Activity.EXPOSING: lambda one: one.welcome().release(5).serve().computed(5),
    Activity.ABORTING: lambda one: one.welcome().release(5).serve().handle(msg.Abort(1, 5)),
}


@pytest.fixture
def fresh() -> Callable[..., Worker]:
    """Make a session that has not begun."""

    def make(shards: int = 2, *, exact: bool = True, scope: Scope = Scope.MODEL, **options: Any) -> Worker:
        return Worker(WorkerSession("w", "here", shards, Traits(exact=exact, scope=scope), **options))

    return make


@pytest.fixture
def brought_to(fresh: Callable[..., Worker]) -> Callable[[Activity], Worker]:
    """Bring a session into a state, with gradient 5 released where it has one."""

    def bring(state: Activity) -> Worker:
        worker = fresh(host="h" if state is Activity.OFFERED else "")
        WAYS[state](worker)
        assert worker.activity is state
        return worker

    return bring
