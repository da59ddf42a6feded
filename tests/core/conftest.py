"""A coordinator in front of a test that plays everybody else."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Gradient, Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Evaluate, Finish, Log, SaveModel, Send
from psplatform.core.protocol.events import (
    Begin,
    CoordinatorLost,
    Evaluated,
    EvaluationFailed,
    EvaluationLost,
    MemberLost,
    ModelSaved,
    TimerFired,
)
from psplatform.errors import PsplatformError
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous


def make_gradient(slot: int, sequence: int, *, label: int = 0, **fields: Any) -> Gradient:
    known = {
        "member": f"m{slot}",
        "slot": slot,
        "sequence": sequence,
        "label": msg.Label((label,), (1,)),
        "samples": 4,
        "loss": 1.0,
        "squared_norm": 1.0,
        "compute_s": 0.1,
        "arrived_at": 0.0,
    }
    return Gradient(**{**known, **fields})


@pytest.fixture
def gradient() -> Callable[..., Gradient]:
    """Make what a policy sees of a gradient."""
    return make_gradient


@dataclass
class Scene:
    """A coordinator, what it answered to the last event, and everything it has logged."""

    coordinator: Coordinator
    plan: Plan
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    all_sent: list[Send] = field(default_factory=list)
    unseen: list[tuple[int, msg.Commit]] = field(default_factory=list)
    orders: list[Evaluate | SaveModel] = field(default_factory=list)
    finish: Finish | None = None

    def handle(self, event: Any, *, at: float | None = None) -> list[Effect]:
        """Feed one event and keep what came of it."""
        self.now = self.now if at is None else at
        self.effects = self.coordinator.handle(event, self.now)
        self.records += [one.record for one in self.effects if isinstance(one, Log)]
        self.all_sent += [one for one in self.effects if isinstance(one, Send)]
        commits = [one for one in self.effects if isinstance(one, Send) and isinstance(one.message, msg.Commit)]
        self.unseen += [(int(one.to.name.rsplit("-", 1)[1]), one.message) for one in commits]
        answered = {Evaluated: Evaluate, EvaluationFailed: Evaluate, ModelSaved: SaveModel}
        if isinstance(event, EvaluationLost):
            self.orders.clear()
        if self.orders and isinstance(self.orders[0], answered.get(type(event), ())):
            del self.orders[0]
        self.orders += [one for one in self.effects if isinstance(one, Evaluate | SaveModel)]
        self.finish = next((one for one in self.effects if isinstance(one, Finish)), self.finish)
        return self.effects

    def join(self, *names: str) -> Scene:
        for name in names:
            self.handle(msg.Join(name, f"process of {name}"))
        return self

    def lose(self, name: str) -> Scene:
        self.handle(MemberLost(name, "killed"))
        return self

    def take_over(self, term: int = 2, *, at: float = 5.0, process: str = "") -> Scene:
        """Let another coordinator, which has handled the same, take over."""
        self.now = at
        self.coordinator = deepcopy(self.coordinator)
        self.effects = self.coordinator.take_over(term, CoordinatorLost("killed", 0.5), at, process)
        self.records += [one.record for one in self.effects if isinstance(one, Log)]
        return self

    def announce(self, name: str, *, label: int | None = None, sequence: int | None = None, **fields: Any) -> Scene:
        """Announce what the member was last released for, on what it was released on."""
        member = self.coordinator.state.roster.by_name.get(name)
        version = (member.version if member else 0) if label is None else label
        known = {
            "member": name,
            "sequence": (member.sequence if member else 1) if sequence is None else sequence,
            "label": msg.Label((version,) * self.plan.shards, (1,) * self.plan.shards),
            "samples": self.plan.batch_size,
            "loss": 1.0,
            "squared_norm": 1.0,
            "compute_s": 0.1,
            "pull_s": 0.0,
            "push_s": 0.0,
            "wait_s": 0.0,
        }
        if member is not None and self.coordinator.state.batch_scheduler is not None:
            known["assignment"] = self.coordinator.state.batch_scheduler.assignment(member.slot, known["sequence"])
        self.handle(msg.Announce(**{**known, **fields}))
        return self

    def show(self, *norms: float) -> Scene:
        """Let every shard show every commit it was sent and has not shown."""
        unseen, self.unseen = self.unseen, []
        for shard, commit in unseen:
            self.handle(msg.Applied(shard, commit.epoch, commit.position, commit.version, norms))
        return self

    def fire(self, tag: str, *, at: float | None = None) -> Scene:
        self.handle(TimerFired(tag), at=at)
        return self

    def end(self) -> Scene:
        """Play the rest of the run: every commit becomes visible, the last version is evaluated and saved."""
        self.show()
        while self.orders:
            order = self.orders[0]
            if isinstance(order, SaveModel):
                self.handle(ModelSaved(order.version))
            else:
                self.evaluated(order)
        return self

    def evaluated(self, order: Evaluate, loss: float = 1.0, accuracy: float | None = None) -> Scene:
        """Answer an order to evaluate with the newest version."""
        measured = (loss, accuracy) if order.measure else (None, None)
        self.handle(Evaluated(max(order.version, self.coordinator.state.version), *measured))
        return self

    @property
    def failure(self) -> PsplatformError | None:
        """What the run fails with, from the moment at which that is decided."""
        return self.coordinator.ending._failure

    def sent(self, kind: type) -> list[Any]:
        """Return the messages of that kind in the last answer."""
        return [one.message for one in self.effects if isinstance(one, Send) and isinstance(one.message, kind)]

    def addressed(self, kind: type) -> list[str]:
        """Return to whom messages of that kind went in the last answer."""
        return [one.to.name for one in self.effects if isinstance(one, Send) and isinstance(one.message, kind)]

    def asked(self, kind: type) -> list[Any]:
        """Return the effects of that kind in the last answer."""
        return [one for one in self.effects if isinstance(one, kind)]

    def logged(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.records if one["kind"] == kind]


@pytest.fixture
def open_scene() -> Callable[..., Scene]:
    """Open a run with the given policy and fields of the plan."""

    def make(policy: Policy | None = None, *, processes: dict[str, str] | None = None, **fields: Any) -> Scene:
        known: dict[str, Any] = {
            "run": "run",
            "workers": 2,
            "shards": 1,
            "samples": 100,
            "batch_size": 4,
            "stop": Stop(updates=1000),
            "schedule": Constant(),
        }
        plan = Plan(**{**known, **fields})
        scene = Scene(Coordinator(plan, policy or Asynchronous(), processes=processes), plan)
        scene.handle(Begin())
        return scene

    return make
