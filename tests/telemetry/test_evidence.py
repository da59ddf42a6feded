"""Which checkpoints a log says must be there, beside those that newer ones have replaced."""

from __future__ import annotations

import pytest

from psplatform.telemetry.log.evidence import Evidence
from psplatform.telemetry.log.segments import Record


def run(keep: int) -> Record:
    return {"kind": "run", "at": 0.0, "checkpoints": {"keep": keep}}


def sealed(number: int) -> Record:
    return {"kind": "checkpoint", "at": 0.0, "number": number, "event": "complete"}


@pytest.mark.parametrize(
    ("records", "present", "required"),
    [
        ([], [4], []),
        ([run(2), sealed(1), sealed(2), sealed(3)], [], [2, 3]),
        ([run(2), sealed(1), sealed(2), sealed(4)], [3, 4], [4]),  # 3 was sealed, and 2 removed, but that not logged
        ([run(2), sealed(1), sealed(2)], [2, 3], [2]),
        ([run(1), sealed(1), sealed(2), run(3), sealed(3)], [], [2, 3]),
        ([run(3), sealed(1), sealed(2), run(1), sealed(3)], [], [3]),
        ([{**sealed(1), "event": "failed"}], [], []),
    ],
)
def test_the_newest_that_were_kept_are_required(records: list[Record], present: list[int], required: list[int]) -> None:
    evidence = Evidence()
    evidence.take(1, records)
    assert evidence.required(present) == required


def test_what_was_sealed_before_a_gap_is_not_required() -> None:
    """What was sealed in the gap is not known, and may have replaced it."""
    evidence = Evidence()
    evidence.take(1, [run(2), sealed(1), sealed(2)])
    evidence.forget()
    evidence.take(1, [sealed(4)])
    assert evidence.required([]) == [4]


def test_a_run_that_goes_on_has_not_ended() -> None:
    evidence = Evidence()
    evidence.take(1, [run(2), {"kind": "finished", "at": 1.0}])
    assert evidence.ended == {1}
    evidence.take(2, [run(2)])
    assert max(evidence.ended) == 1
