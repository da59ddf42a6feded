"""What belongs to the last checkpoint of a run is what the coordinator knew right after the last commit.

It is captured at every commit and made plain when it is wanted: whatever happens in between must not be seen in it.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import astuple
from functools import partial
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.state import State
from psplatform.core.parameters import parameters_of
from psplatform.core.plan import Cuts, Plan, Protection, Stop
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.memory.processes.losses import Supervision
from psplatform.policies.registry import make_policy, policy_names
from psplatform.replication.accounts import Account


def eager(state: State) -> dict[str, Any]:
    """Return all that a coordinator knows now as plain values of its own."""
    policy, watch, roster = state.policy, state.plan.watch, state.roster
    given = ", ".join(f"{one.name}={getattr(policy, one.name)!r}" for one in parameters_of(type(policy)))
    plain = {
        "version": state.version,
        "positions": [state.commit_log_of(shard).position for shard in range(state.plan.shards)],
        "versions": [state.commit_log_of(shard).version for shard in range(state.plan.shards)],
        "seconds": state.seconds,
        "samples_applied": state.samples_applied,
        "bad_batches": [state.bad_batches, state.samples_given_up],
        "progress": {
            "metric": watch.metric,
            "lower": watch.metric in watch.lower,
            "values": astuple(state.progress),
        },
        "roster": {
            "sequences": sorted(roster._sequences.items()),
            "incarnations": sorted(roster._incarnations.items()),
            "minimum_clock": roster.minimum_clock,
        },
        "deck": state.batch_scheduler.to_plain() if state.batch_scheduler is not None else None,
        "newest": [sorted(commit_log.newest.items()) for commit_log in state.commit_logs],
        "learner": f"{type(policy).__qualname__}({given})",
        "policy": policy.state(),
    }
    return deepcopy(plain)


class Known:
    """Compares what every coordinator has captured with what it knew right after its last commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: WeakKeyDictionary[Checkpoints, dict[str, Any]] = WeakKeyDictionary()
        self.compared = 0
        decided = Checkpoints.decided

        def decide(checkpoints: Checkpoints, entry: Any) -> None:
            self.compare()
            decided(checkpoints, entry)
            self.known[checkpoints] = eager(checkpoints._state)

        monkeypatch.setattr(Checkpoints, "decided", decide)

    def compare(self) -> None:
        for checkpoints, known in self.known.items():
            assert checkpoints._last is not None
            assert checkpoints._last.to_plain() == known
            self.compared += 1


def run_of(policy: str, seed: int) -> MemoryRun:
    """Return a run in which workers join and are lost, a server is lost, and so is the coordinator, by the seed.

    Some gradients are not finite, and every third version is measured.
    """
    random = Random(seed)
    chances = {slot: random.uniform(0.5, 1.5) for slot in range(8)}
    plan = Plan(
        run="captured",
        workers=3,
        max_workers=None,
        shards=2,
        samples=40,
        batch_size=4,
        schedule=Constant(),
        stop=Stop(updates=random.randint(20, 60)) if seed % 2 else Stop(seconds=random.uniform(5.0, 20.0)),
        deal_epochs=seed % 3 > 0,
        evaluate_every=3,
        evaluates=True,
        cuts=Cuts(every_updates=random.randint(5, 50)),
        protection=Protection(1),
    )
    run = MemoryRun(
        plan,
        make_policy(policy, {}),
        lambda slot, sequence: chances[slot % 8] * Random(f"{seed} {slot} {sequence}").uniform(0.5, 1.5),
        latency_s=0.01,
        evaluation_s=0.5,
        arithmetic=Metadata(
            lambda slot, sequence: (1.0, math.inf if (slot + sequence + seed) % 17 == 0 else 1.0),
            samples=4,
            measure=lambda version: (1.0 / (1 + version % 11), None),
        ),
        seed=seed,
        make_account=partial(Account, most_updates=3),
        supervision=Supervision(standby=True, spares=3, notice_s=0.05),
    )
    for slot in range(4):
        run.join(f"w{slot}", at=slot * random.uniform(0.0, 1.0))
    run.kill("w1", at=random.uniform(2.0, 6.0))
    run.lose_server(random.randrange(2), at=random.uniform(2.0, 6.0))
    run.kill("coordinator-1", at=random.uniform(4.0, 9.0))
    return run


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", policy_names())
def test_what_was_captured_at_a_commit_stays_what_was_known_right_after_it(
    monkeypatch: pytest.MonkeyPatch, policy: str, seed: int
) -> None:
    known = Known(monkeypatch)
    run = run_of(policy, seed)
    run.on_event = lambda _: known.compare()
    run.run()
    assert known.compared > 100
    assert len(run.leads) == 2
    last = known.known[run.coordinator.checkpoints]
    newest = [seal.state for seal in run.seals.values() if seal.version == last["version"]]
    assert newest in ([last], [])
