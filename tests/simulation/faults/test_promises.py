"""What each policy promises about how many take part is read from a log, and a broken promise is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol.messages import BatchAssignment, Label
from psplatform.errors import InvariantViolation
from psplatform.jobs.schedules import Constant
from psplatform.policies.registry import make_policy
from psplatform.simulation.faults.checks.histories import History
from psplatform.simulation.faults.checks.participation import ADOPTED, Case
from psplatform.simulation.faults.checks.promises import (
    check_batches_once,
    check_handed_over,
    check_lost_versions,
    check_names,
    check_promises,
    check_told_losses,
)

Log = list[dict[str, Any]]


def joined(*slots: int) -> Log:
    return [{"kind": "joined", "slot": slot} for slot in slots]


def lost(slot: int) -> Log:
    return [{"kind": "lost", "slot": slot, "reason": "killed"}]


def start(slot: int, sequence: int, version: int) -> Log:
    return [{"kind": "start", "slot": slot, "sequence": sequence, "version": version, "clock": 0, "min_clock": 0}]


def commit(position: int, *gradients: tuple[int, int], reason: str = "all live workers are in") -> Log:
    slots, sequences = zip(*gradients, strict=True)
    record = {"kind": "commit", "position": position, "version": position, "block": 0, "reason": reason}
    return [record | {"slots": list(slots), "sequences": list(sequences), "staleness": [0] * len(slots)}]


def check(policy: str, log: Log, workers: int = 2, **parameters: Any) -> None:
    plan = Plan("r", workers, 3, samples=8, batch_size=2, stop=Stop(updates=1), schedule=Constant())
    check_promises(policy, Case(make_policy(policy, parameters), plan, log))


def broken(policy: str, log: Log, match: str, **parameters: Any) -> None:
    with pytest.raises(InvariantViolation, match=rf"S6 is violated: .*{match}"):
        check(policy, log, **parameters)


def test_a_round_of_bsp_has_a_gradient_of_everybody_who_lives() -> None:
    check("bsp", [*joined(0, 1), *commit(1, (0, 1), (1, 1))])
    check("bsp", [*joined(0, 1), *lost(1), *commit(1, (0, 1))])
    check("bsp", [*joined(0, 1), *commit(1, (0, 1), reason=ADOPTED)])
    broken("bsp", [*joined(0, 1), *commit(1, (0, 1))], r"lacks a gradient of \[1\]")


def test_a_round_with_backup_workers_has_k_or_everybody_who_lives_and_never_more() -> None:
    check("backup", [*joined(0, 1, 2), *commit(1, (0, 1), (1, 1))], workers=3)
    check("backup", [*joined(0, 1, 2), *lost(1), *lost(2), *commit(1, (0, 1))], workers=3)
    broken("backup", [*joined(0, 1, 2), *commit(1, (0, 1))], "lacks a gradient", workers=3)
    broken("backup", [*joined(0, 1, 2), *commit(1, (0, 1), (1, 1), (2, 1))], "k is 2", workers=3)


def test_a_chosen_number_is_undercut_only_when_nobody_else_can_contribute() -> None:
    alone = "1 of k = 2 are in: no other live worker can contribute"
    check("dbw", [*joined(0, 1), *commit(1, (0, 1), reason="k = 1 of 2: the most per second")])
    check("dbw", [*joined(0, 1), *lost(1), *commit(1, (0, 1), reason=alone)])
    broken("dbw", [*joined(0, 1), *commit(1, (0, 1), reason=alone)], "lacks a gradient")


def test_a_merge_of_psp_has_gradients_of_one_count_as_many_as_promised_and_one_of_each() -> None:
    begun = [*joined(0, 1), *start(0, 1, 0), *start(1, 1, 0), *start(0, 2, 1), *start(1, 2, 1)]
    check("psp", [*begun, *commit(1, (0, 1), (1, 1)), *commit(2, (0, 2), (1, 2))], push=2)
    check("psp", [*begun, *lost(1), *commit(1, (0, 1))], push=2)
    broken("psp", [*begun, *commit(1, (0, 1))], "2 are the least and 2 workers live", push=2)
    broken("psp", [*begun, *commit(1, (0, 2), (1, 1))], "of counts", push=2)
    broken("psp", [*begun, *commit(1, (0, 1), (0, 1))], "merges", push=1)
    again = [*joined(0, 1), *start(0, 1, 0), *start(0, 2, 0), *start(1, 1, 0)]
    broken("psp", [*again, *commit(1, (0, 1), (0, 2), (1, 1))], "merges", push=2)
    replaced = [*joined(0, 1), *start(0, 1, 0), *start(1, 1, 0), *lost(0), *joined(0), *start(0, 2, 0)]
    check("psp", [*replaced, *commit(1, (0, 1), (0, 2), (1, 1))], push=2)


def test_a_pull_of_psp_refreshes_its_share_and_the_first_one_everything() -> None:
    def pulled(slot: int, fresh: int) -> Log:
        return [{"kind": "gradient", "slot": slot, "sequence": 1, "fresh_blocks": fresh}]

    check("psp", [*joined(0), *pulled(0, 3), *pulled(0, 2)], pull=0.5)
    broken("psp", [*joined(0), *pulled(0, 2)], "refreshed 2 of 3 blocks, not 3", pull=0.5)
    broken("psp", [*joined(0), *pulled(0, 3), *pulled(0, 1)], "refreshed 1 of 3 blocks, not 2", pull=0.5)
    broken("psp", [*joined(0), *pulled(0, 3), *lost(0), *joined(0), *pulled(0, 2)], "not 3", pull=0.5)


def pushes(first: int, *slots: int) -> Log:
    log: Log = []
    for number, slot in enumerate(slots):
        log += commit(first + number, (slot, first + number), reason="applied at once")
    return log


def test_nobody_in_elastic_bsp_pushes_more_often_than_predicted_before_the_barrier() -> None:
    monitored = [*joined(0, 1), *pushes(1, 0, 0, 0, 1, 1)]  # decided with the last of these
    barrier = commit(8, (0, 8), (1, 8), reason="all are at the barrier")
    check("elastic-bsp", [*monitored, *pushes(6, 0, 1), *barrier], lookahead=2)
    broken("elastic-bsp", [*monitored, *pushes(6, 0, 0), *barrier], "more than 2 times", lookahead=2)
    check("elastic-bsp", [*monitored, *lost(0), *joined(0), *pushes(6, 0, 0), *barrier], lookahead=2)
    again = [*pushes(9, 0, 0, 0, 0)]  # monitored anew, for as long as it takes
    check("elastic-bsp", [*monitored, *pushes(6, 0, 1), *barrier, *again], lookahead=2)


def applied(epoch: int, *gradients: tuple[int, int], shard: int = 0) -> History:
    """Return what is true of a copy that has applied those gradients, one at a position."""
    nothing = np.zeros(1)
    lineage = {key: position for position, key in enumerate(gradients, 1)}
    return History(shard, epoch, nothing, nothing, 0, len(gradients), lineage=lineage)


def test_nothing_is_lost_with_a_server_that_has_handed_over_but_what_was_lost_before() -> None:
    before = {"kind": "lost positions", "shard": 0, "epoch": 2, "first": 3, "last": 4}
    check_handed_over([before, before | {"epoch": 3}], {(0, 3)}, [])
    with pytest.raises(InvariantViolation, match=r"S5 is violated: positions \[5\] of shard 0 are lost"):
        check_handed_over([before, before | {"epoch": 3, "last": 5}], {(0, 3)}, [])


def test_what_an_earlier_server_had_applied_may_be_gone_when_the_one_that_hands_over_has_not_come_to_it() -> None:
    """Under whatever position the next coordinator had put it."""
    lost = {"kind": "lost positions", "shard": 0, "epoch": 3, "first": 2, "last": 2}
    records, first, killed = [*commit(2, (1, 3)), lost], (0, 1), applied(1, (0, 1), (0, 2), (1, 3))
    check_handed_over(records, {(0, 3)}, [killed, applied(2, first)])
    for histories in (
        [killed, applied(2, first, (1, 3))],  # the one that has handed over had it
        [applied(1, first), applied(2, first)],  # nobody had it
        [applied(1, first, (1, 3), shard=1), applied(2, first)],  # on another shard
        [applied(3, first, (1, 3)), applied(2, first)],  # later
    ):
        with pytest.raises(InvariantViolation, match=r"positions \[2\] of shard 0 are lost"):
            check_handed_over(records, {(0, 3)}, histories)


def test_what_was_lost_of_one_block_is_held_against_the_commits_of_that_block() -> None:
    lost = {"kind": "lost positions", "shard": 1, "epoch": 3, "first": 2, "last": 2}
    blocks = [one | {"block": block} for block, key in ((0, (0, 9)), (1, (1, 3))) for one in commit(2, key)]
    check_handed_over([*blocks, lost], {(1, 3)}, [applied(1, (1, 3), shard=1)])
    with pytest.raises(InvariantViolation, match=r"positions \[2\] of shard 1 are lost"):
        check_handed_over([*blocks, lost], {(1, 3)}, [applied(1, (0, 9), shard=1)])


def test_no_process_is_released_for_a_gradient_of_the_one_before_it_that_was_committed() -> None:
    again = {"kind": "joined", "slot": 1, "incarnation": 2}
    first = [{"kind": "joined", "slot": 1, "incarnation": 1}, *start(1, 1, 0), *commit(1, (1, 1)), *start(1, 1, 0)]
    check_names([*first, again, *start(1, 2, 1)])
    check_names(commit(1, (1, 1)))  # of a process that only a lost coordinator had welcomed
    with pytest.raises(InvariantViolation, match=r"S1 is violated: gradient \(1, 1\) was committed, and another"):
        check_names([*first, again, *start(1, 1, 1)])


def test_no_more_is_told_to_be_lost_than_the_bound_allows() -> None:
    def promoted(**found: Any) -> Log:
        one = {"kind": "promoted", "shard": 0, "epoch": 2, "updates_lost": 3, "distance_lost": 0.5, "bound": 4.0}
        return [one | {"unit": "updates"} | found]

    check_told_losses([*promoted(), *promoted(bound=None, unit=None), *promoted(unit="norm", bound=0.5)])
    check_told_losses(promoted(unit="norm", bound=0.5, distance_lost=None))
    with pytest.raises(InvariantViolation, match=r"S5 is violated: epoch 2 tells that 5 updates were lost"):
        check_told_losses(promoted(updates_lost=5))
    with pytest.raises(InvariantViolation, match=r"0\.6 norm were lost with the server of shard 0; the bound is 0\.5"):
        check_told_losses(promoted(unit="norm", bound=0.5, distance_lost=0.6))


def of_the_model(log: Log) -> Log:
    """Return the log of a run whose commits are of the whole model, not of a block each."""
    return [{name: value for name, value in one.items() if name != "block"} for one in log]


def test_no_batch_of_an_epoch_is_applied_as_two_gradients() -> None:
    log = of_the_model([*commit(1, (0, 1)), *commit(2, (1, 1))])
    check_batches_once(log, {(0, 1): BatchAssignment(0, 1), (1, 1): BatchAssignment(1, 1)})
    with pytest.raises(InvariantViolation, match=r"S9 is violated: .* as gradient \(0, 1\) and as \(1, 1\)"):
        check_batches_once(log, {(0, 1): BatchAssignment(0, 1), (1, 1): BatchAssignment(0, 1)})


def test_a_gradient_of_a_lost_version_counts_as_one_of_what_was_left() -> None:
    lost_third: Log = [{"kind": "lost positions", "shard": 0, "epoch": 2, "first": 3, "last": 3}]
    first = [one for at in (1, 2, 3) for one in commit(at, (0, at))]
    log = of_the_model([*first, *lost_third, *commit(4, (1, 1))])
    check_lost_versions(log, {(1, 1): Label((3,), (2,))})  # the new server has told of its version 3
    with pytest.raises(InvariantViolation, match=r"gradient \(1, 1\) of a lost version has staleness 0"):
        check_lost_versions(log, {(1, 1): Label((3,), (1,))})
    log[-1]["staleness"] = [1]
    check_lost_versions(log, {(1, 1): Label((3,), (1,))})
