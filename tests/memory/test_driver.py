"""The in-memory driver: deterministic, on a clock that jumps, and true to what a cluster would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import Computed, ComputeFailed
from psplatform.core.protocol.messages import Announce, Join, Pull, Pulled, Welcome
from psplatform.core.protocol.names import Role
from psplatform.errors import ClusterError, InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.policies.registry import make_policy

Start = Callable[..., MemoryRun]


@pytest.fixture
def start() -> Start:
    """Start a run of metadata with some workers."""

    def make(
        policy: str = "bsp", *, workers: int = 2, shards: int = 1, options: Any = None, **further: Any
    ) -> MemoryRun:
        known: dict[str, Any] = {"stop": Stop(updates=5), "schedule": Constant(), "samples": 100, "batch_size": 4}
        names = set(known) | {"evaluates", "evaluate_every", "absence_limit_s", "deal_epochs", "protection"}
        plan = known | {name: further.pop(name) for name in list(further) if name in names}
        run = MemoryRun(Plan(run="r", workers=workers, shards=shards, **plan), make_policy(policy, options), **further)
        for number in range(workers):
            run.join(f"w{number}")
        return run

    return make


def pace(slot: int, sequence: int) -> float:
    return 1.0 + (slot * 5 + sequence * 3) % 4


def test_two_runs_with_the_same_inputs_give_the_same_history(start: Start) -> None:
    histories = []
    for _ in range(2):
        run = start("ssp", workers=3, shards=2, compute_s=pace, latency_s=0.25)
        run.kill("w1", at=4.0)
        run.join("late", at=5.0)
        run.run()
        histories.append(run.records)
    assert histories[0] == histories[1]


def test_time_passes_only_where_somebody_computes_or_waits(start: Start) -> None:
    """Five rounds of the slower of two workers."""
    run = start(compute_s=lambda slot, sequence: 1.0 + slot)
    run.run()
    assert run.agenda.now == 10.0


def test_every_message_takes_the_latency(start: Start) -> None:
    """A round: release, pull, answer, one second of computing, announcement; join and welcome before the first."""
    run = start(workers=1, stop=Stop(updates=1), latency_s=0.25)
    run.run()
    (commit,) = run.of_kind("commit")
    # Join, release, pull, pulled, announce: the welcome travels with the release.
    assert commit["at"] == pytest.approx(5 * 0.25 + 1.0)


def test_a_killed_worker_says_no_more_and_its_loss_is_noted_at_once(start: Start) -> None:
    run = start()
    run.kill("w1", at=1.5)
    run.run()
    (lost,) = run.of_kind("lost")
    assert (lost["at"], lost["slot"], lost["reason"]) == (1.5, 1, "killed")
    assert all(one["at"] <= 1.5 for one in run.of_kind("gradient") if one["slot"] == 1)


def test_who_is_killed_before_it_is_there_comes_all_the_same(start: Start) -> None:
    run = start(workers=1)
    run.kill("late", at=1.5)
    run.join("late", at=2.5)
    run.run()
    assert run.of_kind("lost") == []
    assert [one["slot"] for one in run.of_kind("joined")] == [0, 1]


def test_a_gradient_that_is_gone_where_nothing_was_lost_is_a_bug_of_ours(start: Start) -> None:
    """A worker must not be let go on before every shard has read what the next gradient is written over."""

    class Forgetful(Metadata):
        def gather(self, copy: str, contributions: Any, **options: Any) -> tuple[float, ...] | None:
            return None if copy == "server-1" else super().gather(copy, contributions, **options)

    with pytest.raises(InvariantViolation, match="a gradient of position 1 is gone, though nothing was lost"):
        start(shards=2, arithmetic=Forgetful()).run()


def test_a_run_with_replicas_needs_accounts_of_what_they_lack(start: Start) -> None:
    with pytest.raises(RuntimeError, match="nothing was given that accounts for"):
        start(protection=Protection(1))


def test_a_worker_that_leaves_takes_its_leave(start: Start) -> None:
    run = start(latency_s=0.5)
    run.leave("w1", at=3.0)
    run.run()
    (lost,) = run.of_kind("lost")
    assert (lost["at"], lost["reason"]) == (3.5, "left")


def test_workers_leave_when_the_run_ends(start: Start) -> None:
    run = start(workers=3)
    run.run()
    assert run.drain() == []
    assert all(one.closed for one in run.workers.nodes.values())


def test_who_joins_when_the_run_is_over_goes_again(start: Start) -> None:
    run = start()
    run.join("late", at=1000.0)
    run.run()
    assert run.drain() == []


def test_a_run_can_be_stopped_at_any_time(start: Start) -> None:
    run = start(stop=Stop(updates=1000))
    run.stop(at=3.5)
    assert run.run().outcome == "stopped"
    assert len(run.of_kind("commit")) == 3


def test_a_lost_server_ends_the_run(start: Start) -> None:
    run = start(shards=2)
    run.lose_server(1, at=2.5)
    assert "the server of shard 1" in run.run().detail
    assert run.drain() == []


def test_a_run_that_nobody_joins_ends(start: Start) -> None:
    run = start(workers=0, absence_limit_s=9.0)
    finish = run.run()
    assert isinstance(finish.failure, ClusterError)
    assert run.agenda.now == 9.0


def test_a_run_that_cannot_end_says_who_waits(start: Start) -> None:
    """Without a network that delivers, nothing ends but the patience for absent workers."""

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        return [] if isinstance(message, Pull) else [0.0]

    run = start(deliver=deliver)
    with pytest.raises(RuntimeError, match=r"the run does not end; at .* these wait: \{'w0': 'shards \[0\]', 'w1'"):
        run.run()


def test_a_watcher_sees_the_run_after_each_event(start: Start) -> None:
    seen = []
    run = start()
    run.on_event = lambda one: seen.append(one.coordinator.state.version)
    run.run()
    assert sorted(seen) == seen
    assert seen[-1] == 5


# --- messages that come twice, late or out of order ---


class Versions(Metadata):
    """Contents are the versions they show, so that a label can be compared with what was really loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, int] = {}
        self.loaded: dict[str, dict[int, int]] = {}
        self.computed_on: dict[tuple[int, int], tuple[int, ...]] = {}

    def publish(self, copy: str, version: int) -> None:
        self.shown[copy] = version

    def snapshot(self, copy: str) -> int:
        return self.shown.get(copy, 0)

    def load(self, member: str, shard: int, content: int) -> None:
        self.loaded.setdefault(member, {})[shard] = content

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        self.computed_on[effect.slot, effect.sequence] = tuple(
            version for _, version in sorted(self.loaded[member].items())
        )
        return super().compute(member, effect, seconds)


