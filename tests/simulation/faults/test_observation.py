"""What counts as leaving a server without a replica while the scheduler cannot be heard (S11)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.names import Role
from psplatform.core.shards.server import Server
from psplatform.errors import InvariantViolation
from psplatform.replication.accounts import Account
from psplatform.simulation.faults.checks.observation import Observation


class Scene:
    """A server with two replicas in sync, and the coordinator that sees them, as far as the check looks at them."""

    def __init__(self, *, heard: bool) -> None:
        server = Server(0, name="server-0", make_account=Account, replicas=("a", "b"))
        self.shard = SimpleNamespace(shard=0, server="server-0", in_sync=["a", "b"])
        state = SimpleNamespace(shards=[self.shard])
        self.lead: Any = SimpleNamespace(
            name="coordinator-2", lead=SimpleNamespace(term=2, coordinator=SimpleNamespace(state=state))
        )
        run: Any = SimpleNamespace(
            agenda=SimpleNamespace(now=5.0),
            processes=SimpleNamespace(of=lambda name: name),
            copies={"server-0": SimpleNamespace(control=SimpleNamespace(part=server))},
        )
        self.observation = Observation(run, SimpleNamespace(), lambda *_: heard)  # type: ignore[arg-type]

    def go_on_without(self, *replicas: str) -> None:
        """Let the coordinator take both for lost, and tell the server to go on without these."""
        self.shard.in_sync = []
        told = [Send(Role.copy("server-0"), msg.Exclude(2, 1, replica)) for replica in replicas]
        self.observation._judge_isolation(self.lead, told)


def test_a_server_that_still_waits_for_one_replica_is_not_alone() -> None:
    """Both were lost at once: it is told of one, and the other order is held back until the scheduler is heard."""
    Scene(heard=False).go_on_without("a")


def test_with_the_order_for_the_last_one_it_is() -> None:
    scene = Scene(heard=False)
    scene.go_on_without("a")
    with pytest.raises(InvariantViolation, match="S11"):
        scene.go_on_without("b")
    with pytest.raises(InvariantViolation, match="S11"):
        Scene(heard=False).go_on_without("a", "b")


def test_it_may_be_once_the_scheduler_was_heard() -> None:
    Scene(heard=True).go_on_without("a", "b")


def test_a_gradient_that_was_to_be_given_up_does_not_count() -> None:
    scene = Scene(heard=True)
    commit = msg.Commit(2, 1, 1, 1, (msg.Contribution("w0", 0, 3),), 1.0)
    order = Send(Role.copy("server-0"), commit)
    scene.observation.gradients.judge(scene.lead, None, [order, Send(Role.member("w0"), msg.Abort(2, 3))])
    with pytest.raises(InvariantViolation, match=r"S9 is violated: position 1 has .*'w0', 3"):
        scene.observation.gradients.judge(scene.lead, None, [order])


def test_a_gradient_that_crosses_its_abort_is_accounted_for() -> None:
    scene = Scene(heard=True)
    member: Any = SimpleNamespace(slot=0, interrupted={3})
    said = msg.Announce("w0", 3, msg.Label((0,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
    coordinator = scene.lead.lead.coordinator
    coordinator.takeover = SimpleNamespace(awaited_shards=set())
    coordinator.state.roster = SimpleNamespace(by_name={"w0": member})
    with pytest.raises(InvariantViolation, match="S9 is violated: coordinator-2 waits for w0 to give up 3"):
        scene.observation.gradients.judge(scene.lead, said, [])
    member.interrupted.clear()
    scene.observation.gradients.judge(scene.lead, said, [])
