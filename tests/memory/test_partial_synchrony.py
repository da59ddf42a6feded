"""Partial synchrony with real tensors: equal to BSP where nothing is partial, and what lags where something is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol.messages import Pulled
from psplatform.core.protocol.names import Role
from psplatform.core.shards.server import MOST_AHEAD
from psplatform.core.workers.pulling import PullRule
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.training import TensorArithmetic
from psplatform.memory.world import Ideal
from psplatform.policies.psp import PartiallySynchronous

SLOW_S = 4.0


@pytest.mark.parametrize("shards", [1, 3])
def test_psp_that_waits_for_everything_equals_bsp_bit_for_bit(
    train: Any, assert_equal: Any, convolutional: Any, shards: int
) -> None:
    task = convolutional()
    settings = {"shards": shards, "workers": 3, "stop": Stop(updates=12)}
    whole = train(task, policy="bsp", **settings).run()
    partial = train(task, policy="psp", options={"push": 3, "pull": 1.0}, **settings).run()
    assert_equal(partial.result, whole.result)


def timed(policy: PartiallySynchronous, *, slow_shard: int | None = 0, updates: int = 200) -> MemoryRun:
    """Train 8 workers on 5 blocks; every tenth answer of one block's server takes four iterations longer."""
    answers = 0

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        nonlocal answers
        if not isinstance(message, Pulled) or message.shard != slow_shard:
            return [0.0]
        answers += 1
        return [SLOW_S if answers % 10 == 0 else 0.0]

    plan = Plan("psp", 8, 5, 40, 4, Stop(updates=updates), Constant())
    run = MemoryRun(plan, policy, lambda slot, sequence: 1.0 + 0.01 * slot, deliver=deliver)
    for number in range(8):
        run.join(f"w{number}")
    run.run()
    return run


def seconds(policy: PartiallySynchronous, **settings: Any) -> float:
    return timed(policy, **settings).agenda.now


def test_partial_pull_restores_the_rate_of_updates_that_a_slow_server_costs_and_partial_push_alone_does_not() -> None:
    undelayed = seconds(PartiallySynchronous(push=8, pull=1.0), slow_shard=None)
    whole, push = (seconds(PartiallySynchronous(push=push, pull=1.0)) for push in (8, 6))
    pull = seconds(PartiallySynchronous(push=6, pull=0.8))
    assert pull <= 1.02 * undelayed
    assert whole > push > 1.1 * undelayed


def test_a_push_timeout_merges_more_than_the_least() -> None:
    def merged(policy: PartiallySynchronous) -> list[int]:
        return [len(one["slots"]) for one in timed(policy, slow_shard=None).of_kind("commit")]

    assert set(merged(PartiallySynchronous(push=6))) == {6}
    fault_target = merged(PartiallySynchronous(push=6, push_timeout_s=0.5))
    assert min(fault_target) >= 6
    assert sum(fault_target) > 6 * len(fault_target)


def test_a_pull_timeout_refreshes_more_blocks_than_the_least() -> None:
    """The answer of each block's server comes a tenth of a second after that of the one before."""

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        return [0.1 * message.shard if isinstance(message, Pulled) else 0.0]

    def fresh(timeout_s: float) -> set[int]:
        plan = Plan("psp", 2, 5, 40, 4, Stop(updates=20), Constant())
        policy = PartiallySynchronous(pull=0.4, pull_timeout_s=timeout_s)
        run = MemoryRun(plan, policy, deliver=deliver)
        run.join("w0")
        run.join("w1")
        run.run()
        return {one["fresh_blocks"] for one in run.of_kind("gradient") if one["sequence"] > 1}

    assert fresh(0.0) == {2}
    assert fresh(0.25) == {4}


def test_a_random_subset_asks_for_no_more_blocks_than_are_waited_for() -> None:
    asked: dict[str, int] = {}
    shards: set[int] = set()

    def deliver(_sender: Role, to: Role, message: Any) -> list[float]:
        if isinstance(message, Pulled) and to.name == "w0":
            asked[to.name] = asked.get(to.name, 0) + 1
            shards.add(message.shard)
        return [0.0]

    plan = Plan("psp", 2, 5, 40, 4, Stop(updates=30), Constant())
    run = MemoryRun(plan, PartiallySynchronous(pull=0.4, subset=True), deliver=deliver)
    run.join("w0")
    run.join("w1")
    run.run()
    started = len([one for one in run.of_kind("start") if one["slot"] == 0])
    assert asked["w0"] <= 5 + 2 * (started - 1)
    assert shards == set(range(5))


