"""What a run in memory can be given of the costs of real processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.protocol.effects import Gather
from psplatform.core.protocol.messages import Contribution
from psplatform.errors import InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.world import Ideal
from psplatform.policies.registry import make_policy
from psplatform.replication.accounts import Account


@dataclass(frozen=True, slots=True)
class Costly(Ideal):
    """A world in which what was sent before takes a second, and some parameters are written over."""

    def again_s(self, sender: str, shard: int) -> float:
        return 1.0

    def is_overwritten(self, member: str, sequence: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Overwriting(Ideal):
    """A world in which the parameters of every third gradient are written over once."""

    def __post_init__(self) -> None:
        _OVERWRITTEN.clear()

    def is_overwritten(self, member: str, sequence: int) -> bool:
        if sequence % 3 or (member, sequence) in _OVERWRITTEN:
            return False
        _OVERWRITTEN.add((member, sequence))
        return True


_OVERWRITTEN: set[tuple[str, int]] = set()


def pace(slot: int, sequence: int) -> float:
    return 1.0 + slot / 10


def run_of(world: Ideal, *, closes: bool = False) -> MemoryRun:
    plan = Plan(
        run="r",
        workers=2,
        shards=1,
        stop=Stop(updates=12),
        schedule=Constant(),
        samples=100,
        batch_size=4,
        protection=Protection(1, 4.0, "updates", 4.0),
    )
    run = MemoryRun(
        plan,
        make_policy("asp", None),
        world=world,
        make_account=lambda: Account(most_distance=float("inf"), most_updates=4.0),
        supervision=Supervision(standby=True, spares=2, closes=closes),
    )
    for number in range(2):
        run.join(f"w{number}")
    return run


def test_a_promoted_server_waits_for_what_was_sent_to_the_one_before() -> None:
    def seconds(world: Ideal) -> float:
        run = run_of(world)
        run.lose_server(0, at=3.05)
        assert run.run().outcome == "updates"
        return run.agenda.now

    assert seconds(Costly(pace)) > seconds(Ideal(pace)) + 0.3


def test_what_is_still_on_its_way_cannot_be_gathered() -> None:
    run = run_of(Costly(pace))
    state: Any = run.copies["server-0"].state
    gather = Gather(1, (Contribution(0, 1, "w0"),), norms=False)
    assert state.has_all(gather)
    state._served_at = run.agenda.now
    assert not state.has_all(gather)
    with pytest.raises(InvariantViolation, match="though its gradients are on their way"):
        state.gather(gather)
    there: list[float] = []
    state.when_there(gather, lambda: there.append(run.agenda.now))
    while not there:
        run.agenda.do_next()
    assert there == [1.0]
    assert state.has_all(gather)


def test_a_gradient_whose_parameters_were_written_over_is_computed_again() -> None:
    run = run_of(Overwriting(pace))
    assert run.run().outcome == "updates"
    assert _OVERWRITTEN
    applied = {pair for one in run.of_kind("commit") for pair in zip(one["slots"], one["sequences"], strict=True)}
    assert {sequence for _, sequence in applied if sequence % 3 == 0}


@pytest.mark.parametrize("closes", [False, True])
def test_a_copy_that_is_let_go_of_is_closed_where_the_run_says_so(*, closes: bool) -> None:
    run = run_of(Ideal(pace), closes=closes)
    lead, copy = run.leads[-1], "replica-0-0"
    run.retire(lead, copy)
    run.agenda.do_next()
    while not run.copies[copy].closed and run.agenda.now <= 0.0:
        run.agenda.do_next()
    assert run.copies[copy].closed is closes


def test_servers_drop_what_a_lost_worker_has_exposed() -> None:
    run, held = run_of(Ideal(pace)), dict[int, set[str]]()

    def look(run: MemoryRun) -> None:
        held[int(run.agenda.now)] = run.copies["server-0"].state.held

    run.on_event = look
    run.kill("w0", at=4.1)
    run.run()
    assert held[3] == {"w0", "w1"}
    assert held[6] == {"w1"}
