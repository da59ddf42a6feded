"""The bytes of one segment of the event log: a header frame, one frame per record, an end frame.

::

    {format: "psplatform-log", version: 1, term, number, after: [term, number]}     after: in a term's first segment
    {kind, at, ...}                                                                 any number of records
    {end: number of records, crc32: of all bytes before this frame}

Frames are msgpack.  Nothing is decoded that the checksum does not vouch for.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import msgpack

from psplatform.errors import StoreError
from psplatform.untrusted.checks import are_counts, is_count

Record = dict[str, Any]

FORMAT: Final = "psplatform-log"
VERSION: Final = 1
_NAME: Final = re.compile(r"([0-9]{8,15})-([0-9]{8,15})\.msgpack")
_MOST: Final = 10**15 - 1
_MOST_PARTS: Final = 1 << 20
"""Values in one list or map of a record, and far more than any has; each asks for memory before it is read."""
_ARRAY: Final = struct.Struct(">BI")  # the head of a msgpack array
_END: Final = msgpack.packb({"end": 0, "crc32": 0})[:5]  # how the end frame begins: a map of two, first key "end"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A segment of the log, and so a place in it: everything up to the end of that segment.

    Attributes
    ----------
    term
        Term of the coordinator that wrote it.
    number
        Counts the segments of a term from 1 without gaps.
    """

    term: int
    number: int

    @property
    def name(self) -> str:
        """Name of the segment's file; names sort as positions do."""
        return f"{self.term:08d}-{self.number:08d}.msgpack"

    @classmethod
    def of(cls, name: str) -> Position | None:
        """Return the position a file's name stands for, ``None`` for a file that is not a segment."""
        match = _NAME.fullmatch(name)
        found = cls(int(match[1]), int(match[2])) if match else None
        return found if found is not None and found.name == name else None


START: Final = Position(0, 0)
"""Before the first record."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A decoded segment; `after` is what a term's first segment continues, ``None`` in all others."""

    after: Position | None
    records: tuple[Record, ...]


def encode(position: Position, after: Position | None, frames: Iterable[bytes]) -> bytes:
    """Return the bytes of a segment whose records are already packed, one frame each."""
    header: Record = {"format": FORMAT, "version": VERSION, "term": position.term, "number": position.number}
    if after is not None:
        header["after"] = [after.term, after.number]
    frames = list(frames)
    body = msgpack.packb(header) + b"".join(frames)
    packed: bytes = body + msgpack.packb({"end": len(frames), "crc32": crc32(body)})
    return packed


def decode(data: bytes, position: Position, store: str) -> Segment:
    """Return what the segment at `position` of `store` holds.

    Raises
    ------
    StoreError
        If the bytes are torn, foreign or of a newer format; the message names the file.
    """
    file = f"log/{position.name} of {store}"
    frames = _verified_frames(data)
    if not frames or not isinstance(frames[0], dict) or frames[0].get("format") != FORMAT:
        raise StoreError(f"{file} is torn, damaged or foreign; restore it or move the log folder away", store=store)
    header, *records = frames
    version, follows = header.get("version"), header.get("after")
    if is_count(version) and version > VERSION:
        raise StoreError(f"{file} was written by a newer psplatform; upgrade to read it", store=store)
    if not is_count(version) or not (follows is None or (are_counts(follows, _MOST) and len(follows) == 2)):
        raise StoreError(f"{file} is torn, damaged or foreign; restore it or move the log folder away", store=store)
    after = Position(*follows) if follows is not None else None
    in_place = (header.get("term"), header.get("number")) == (position.term, position.number)
    if not in_place or (after is not None and after.term >= position.term):
        raise StoreError(f"{file} belongs to another place in the log; give it its own name back", store=store)
    return Segment(after, tuple(records))


def is_torn(data: bytes) -> bool:
    """Whether these bytes are no whole segment: cut off, changed, or none at all."""
    return not _verified_frames(data)


def _verified_frames(data: bytes) -> list[Any]:
    """Return the frames before the end frame, or nothing where its count or checksum are not theirs."""
    cut = data.rfind(_END)
    try:
        end = msgpack.unpackb(data[cut:]) if cut > 0 else None
    except (ValueError, TypeError):
        return []
    body = data[:cut]
    if not isinstance(end, dict) or end.get("crc32") != crc32(body):
        return []
    # No frame is shorter than two bytes, so that a count that is far too large is none.
    if not is_count(end.get("end"), len(body) // 2):
        return []
    try:
        # As one array, which is unpacked in one go: frame by frame takes a fifth longer.
        packed = _ARRAY.pack(0xDD, end["end"] + 1) + body
        most = max(end["end"] + 1, _MOST_PARTS)
        frames: list[Any] = msgpack.unpackb(packed, strict_map_key=False, max_array_len=most, max_map_len=_MOST_PARTS)
    except (ValueError, KeyError, TypeError, MemoryError, struct.error):
        return []
    return frames
