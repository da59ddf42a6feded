from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from psplatform.core.coordination.invariants import Invariants
from psplatform.core.coordination.state import State
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.core.protocol.messages import Commit
from psplatform.core.shards.server import Server
from psplatform.errors import InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.policies.registry import make_policy, policy_names


def checked_run(policy: Policy, seed: int, spoil: Callable[[MemoryRun], None] = lambda run: None) -> None:
    """Run with kills, joins and delayed, doubled messages, and check the invariants after every event."""
    dice = random.Random(seed)
    plan = Plan("invariants", workers=4, shards=3, samples=96, batch_size=4, stop=Stop(updates=40), schedule=Constant())
    run = MemoryRun(
        plan,
        policy,
        lambda slot, sequence: dice.uniform(0.5, 2.0),
        deliver=lambda sender, to, message: [dice.uniform(0, 0.3) for _ in range(dice.choice((1, 1, 2)))],
    )
    for number in range(4):
        run.join(f"w{number}")
    run.kill("w1", dice.uniform(1, 6))
    run.join("w4", dice.uniform(3, 9))
    run.kill("w0", dice.uniform(4, 12))
    invariants = Invariants()

    def check(now: MemoryRun) -> None:
        spoil(now)
        invariants.check(now.coordinator.state, now.servers, now.records)

    run.on_event = check
    run.run()


@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize("seed", range(5))
def test_hold_after_every_event_under_every_policy(name: str, seed: int) -> None:
    """Whatever dies, joins, comes late or comes twice."""
    checked_run(make_policy(name), seed)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("tally", lambda run: setattr(run.coordinator.state.roster, "busy", 99)),
        ("S3", lambda run: setattr(run.servers[1], "position", 39)),
        ("S10", lambda run: setattr(run.servers[2], "term", 7)),
        ("S9", lambda run: run.servers[0].applied.update({0: 10**6})),
    ],
)
def test_a_state_that_must_not_be_is_named(name: str, spoil: Callable[[MemoryRun], None]) -> None:
    """The checker names the invariant that a spoilt state violates."""
    with pytest.raises(InvariantViolation, match=name):
        checked_run(make_policy("asp"), 0, spoil)


def test_a_gradient_in_two_commits_is_noticed() -> None:
    """S1 is read off the log."""
    record = {"kind": "commit", "versions": 1, "slots": [0], "sequences": [1], "staleness": [0]}
    records = [{**record, "position": 1, "version": 1}, {**record, "position": 2, "version": 2}]
    plan = Plan("twice", workers=1, shards=1, samples=1, batch_size=1, stop=Stop(updates=2), schedule=Constant())
    with pytest.raises(InvariantViolation, match="S1"):
        Invariants().check(State(plan, make_policy("asp"), 1), [], records)


def test_a_server_that_forgets_what_it_applied_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its dedupe table a server no longer stands at a prefix of the order."""
    original = Server.handle

    def forgetful(server: Server, event: object, now: float) -> object:
        if isinstance(event, Commit) and event.position == 5:
            server.applied.clear()
        return original(server, event, now)

    monkeypatch.setattr(Server, "handle", forgetful)
    with pytest.raises(InvariantViolation, match="S9"):
        checked_run(make_policy("asp"), 0)
