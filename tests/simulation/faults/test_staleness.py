"""What is out of date, or was handled before, must change nothing (S14): a role that takes it for new is noticed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Cuts, Plan, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.workers.session import WorkerSession
from psplatform.errors import InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.policies.registry import make_policy
from psplatform.replication.accounts import Account
from psplatform.simulation.faults.checks.staleness import Staleness
from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.repeats import REPEATED
from psplatform.simulation.threads import one_thread

COMMIT = msg.Commit(2, 2, 1, 1, (), 1.0)


def copy(**fields: Any) -> ShardCopy:
    return ShardCopy(Server(0, epoch=2, term=2, name="copy", make_account=Account, **fields), Account)


def replica() -> ShardCopy:
    return ShardCopy(Replica(0, "copy", epoch=2, term=2), Account)


def session() -> WorkerSession:
    made = WorkerSession("worker", "here", 1, make_policy("asp", {}).traits)
    made.handle(msg.Welcome(2, 0, 1), 0.0)
    return made


def coordinator() -> Coordinator:
    plan = Plan("r", 1, 1, samples=8, batch_size=2, stop=Stop(updates=9), schedule=Constant(), cuts=Cuts(2, 9.0))
    made = Coordinator(plan, make_policy("asp", {}))
    made.state.shards[0].epoch = 2
    return made


class Scene:
    """A run of one copy, one worker and one coordinator, as far as the check looks at them."""

    def __init__(self, one: ShardCopy | None = None, lead: Coordinator | None = None) -> None:
        self.copy, self.session, self.lead = one or copy(), session(), lead or coordinator()
        leads = [SimpleNamespace(name="coordinator-1", lead=SimpleNamespace(coordinator=self.lead))]
        run: Any = SimpleNamespace(
            copies={"copy": SimpleNamespace(control=self.copy, closed=False)},
            workers=SimpleNamespace(nodes={"worker": SimpleNamespace(session=self.session, closed=False)}),
            standbys=SimpleNamespace(all=[]),
            leads=leads,
        )
        self.staleness = Staleness(run)

    def arrives(self, name: str, message: Any, does: Callable[[], object]) -> None:
        """Let a message arrive about which its role does something."""
        self.staleness.hand_over(name, message, does)

    def is_noticed(self, name: str, message: Any, does: Callable[[], object], why: str) -> None:
        with pytest.raises(InvariantViolation, match=f"S14 is violated: {name} has changed .*{why}"):
            self.arrives(name, message, does)


def test_the_first_time_a_message_may_change_what_it_likes_and_the_second_time_nothing() -> None:
    scene = Scene()
    part: Any = scene.copy.part
    scene.arrives("copy", COMMIT, lambda: part._applying._pending.update({1: COMMIT}))
    scene.arrives("copy", COMMIT, lambda: part._applying._pending.update({1: COMMIT}))
    assert scene.staleness.met == 1
    scene.is_noticed("copy", COMMIT, part._applying._pending.clear, "repeated")


def test_the_field_that_changed_is_named() -> None:
    scene = Scene()
    scene.arrives("copy", COMMIT, list)
    part: Any = scene.copy.part
    scene.is_noticed("copy", COMMIT, lambda: part.applied.update({3: 7}), "repeated")
    with pytest.raises(InvariantViolation, match=r"part\.applied\.3 from 7 to 8"):
        scene.arrives("copy", COMMIT, lambda: part.applied.update({3: 8}))


def test_what_asks_for_an_answer_may_be_asked_again() -> None:
    scene, pull = Scene(), msg.Pull("worker", 0, 1, 0)
    for position in (1, 2):
        scene.arrives("copy", pull, lambda position=position: setattr(scene.copy.part, "position", position))


@pytest.mark.parametrize(
    "message",
    [
        msg.Commit(1, 2, 1, 1, (), 1.0),
        msg.Commit(2, 1, 1, 1, (), 1.0),
        msg.Proceed(1, 1, 0.5),
        msg.Lease(1, 0.0, 1.0),
        msg.Include(2, 1, "other"),
        msg.Replicated(0, "other", 1, 1, 1),
    ],
)
def test_a_server_recognises_what_is_of_another_term_or_epoch(message: Any) -> None:
    scene = Scene()
    scene.is_noticed("copy", message, lambda: setattr(scene.copy.part, "position", 9), "(below term|not of epoch) 2")


@pytest.mark.parametrize(
    "message",
    [
        msg.Promote(2, 2),
        msg.Promote(1, 3),
        msg.Transfer("lost", 0, 1, 1, msg.STATE, 1, 1, 1.0, ()),
    ],
)
def test_a_replica_recognises_who_is_no_server_or_coordinator_any_more(message: Any) -> None:
    scene = Scene(replica())
    scene.is_noticed("copy", message, lambda: setattr(scene.copy.part, "position", 9), "which is ")


def test_a_replica_that_is_to_serve_takes_no_transfer() -> None:
    scene, transfer = Scene(replica()), msg.Transfer("server", 0, 2, 1, msg.STATE, 1, 1, 1.0, ())
    scene.arrives("copy", transfer, lambda: setattr(scene.copy.part, "position", 1))
    scene = Scene(replica())
    scene.copy.handle(msg.Promote(2, 3), 0.0)
    assert not isinstance(scene.copy.part, Replica)  # nothing was being loaded: it serves at once
    scene = Scene(replica())
    scene.copy.part.promotion = msg.Promote(2, 3)  # type: ignore[union-attr]
    scene.is_noticed("copy", transfer, lambda: setattr(scene.copy.part, "position", 1), "was replaced")


def test_a_worker_recognises_a_coordinator_that_was_replaced() -> None:
    scene, stop = Scene(), msg.Stop(1, "the run ends")
    scene.is_noticed("worker", stop, lambda: setattr(scene.session, "slot", 9), "below term 2")


def test_a_coordinator_recognises_a_server_that_was_replaced() -> None:
    scene = Scene()
    shard = scene.lead.state.shards[0]
    said = msg.Applied(0, 1, 1, 1, ())
    scene.is_noticed("coordinator-1", said, lambda: setattr(shard, "visible", 9), "not of epoch 2")
    scene.arrives("coordinator-1", msg.Applied(0, 2, 1, 1, ()), lambda: setattr(shard, "visible", 1))


def test_a_coordinator_recognises_a_part_of_another_checkpoint() -> None:
    scene = Scene()
    written = msg.Written(0, 7, 3, {})
    scene.is_noticed("coordinator-1", written, scene.lead.checkpoints._begin_cut, "not of the checkpoint under way")


def test_messages_do_come_again_where_that_is_the_scenario() -> None:
    met = 0
    with one_thread():
        for name in sorted(REPEATED):
            if name.startswith("messages of"):
                ended = Execution(draw(0, scenario=name))
                assert not ended.to_its_end().invariant
                met += ended._staleness.met
    assert met > 100
