"""What a run must never do is noticed when it is done: each check, held against a run that has just ended well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Compute, Gather, Send, Transmit
from psplatform.core.protocol.messages import BatchAssignment
from psplatform.core.protocol.names import Role
from psplatform.core.shards.server import Server
from psplatform.errors import InvariantViolation
from psplatform.memory.processes.losses import Supervision
from psplatform.simulation.faults.checks.distance import Distances
from psplatform.simulation.faults.checks.histories import Base
from psplatform.simulation.faults.checks.promises import check_batches, check_order
from psplatform.simulation.faults.checks.replacement import Replacement
from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.trial import Copying
from psplatform.simulation.threads import one_thread

COPYING = Copying(1, 2.0, "updates", pause=True)


def ended(**fields: Any) -> Execution:
    """Return a run of two shards and two workers, after its end."""
    trial = replace(draw(3), policy="bsp", parameters={}, workers=2, shards=2, faults=(), late=(), hosts=0)
    execution = Execution(replace(trial, **{"fabric": False, "copying": COPYING, "shared": False, **fields}))
    assert not execution.to_its_end().invariant
    return execution


@pytest.fixture(scope="module")
def run() -> Iterator[Execution]:
    with one_thread():
        yield ended(epochs=True)


def broken(name: str, found: str) -> Any:
    return pytest.raises(InvariantViolation, match=f"{name} is violated: .*{found}")


# --- what servers do ---


def handled(run: Execution, event: Any, *effects: Any) -> None:
    run.observation.on_handled(run.run.servers[0].name, event, list(effects))


def test_a_server_that_was_given_up_hears_nothing(run: Execution) -> None:
    node = run.run.copies[run.run.servers[0].name]
    node.closed = True
    with broken("S4", "was given up and goes on"):
        handled(run, msg.Exclude(1, 1, "nobody"))
    node.closed = False


def test_a_pull_is_answered_with_what_it_asked_for(run: Execution) -> None:
    server = run.run.servers[0]
    answer = Send(Role.member("w"), msg.Pulled(0, 1, server.version, server.epoch, 1))
    handled(run, msg.Pull("w", 0, 1, server.version), answer)
    with broken("S6", "it has asked for"):
        handled(run, msg.Pull("w", 0, 1, server.version + 1), answer)


def test_a_server_answers_nothing_before_it_serves(run: Execution) -> None:
    server = run.run.servers[0]
    with broken("S4", "before it serves"):
        handled(run, msg.Exclude(1, 1, "nobody"), Send(Role.member("w"), msg.Pulled(0, 1, 1, server.epoch + 1, 1)))
    said = msg.ServerState(0, server.name, 1, server.epoch + 1, True, server.position, ())
    with broken("S4", "says that it serves"):
        handled(run, msg.Exclude(1, 1, "nobody"), Send(Role("coordinator", "1"), said))


def test_transfers_to_a_replica_go_one_after_the_other(run: Execution) -> None:
    def transfer(number: int) -> Transmit:
        return Transmit("r", msg.Transfer("s", 0, server.epoch, number, msg.STATE, 1, 1, 1.0, ()))

    server, nothing = run.run.servers[0], msg.Exclude(1, 1, "nobody")
    handled(run, nothing, transfer(1))
    handled(run, msg.Replicated(0, "r", server.epoch, 1, 1), transfer(2))
    handled(run, msg.Exclude(1, 1, "r"))
    handled(run, nothing, transfer(3))
    with broken("S3", "while another is under way"):
        handled(run, nothing, transfer(4))


def test_nothing_is_computed_before_a_checkpoint_s_part_is_captured(run: Execution) -> None:
    server, gather = run.run.servers[0], Gather(9, (), norms=False)
    handled(run, msg.Exclude(1, 1, "nobody"), gather)
    server._sending.cut = 5
    with broken("S7", "before what is there was captured"):
        handled(run, msg.Exclude(1, 1, "nobody"), gather)
    server._sending.cut = 0


def test_who_obeys_another_coordinator_forgets_what_the_one_before_has_ordered(run: Execution) -> None:
    server = run.run.servers[0]
    server._applying._pending[99] = msg.Commit(server.term - 1, server.epoch, 99, 99, (), 1.0)
    with broken("S10", r"keeps positions \[99\] of a lower one"):
        handled(run, msg.StateRequest(server.term))
    server._applying._pending.clear()


# --- what coordinators do ---


def test_a_coordinator_gives_no_lease_when_its_own_is_over(run: Execution) -> None:
    lead = run.run.leads[-1]
    lease = Send(Role.copy("server-0"), msg.Lease(1, 0.0, 1.0))
    lead.lead._entitlements.clear()
    run.observation.on_handled(lead.name, msg.Beat("server-0", 0.0), [lease])
    lead.lead._entitlements[7] = run.run.agenda.now - 1.0
    with broken("S4", "gives a lease, its own was over"):
        run.observation.on_handled(lead.name, msg.Beat("server-0", 0.0), [lease])
    del lead.lead._entitlements[7]


def test_a_checkpoint_s_number_stands_for_one_position_of_each_shard(run: Execution) -> None:
    lead, name = run.run.leads[-1], run.run.servers[0].name
    for position in (3, 3):
        run.observation.on_handled(lead.name, None, [Send(Role.copy(name), msg.Cut(1, 1, 77, position))])
    with broken("S7", "checkpoint 77 is to have shard 0 at 3 and 4"):
        run.observation.on_handled(lead.name, None, [Send(Role.copy(name), msg.Cut(1, 1, 77, 4))])


# --- what is computed ---


def test_a_copy_s_name_is_used_once(run: Execution) -> None:
    with broken("S12", "is made a second time"):
        run.reference.open_copy(run.run.servers[0].name, 0)


def test_a_gradient_is_computed_once(run: Execution) -> None:
    member, sequence = next(iter(run.reference._gradients))
    with broken("S1", "a second time"):
        run.reference.compute(member, Compute(0, sequence, None), 1.0)


def test_an_exact_gradient_is_of_one_version(run: Execution) -> None:
    member, _ = next(iter(run.reference._gradients))
    contents = run.reference._pulled[member]
    contents[0].version += 1
    with broken("S6", "on versions"):
        run.reference.compute(member, Compute(0, 999, None), 1.0)
    contents[0].version -= 1


# --- at the end ---


def test_every_batch_that_was_dealt_was_applied_or_can_be_dealt_again() -> None:
    with one_thread():
        run = ended(epochs=True)
    check_batches(run.run, run.reference)
    name = next(name for name, dealt in run.reference.dealt.items() if BatchAssignment(0, 0) in dealt)
    run.reference.dealt[name].clear()
    with broken("S9", r"batch \(0, 0\) was dealt"):
        check_batches(run.run, run.reference)


def test_a_commit_has_a_gradient_once() -> None:
    commit = {"kind": "commit", "position": 1, "version": 1, "versions": 1, "slots": [0, 0], "sequences": [1, 1]}
    with broken("S1", "has a gradient twice"):
        check_order([{**commit, "staleness": [0, 0]}])


def test_a_run_that_is_over_decides_nothing(run: Execution) -> None:
    decided = run.run.agenda.now
    run.run.agenda.enter(1.0, run.run.records.append, {"kind": "commit", "position": 99})
    with broken("S10", "the run is over"):
        run._check_after_the_end()
    assert run.run.agenda.now > decided
    run.run.records.pop()


# --- where roles are, and how far servers go ---


def test_a_promoted_server_that_waits_for_a_replica_goes_no_further_than_the_bound(run: Execution) -> None:
    distances = Distances(run.run, run.reference, COPYING)
    part = Server(0, epoch=2, name="promoted")
    history = run.reference.histories[run.run.servers[0].name]
    run.reference.bases[0, 2] = Base(history.front, history.applied_visible - 2, 0)
    distances._check_alone("promoted", history, part)
    run.reference.bases[0, 2] = Base(history.front, history.applied_visible - 3, 0)
    with broken("S2", "goes on for 0 without any replica; the bound is 2 updates"):
        distances._check_alone("promoted", history, part)
    Distances(run.run, run.reference, replace(COPYING, pause=False))._check_alone("promoted", history, part)
    del run.reference.bases[0, 2]


class Placed:
    """Two gradient workers and an evaluator in processes, one of which has a copy of the shard."""

    def __init__(self) -> None:
        self.of = {"a": "x", "b": "y", "c": "x", "copy": "z", "lead": "home", "d": "z", "one": "w", "two": "z"}
        self.now = 0.0
        shards = [SimpleNamespace(copies=["copy"])]
        self.members = set("abcd")
        roster = SimpleNamespace(members=lambda: [SimpleNamespace(name=one) for one in self.members])
        lead = SimpleNamespace(coordinator=SimpleNamespace(state=SimpleNamespace(roster=roster)))
        run: Any = SimpleNamespace(
            plan=SimpleNamespace(workers=2),
            workers=SimpleNamespace(nodes=dict.fromkeys("abcd")),
            evaluators={"one", "two"},
            supervision=Supervision(),
            coordinator=SimpleNamespace(state=SimpleNamespace(shards=shards)),
            processes=SimpleNamespace(of=self.of.__getitem__, dead={"w"}),
            retirements=SimpleNamespace(began=lambda address: False),
            leads=[SimpleNamespace(name="lead", lead=lead)],
        )
        self.check = Replacement(run, SimpleNamespace(has_nanny=lambda address: True), 2)  # type: ignore[arg-type]


def test_gradient_workers_are_as_many_as_allowed_and_one_in_a_process() -> None:
    check = Placed().check
    check._check_number(frozenset("ab"))
    with broken("S13", "the job allows 2"):
        check._check_number(frozenset("abc"))
    check._check_places(frozenset("ab"), 0.0)
    with broken("S13", "share x"):
        check._check_places(frozenset("ac"), 1.0)


def test_a_gradient_worker_goes_beside_a_copy_when_there_has_been_nothing_else_for_long() -> None:
    check = Placed().check
    check._check_places(frozenset("ab"), 0.5)
    check._check_places(frozenset("ab"), 1.0)
    check._check_places(frozenset("ad"), 6.0)
    check = Placed().check
    check._check_places(frozenset("ab"), 0.5)
    check._check_places(frozenset("ab"), 1.0)
    with broken("S13", "d shares z with a copy of a shard"):
        check._check_places(frozenset("ad"), 4.0)
    placed = Placed()
    placed.members = {"a"}
    placed.check._check_places(frozenset("ab"), 0.5)
    placed.check._check_places(frozenset("ab"), 1.0)
    placed.check._check_places(frozenset("ad"), 4.0)
    check = Placed().check
    check._check_places(frozenset("a"), 0.0)
    check._since["y", False] = 1.0
    with broken("S13", r"free are \['y'\]"):
        check._check_places(frozenset("ad"), 6.0)


def test_a_gradient_worker_goes_where_it_was_to_go_when_it_was_named() -> None:
    """What is free, or made, until it is given its process could not be known."""

    def made(free_at: float) -> None:
        placed = Placed()
        check, nodes = placed.check, placed.check._run.workers.nodes
        del nodes["d"]
        check._check_places(frozenset("a"), 0.5)
        if free_at < 6.0:
            check._since["y", False] = free_at
        check._check_places(frozenset("ad"), 6.0)
        check._since["y", False] = free_at
        check._check_places(frozenset("abd"), 9.0)
        check._check_places(frozenset("abd"), 9.5)
        nodes["d"] = None
        check._check_places(frozenset("abd"), 10.0)

    made(7.0)
    with broken("S13", r"d shares z with a copy of a shard, free are \['y'\]"):
        made(2.0)


def test_a_copy_that_comes_beside_a_gradient_worker_that_was_named_is_not_held_against_it() -> None:
    placed = Placed()
    check, nodes = placed.check, placed.check._run.workers.nodes
    del nodes["d"]
    placed.of["copy"] = "home"
    check._check_places(frozenset("ab"), 0.5)
    check._check_places(frozenset("ab"), 1.0)
    check._check_places(frozenset("ad"), 2.0)
    placed.of["copy"] = "z"
    check._check_places(frozenset("ad"), 3.0)
    nodes["d"] = None
    check._check_places(frozenset("ad"), 5.9)


def test_an_evaluator_that_killed_its_process_is_made_later_and_apart_from_servers() -> None:
    def made(at: float) -> None:
        check = Placed().check
        check._check_evaluator("one", 0.0)
        check._check_evaluator("", 1.0)
        check._check_evaluator("two", at)

    made(8.0)
    with broken("S13", "two is made 0.50 s after another was lost"):
        made(1.5)
    with broken("S13", "beside a server"):
        made(4.0)