def test_who_has_fallen_behind_counts_on_or_jumps() -> None:
    """One worker is three times slower than the others, and no block waits for it."""

    def staleness(resync: str) -> list[int]:
        plan = Plan("psp", 3, 2, 40, 4, Stop(updates=60), Constant())
        policy = PartiallySynchronous(push=2, resync=resync)
        run = MemoryRun(plan, policy, lambda slot, sequence: 3.0 if slot == 2 else 1.0)
        for number in range(3):
            run.join(f"w{number}")
        run.run()
        starts = [one for one in run.of_kind("start") if one["slot"] == 2]
        newest = {one["at"]: one["version"] for one in run.of_kind("commit")}
        return [max(v for at, v in newest.items() if at <= one["at"]) - one["version"] for one in starts[1:]]

    assert max(staleness("jump")) <= 1
    assert max(staleness("counter")) > 10


def test_gradients_are_computed_on_old_content_of_the_blocks_that_did_not_come(train: Any, convolutional: Any) -> None:
    """Only of the block whose server is slow at times are gradients applied that were computed on an older version."""

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        return [1.5 if isinstance(message, Pulled) and message.shard == 1 and message.request % 4 == 1 else 0.0]

    options = {"push": 2, "pull": 0.6}
    settings = {"shards": 3, "workers": 3, "stop": Stop(updates=40), "deliver": deliver}
    trained = train(convolutional(), policy="psp", options=options, **settings).run()
    commits = trained.of_kind("commit")
    assert {max(one["staleness"]) for one in commits if one["block"] != 1} == {0}
    assert max(max(one["staleness"]) for one in commits if one["block"] == 1) > 0


@dataclass(frozen=True, slots=True)
class SlowBlock(Ideal):
    """A world in which one block's server needs much longer for a step than a worker for a gradient."""

    def gather_s(self, shard: int, gradients: int) -> float:
        return 3.0 if shard == 1 else 0.0


def test_workers_run_only_so_far_ahead_of_a_slow_server(convolutional: Any) -> None:
    """They push to it as in a real run: it has room for a few versions, and none of what it needs is overwritten."""
    arithmetic = TensorArithmetic(convolutional(), SGD(lr=0.1), shards=2, batch_size=8, per_block=True)
    plan = Plan("psp", 2, 2, arithmetic.samples, 8, Stop(updates=40), Constant())
    world = SlowBlock(lambda slot, sequence: 0.5, lambda sender, to, message: [0.0])
    run = MemoryRun(plan, PartiallySynchronous(push=2, pull=0.5), arithmetic=arithmetic, world=world)
    ahead: set[int] = set()

    def note(now: MemoryRun) -> None:
        ahead.add(now.coordinator.state.commit_logs[1].version - now.servers[1].version)

    run.on_event = note
    run.join("w0")
    run.join("w1")
    assert run.run().outcome == "updates"
    assert max(ahead) == MOST_AHEAD + 1


def test_the_steps_of_momentum_have_the_rate_of_their_block(train: Any, assert_equal: Any, convolutional: Any) -> None:
    """Two of three gradients make two thirds of a step, of the update and not of what momentum remembers."""
    settings = {"shards": 2, "workers": 2, "stop": Stop(updates=8), "optimizer": SGD(lr=0.3, momentum=0.9)}
    partial = train(convolutional(), policy="psp", options={"push": 1, "pull": 1.0}, **settings).run()
    assert {one["rate"] for one in partial.of_kind("commit")} == {0.5}
    rate = {"shards": 2, "workers": 1, "stop": Stop(updates=8), "optimizer": SGD(lr=0.15, momentum=0.9)}
    # The first worker alone is in time: the same gradients, at half the rate.
    assert_equal(partial.result, train(convolutional(), policy="bsp", **rate).run().result)


def test_each_worker_draws_blocks_of_its_own() -> None:
    """What is drawn depends on the slot and the gradient: the same block must not be stale for everybody at once."""
    drawn: dict[str, list[int]] = {}

    def deliver(_sender: Role, to: Role, message: Any) -> list[float]:
        if isinstance(message, Pulled) and to.name.startswith("w"):
            drawn.setdefault(to.name, []).append(message.shard)
        return [0.0]

    plan = Plan("psp", 3, 6, 40, 4, Stop(updates=12), Constant())
    run = MemoryRun(plan, PartiallySynchronous(pull=0.5, subset=True), deliver=deliver)
    for number in range(3):
        run.join(f"w{number}")
    run.run()
    assert len({tuple(shards[6:]) for shards in drawn.values()}) == 3


@pytest.mark.parametrize(("fraction", "shards", "count"), [(0.9, 32, 29), (0.75, 5, 4), (0.9, 30, 27), (0.1, 3, 1)])
def test_a_share_of_the_blocks_is_rounded_up(fraction: float, shards: int, count: int) -> None:
    assert PullRule(fraction).count(shards) == count
