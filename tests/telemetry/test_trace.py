"""The run times of a run out of its log: whose they are, which round they belong to, and which are only bounds."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.errors import ProtocolError
from psplatform.jobs.schedules import Constant
from psplatform.jobs.stragglers import read_trace
from psplatform.memory import MemoryRun
from psplatform.policies.registry import make_policy
from psplatform.telemetry.trace import COLUMNS, RunTime, run_times, to_csv

Record = dict[str, Any]


def start(slot: int, sequence: int, version: int, at: float) -> Record:
    return {"kind": "start", "at": at, "slot": slot, "sequence": sequence, "version": version}


def gradient(slot: int, sequence: int, label: int, seconds: float) -> Record:
    times = {"compute_s": seconds, "pull_s": 0.25, "push_s": 0.5, "wait_s": 0.125}
    return {"kind": "gradient", "at": 9.0, "slot": slot, "sequence": sequence, "label": label, **times}


def commit(version: int, at: float, *accepted: tuple[int, int], **more: Any) -> Record:
    slots, sequences = [one[0] for one in accepted], [one[1] for one in accepted]
    return {"kind": "commit", "at": at, "version": version, "slots": slots, "sequences": sequences, **more}


def aborted(slot: int, sequence: int) -> Record:
    return {"kind": "aborted", "at": 9.0, "slot": slot, "sequence": sequence}


JOINED = {"kind": "joined", "at": 0.0, "slot": 0}


def bound(slot: int, sequence: int, seconds: float, version: int) -> RunTime:
    return RunTime(slot, sequence, seconds, None, None, None, version, censored=True)


def run_in_memory(
    policy: Policy, compute_s: Callable[[int, int], float], *, workers: int = 3, updates: int = 6, shards: int = 1
) -> MemoryRun:
    plan = Plan(
        run="trace",
        workers=workers,
        shards=shards,
        samples=100,
        batch_size=4,
        stop=Stop(updates=updates),
        schedule=Constant(),
    )
    run = MemoryRun(plan, policy, compute_s)
    for number in range(workers):
        run.join(f"w{number}")
    return run


def by_slot(times: list[RunTime]) -> dict[int, list[float]]:
    return {slot: [one.seconds for one in times if one.slot == slot] for slot in {one.slot for one in times}}


# --- record by record ---


def test_a_gradient_has_the_times_its_worker_measured() -> None:
    assert run_times([start(0, 1, 4, 0.0), gradient(0, 1, 4, 2.0)]) == [RunTime(0, 1, 2.0, 0.25, 0.5, 0.125, 4)]


def test_a_gradient_counts_whatever_became_of_it() -> None:
    """One that came too late, or was not finite, has taken its time all the same."""
    dropped = {"kind": "dropped", "at": 9.0, "slot": 0, "sequence": 1, "reason": "stale"}
    assert [one.seconds for one in run_times([gradient(0, 1, 0, 2.0), dropped])] == [2.0]


def test_of_one_that_was_cut_off_the_longest_accepted_time_of_its_round_is_known() -> None:
    round_of = [start(slot, 1, 0, 0.0) for slot in range(3)]
    done = [gradient(0, 1, 0, 2.0), gradient(1, 1, 0, 3.0), commit(1, 3.5, (0, 1), (1, 1))]
    assert run_times([JOINED, *round_of, *done, aborted(2, 1)])[2] == bound(2, 1, 3.0, 0)


def test_one_that_was_ready_when_it_was_told_to_abort_was_cut_off_as_well() -> None:
    done = [start(0, 1, 0, 0.0), start(1, 1, 0, 0.0), gradient(0, 1, 0, 2.0), commit(1, 2.0, (0, 1))]
    ready = {"kind": "dropped", "at": 2.1, "slot": 1, "sequence": 1, "reason": "aborted"}
    assert run_times([JOINED, *done, ready])[1] == bound(1, 1, 2.0, 0)


def test_the_bound_is_that_of_its_own_round_although_word_of_the_abort_comes_in_the_next() -> None:
    first = [start(0, 1, 0, 0.0), start(1, 1, 0, 0.0), gradient(0, 1, 0, 2.0), commit(1, 2.0, (0, 1))]
    second = [start(0, 2, 1, 2.0), start(1, 2, 1, 2.0), gradient(0, 2, 1, 9.0), commit(2, 11.0, (0, 2))]
    found = run_times([JOINED, *first, *second, aborted(1, 1), aborted(1, 2)])
    assert [one for one in found if one.slot == 1] == [bound(1, 1, 2.0, 0), bound(1, 2, 9.0, 1)]


def test_who_began_in_mid_round_and_was_cut_off_is_left_out() -> None:
    """It is not known to be slow."""
    done = [start(0, 1, 0, 0.0), start(1, 1, 0, 1.5), gradient(0, 1, 0, 2.0), commit(1, 2.0, (0, 1)), aborted(1, 1)]
    assert [one.slot for one in run_times([JOINED, *done])] == [0]


def test_who_was_lost_while_computing_is_left_out() -> None:
    lost = {"kind": "dropped", "at": 1.0, "slot": 0, "sequence": 1, "reason": "lost"}
    assert run_times([JOINED, start(0, 1, 0, 0.0), lost]) == []


def test_nothing_is_made_up_of_a_round_that_no_commit_ended() -> None:
    assert run_times([JOINED, start(0, 1, 0, 0.0), aborted(0, 1)]) == []


def test_a_commit_of_one_block_says_nothing_of_a_whole_gradient() -> None:
    done = [start(0, 1, 0, 0.0), start(1, 1, 0, 0.0), gradient(0, 1, 0, 2.0), commit(1, 2.0, (0, 1), block=0)]
    assert [one.slot for one in run_times([JOINED, *done, aborted(1, 1)])] == [0]


def test_a_log_that_misses_its_beginning_or_a_gradient_can_be_read() -> None:
    assert run_times([commit(1, 2.0, (0, 1)), aborted(1, 1), {"kind": "of the future", "at": 0.0}]) == []


def test_a_record_without_its_fields_is_named() -> None:
    with pytest.raises(ProtocolError, match="a log record of kind 'gradient' has no field 'pull_s'"):
        run_times([{"kind": "gradient", "at": 0.0, "slot": 0, "sequence": 1}])


# --- as a file ---


def test_rows_are_numbered_from_zero_without_gaps() -> None:
    """Whatever is missing; `version` still tells the rounds apart."""
    found = [gradient(5, 7, 6, 1.5), gradient(2, 1, 0, 0.1), gradient(2, 3, 2, 0.3), gradient(5, 6, 5, 1.25)]
    rows = list(csv.DictReader(to_csv(run_times(found)).splitlines()))
    numbers = [(row["slot"], row["sequence"], row["seconds"], row["version"]) for row in rows]
    assert numbers == [("0", "0", "0.1", "0"), ("0", "1", "0.3", "2"), ("1", "0", "1.25", "5"), ("1", "1", "1.5", "6")]


def test_the_columns_are_those_that_are_promised() -> None:
    times = [RunTime(0, 1, 2.0, 0.25, 0.5, 0.125, 4), bound(1, 1, 2.0, 4)]
    heading, known, cut_off = to_csv(times).splitlines()
    assert tuple(heading.split(",")) == COLUMNS
    assert known == "0,0,2.0,0.25,0.5,0.125,4,0"
    assert cut_off == "1,0,2.0,,,,4,1"


def test_stragglers_read_a_trace_as_it_is() -> None:
    """To the last digit; columns that they do not know are ignored."""
    found = run_times([gradient(0, 1, 0, 0.1 + 0.2), gradient(0, 2, 1, 1e-7), gradient(1, 1, 0, 1 / 3)])
    assert read_trace(to_csv(found), "a run") == ((0.1 + 0.2, 1e-7), (1 / 3,))


# --- whole runs ---


def test_the_trace_of_a_run_holds_what_its_workers_took() -> None:
    run = run_in_memory(make_policy("bsp"), lambda slot, sequence: slot + sequence / 8)
    run.run()
    found = run_times(run.records)
    assert by_slot(found) == {slot: [slot + sequence / 8 for sequence in range(1, 7)] for slot in range(3)}
    assert [one.version for one in found if one.slot == 2] == list(range(6))
    assert not any(one.censored for one in found)


@pytest.mark.parametrize(
    ("policy", "options"), [("cutoff", {"predictor": "static", "c": 2}), ("backup", {"k": 2, "busy": "abort"})]
)
def test_whoever_is_cut_off_is_told_apart_from_the_others(policy: str, options: dict[str, Any]) -> None:
    """Worker 2 is never done; its rows name the time it exceeds."""
    run = run_in_memory(make_policy(policy, options), lambda slot, sequence: [1.0, 1.0 + sequence / 8, 9.0][slot])
    run.run()
    found = run_times(run.records)
    assert {one.slot for one in found if one.censored} == {2}
    cut_off = [one for one in found if one.slot == 2]
    assert [(one.version, one.seconds) for one in cut_off] == [(number, 1.0 + (number + 1) / 8) for number in range(5)]


def test_a_slot_that_was_taken_over_goes_on_with_the_newcomers_times() -> None:
    """The gradient its worker was lost with is missing, which the renumbering closes and `version` shows."""
    run = run_in_memory(make_policy("bsp"), lambda slot, sequence: 1.0 if slot else 2.0 + sequence)
    run.kill("w0", at=3.5)
    run.join("new", at=3.75)
    run.run()
    mine = [one for one in run_times(run.records) if one.slot == 0]
    assert [one.sequence for one in mine] == [1, 3, 4, 5, 6, 7]
    assert [one.seconds for one in mine] == [3.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert read_trace(to_csv(mine), "a run") == ((3.0, 5.0, 6.0, 7.0, 8.0, 9.0),)


def test_a_gradient_decided_block_by_block_is_one_row() -> None:
    run = run_in_memory(make_policy("psp"), lambda slot, sequence: 1.0 + slot, shards=3)
    run.run()
    found = run_times(run.records)
    assert len({(one.slot, one.sequence) for one in found}) == len(found) == len(run.of_kind("gradient"))
    assert {one.seconds for one in found if one.slot == 1} == {2.0}
