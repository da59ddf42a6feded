"""The event log as its digest and its picture."""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack
import pytest

from psplatform.simulation.event_trace import EventTrace

RECORDS: list[dict[str, Any]] = [
    {"kind": "run", "at": 0.0, "run": "r", "policy": "bsp"},
    {"kind": "note", "at": 1.5, "text": "something"},
]


def event_trace(records: list[dict[str, Any]], **given: Any) -> EventTrace:
    one = EventTrace(**given)
    for record in records:
        one.append(record)
    return one


def test_the_digest_is_that_of_the_packed_records() -> None:
    packed = b"".join(msgpack.packb(record) for record in RECORDS)
    assert event_trace(RECORDS).sha256 == hashlib.sha256(packed).hexdigest()
    assert event_trace([]).sha256 == hashlib.sha256().hexdigest()


def test_any_change_of_the_log_changes_the_digest() -> None:
    others = [RECORDS[:1], RECORDS[::-1], [RECORDS[0], {**RECORDS[1], "at": 1.5000001}]]
    assert len({event_trace(one).sha256 for one in [RECORDS, *others]}) == 4


@pytest.mark.parametrize("keep", [False, True])
def test_records_are_folded_at_once_and_kept_only_where_that_is_asked_for(*, keep: bool) -> None:
    one = event_trace(RECORDS, keep=keep)
    assert one.view.run == {"run": "r", "policy": "bsp"}
    assert one.view.seconds == 1.5
    assert one.records == (RECORDS if keep else [])
