"""The bytes of a segment."""

from __future__ import annotations

from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import StoreError
from psplatform.telemetry.log.segments import START, Position, Record, decode, encode

PLACE = Position(3, 7)
STORE = "runs/a.zarr"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.fixed_dictionaries({"kind": st.text(), "at": st.floats(0, 1e6), "detail": PLAIN}), max_size=5)


def _encode(records: list[Record], position: Position = PLACE, after: Position | None = None) -> bytes:
    return encode(position, after, [msgpack.packb(record) for record in records])


def _sealed(header: object, *records: object) -> bytes:
    body = b"".join(msgpack.packb(frame) for frame in (header, *records))
    packed: bytes = body + msgpack.packb({"end": len(records), "crc32": crc32(body)})
    return packed


@given(RECORDS)
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    """Any plain records survive, in order."""
    assert decode(_encode(records), PLACE, STORE).records == tuple(records)


def test_the_first_segment_of_a_term_says_what_it_continues() -> None:
    """The continued position survives, and all other segments have none."""
    assert decode(_encode([], Position(3, 1), after=Position(2, 9)), Position(3, 1), STORE).after == Position(2, 9)
    assert decode(_encode([], Position(1, 1), after=START), Position(1, 1), STORE).after == START
    assert decode(_encode([]), PLACE, STORE).after is None


def test_the_format_is_fixed() -> None:
    """Logs written today stay readable: these bytes never change."""
    assert _encode([{"kind": "note", "at": 0.5, "text": "hi"}], Position(1, 1), START).hex() == (
        "85a6666f726d6174ae7073706c6174666f726d2d6c6f67a776657273696f6e01a47465726d01a66e756d62657201a56166746572920000"
        "83a46b696e64a46e6f7465a26174cb3fe0000000000000a474657874a26869"
        "82a3656e6401a56372633332ce2df6cc72"
    )


@given(RECORDS, st.data())
def test_a_torn_segment_is_refused(records: list[Record], data: st.DataObject) -> None:
    """Whatever is cut off the end, the error names the file and the store."""
    whole = _encode(records)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(StoreError, match=r"log/00000003-00000007\.msgpack of runs/a\.zarr is torn") as caught:
        decode(torn, PLACE, STORE)
    assert caught.value.store == STORE


@given(RECORDS, st.data())
def test_a_damaged_segment_is_refused(records: list[Record], data: st.DataObject) -> None:
    """Whichever byte changes, nothing wrong is read."""
    whole = bytearray(_encode(records))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StoreError):
        decode(bytes(whole), PLACE, STORE)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    """A file that merely bears a segment's name is no segment."""
    with pytest.raises(StoreError, match="foreign"):
        decode(data, PLACE, STORE)


@pytest.mark.parametrize("header", [{"format": "other"}, {}, [1], "psplatform-log"])
def test_a_whole_file_of_another_format_is_refused(header: object) -> None:
    """A valid checksum alone does not make a segment."""
    with pytest.raises(StoreError, match="foreign"):
        decode(_sealed(header), PLACE, STORE)


def test_a_segment_with_a_wrong_number_of_records_is_refused() -> None:
    """The end frame's count is checked as well as its checksum."""
    whole = _encode([{"kind": "note", "at": 0.0}])
    end = whole.rindex(b"\x82\xa3end")
    forged = whole[:end] + whole[end:].replace(b"\xa3end\x01", b"\xa3end\x02")
    with pytest.raises(StoreError, match="torn"):
        decode(forged, PLACE, STORE)


def test_a_newer_format_asks_for_an_upgrade() -> None:
    """An old psplatform does not guess at what a newer one wrote."""
    with pytest.raises(StoreError, match="upgrade"):
        decode(_sealed({"format": "psplatform-log", "version": 2}), PLACE, STORE)


def test_a_renamed_segment_is_refused() -> None:
    """A segment copied to another place in the log is not read there."""
    with pytest.raises(StoreError, match="another place"):
        decode(_encode([]), Position(3, 8), STORE)


def test_a_term_continues_lower_terms_only() -> None:
    """Following the chain of terms always ends."""
    with pytest.raises(StoreError, match="another place"):
        decode(_encode([], Position(3, 1), after=Position(3, 1)), Position(3, 1), STORE)


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_names_stand_for_positions(term: int, number: int) -> None:
    """A position is found again in the name made of it."""
    assert Position.of(Position(term, number).name) == Position(term, number)


@pytest.mark.parametrize("name", [".00000001-00000002.msgpack.17", "00000001-00000002.msgpack~", "zarr.json", "1-2"])
def test_other_names_stand_for_nothing(name: str) -> None:
    """Hidden temporary files and strangers in the folder are not segments."""
    assert Position.of(name) is None
