"""The coordinator's part of a checkpoint: plain values, from which a later coordinator goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.shards.checkpoints import capture, place_after
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send, SetTimer
from psplatform.core.protocol.events import Begin
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.dbw import DynamicBackup
from psplatform.policies.psp import PartiallySynchronous
from psplatform.policies.registry import make_policy, policy_names

Open = Callable[..., Any]


def stored(scene: Any) -> dict[str, Any]:
    """Return what the run's coordinator knows, as it comes out of a store."""
    plain = msgpack.unpackb(msgpack.packb(capture(scene.coordinator.state).to_plain()), use_list=False)
    assert isinstance(plain, dict)
    return plain


def resumed(plan: Plan, policy: Policy, plain: dict[str, Any]) -> Coordinator:
    coordinator = Coordinator(plan, policy, resume=plain)
    coordinator.handle(Begin(), 0.0)
    return coordinator


def test_versions_samples_and_seconds_go_on(open_scene: Open) -> None:
    scene = open_scene(shards=2).join("a")
    scene.now = 2.5
    scene.announce("a").announce("a")
    state = resumed(scene.plan, make_policy("asp"), stored(scene)).state
    assert (state.version, state.commit_logs[0].position, state.samples_applied) == (2, 2, 8)
    assert (state.seconds, state.epochs_done) == (2.5, 0.08)
    assert [one.visible for one in state.shards] == [2, 2]


def test_sequences_and_incarnations_of_slots_go_on(open_scene: Open) -> None:
    """No randomness repeats, whoever is in the slot."""
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").announce("b")
    coordinator = resumed(scene.plan, BulkSynchronous(), stored(scene))
    effects = coordinator.handle(msg.Join("c", "p"), 0.0)
    sent = [one.message for one in effects if isinstance(one, Send)]
    assert [(one.slot, one.incarnation) for one in sent if isinstance(one, msg.Welcome)] == [(0, 2)]
    assert [(one.sequence, one.version) for one in sent if isinstance(one, msg.Release)] == [(3, 1)]


def test_batches_under_way_are_dealt_again(open_scene: Open) -> None:
    scene = open_scene(deal_epochs=True).join("a", "b").announce("a")
    # Dealt are 0 to 2, and the first is applied.
    coordinator = resumed(scene.plan, make_policy("asp"), stored(scene))
    effects = [one for name in ("c", "d", "e") for one in coordinator.handle(msg.Join(name, "p"), 0.0)]
    released = [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, msg.Release)]
    assert [one.assignment.number for one in released if one.assignment is not None] == [1, 2, 3]


def test_a_gradient_of_before_the_cut_is_not_applied_again(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a").announce("a")
    state = resumed(scene.plan, make_policy("asp"), stored(scene)).state
    assert state.commit_logs[0].newest == {0: 2}


def test_what_a_policy_has_learned_goes_on(open_scene: Open) -> None:
    scene = open_scene(DynamicBackup(), workers=2).join("a", "b")
    for round_number in range(4):
        scene.now = 1.0 + round_number
        scene.announce("a").announce("b").show(1.0)
    policy = DynamicBackup()
    resumed(scene.plan, policy, stored(scene))
    assert policy.state() == scene.coordinator.state.policy.state()
    assert policy.state() != DynamicBackup().state()


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_s_state_survives_the_store(open_scene: Open, name: str) -> None:
    scene = open_scene(make_policy(name), shards=2).join("a", "b")
    policy = make_policy(name)
    resumed(scene.plan, policy, stored(scene))
    again = msgpack.packb(policy.state())
    assert again == msgpack.packb(scene.coordinator.state.policy.state())


@pytest.mark.parametrize("after", policy_names())
@pytest.mark.parametrize("before", policy_names())
def test_another_policy_begins_with_nothing_learned(open_scene: Open, before: str, after: str) -> None:
    scene = open_scene(make_policy(before), shards=2).join("a", "b")
    policy = make_policy(after)
    resumed(scene.plan, policy, stored(scene))
    if before != after:
        assert msgpack.packb(policy.state()) == msgpack.packb(make_policy(after).state())


def test_other_parameters_are_another_policy(open_scene: Open) -> None:
    scene = open_scene(DynamicBackup(), workers=2).join("a", "b")
    for round_number in range(4):
        scene.now = 1.0 + round_number
        scene.announce("a").announce("b").show(1.0)
    policy = make_policy("dbw", {"window": 3})
    resumed(scene.plan, policy, stored(scene))
    assert policy.state() == make_policy("dbw", {"window": 3}).state()


def test_with_other_shards_blocks_go_on_from_the_oldest_version(open_scene: Open) -> None:
    scene = open_scene(PartiallySynchronous(push=1), shards=2).join("a")
    scene.announce("a", shards=(1,))
    plain = stored(scene)
    assert (plain["version"], plain["versions"]) == (0, (0, 1))
    known = {name: getattr(scene.plan, name) for name in Plan.__dataclass_fields__}
    for shards, versions in ((2, [0, 1]), (3, [0, 0, 0]), (1, [0])):
        plan = Plan(**{**known, "shards": shards})
        state = resumed(plan, PartiallySynchronous(push=1), plain).state
        assert [commit_log.version for commit_log in state.commit_logs] == versions


def test_one_order_for_all_blocks_goes_on_above_each_of_theirs(open_scene: Open) -> None:
    scene = open_scene(PartiallySynchronous(push=1), shards=2).join("a")
    plain = stored(scene.announce("a", shards=(1,)))
    assert plain["positions"] == (0, 1)
    (commit_log,) = resumed(scene.plan, BulkSynchronous(), plain).state.commit_logs
    assert (commit_log.position, commit_log.version) == (1, 0)
    assert [place_after(plain, shard, 1) for shard in (0, 1)] == [(1, 0)] * 2


def test_a_limit_in_seconds_counts_those_before_the_cut(open_scene: Open) -> None:
    scene = open_scene(stop=Stop(seconds=10.0)).join("a")
    scene.now = 4.0
    plain = stored(scene.announce("a"))
    coordinator = resumed(scene.plan, make_policy("asp"), plain)
    effects = coordinator.handle(msg.Join("c", "p"), 1.0)
    assert [one.at for one in effects if isinstance(one, SetTimer) and one.tag == "seconds"] == [7.0]