@pytest.mark.parametrize("policy", ["asp", "backup"])
def test_a_gradient_is_computed_on_the_very_versions_its_label_names(start: Start, policy: str) -> None:
    """A pull that comes twice is answered twice, and the answers may overtake each other."""
    labels = {}
    count = iter(range(10**6))

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        if isinstance(message, Announce):
            labels[sessions[message.member], message.sequence] = message.label.versions
        number = next(count)
        return [(number * 5 % 7) / 3, (number * 3 % 11) / 5] if isinstance(message, Pull | Pulled) else [0.0]

    versions = Versions()
    run = start(
        policy, workers=3, shards=2, compute_s=pace, arithmetic=versions, deliver=deliver, stop=Stop(updates=30)
    )
    sessions = {f"w{number}": number for number in range(3)}
    run.run()
    assert len(labels) >= 30
    assert all(versions.computed_on[key] == label for key, label in labels.items())


def test_a_repeated_request_to_join_makes_one_worker(start: Start) -> None:
    welcomes = []

    def deliver(_sender: Role, _to: Role, message: Any) -> list[float]:
        welcomes.extend([message] if isinstance(message, Welcome) else [])
        return [0.0, 0.5] if isinstance(message, Join) else [0.0]

    run = start(deliver=deliver)
    run.run()
    assert len(run.of_kind("joined")) == 2
    assert len(welcomes) == 4


# --- evaluations ---


def test_an_evaluation_sees_one_version_and_none_older_than_asked_for(start: Start) -> None:
    asked = []

    class Measuring(Versions):
        def evaluate(self, version: int) -> Any:
            asked.append((version, dict(self.loaded["evaluator"])))
            return super().evaluate(version)

    versions = Measuring()
    count = iter(range(10**6))
    run = start(
        "asp",
        shards=3,
        arithmetic=versions,
        stop=Stop(updates=20),
        evaluates=True,
        evaluate_every=4,
        compute_s=pace,
        deliver=lambda sender, to, message: [(next(count) * 5 % 7) / 4, (next(count) * 3 % 5) / 2],
    )
    run.run()
    assert len(run.of_kind("evaluated")) == len(asked) > 2
    assert all(version >= 4 * (number + 1) for number, (version, _) in enumerate(asked[:-1]))
    assert all(set(loaded.values()) == {version} for version, loaded in asked)
    assert asked[-1][0] == 20


def test_an_evaluation_takes_its_time_and_nobody_waits_for_it(start: Start) -> None:
    run = start(evaluates=True, evaluate_every=1, evaluation_s=2.5)
    run.run()
    assert [(one["at"], one["version"]) for one in run.of_kind("evaluated")] == [(3.5, 1), (6.0, 3), (8.5, 5)]
    assert [one["at"] for one in run.of_kind("commit")] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_target_is_reached_by_an_evaluation(start: Start) -> None:
    measured = Metadata(measure=lambda version: (1.0 / version, None))
    run = start(
        arithmetic=measured, evaluates=True, evaluate_every=1, stop=Stop(updates=100, target_loss=0.25), latency_s=0.0
    )
    assert run.run().outcome == "reached target"
    assert run.of_kind("finished")[0]["version"] == 4
