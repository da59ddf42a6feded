"""Reading every segment of a log, those too that a takeover has superseded, and finding those that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final

from psplatform.errors import ProtocolError, StoreError
from psplatform.telemetry.log.evidence import Evidence
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.kinds import grouped
from psplatform.telemetry.log.segments import START, Position, Segment, decode

_TOLD: Final = ("segments", "records", "bytes", "flaws", "flawed")

_MOST_FLAWS: Final = 20
"""That are told; the others are counted."""


@dataclass(slots=True)
class VerifiedLog:
    """A log of which every byte was read.

    Attributes
    ----------
    segments, records, bytes
        What was read and found as it was written.
    flaws
        What is missing or damaged, in words, the first of them.
    flawed
        How many there are.
    flawed_term
        The newest term of which something is missing or damaged.
    newest
        The last segment that was listed, and whether it could be read.
    evidence
        What the log says that the store must hold.
    """

    segments: int = 0
    records: int = 0
    bytes: int = 0
    flaws: list[str] = field(default_factory=list)
    flawed: int = 0
    flawed_term: int = 0
    newest: tuple[Position, bool] = (START, True)
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def state(self) -> str:
        """``complete``, ``damaged``, or ``none`` where there is no log."""
        return "damaged" if self.flawed else "complete" if self.segments else "none"

    def to_plain(self) -> dict[str, Any]:
        """Return state and fields."""
        return {"state": self.state, **{name: getattr(self, name) for name in _TOLD}}

    @property
    def readable(self) -> bool:
        """Whether what is damaged or missing is of terms only that a later term goes on from."""
        return self.flawed_term < self.newest[0].term

    def add(self, flaw: str, term: int) -> None:
        """Add a flaw in what a term wrote."""
        self.flawed += 1
        self.flawed_term = max(term, self.flawed_term)
        if len(self.flaws) < _MOST_FLAWS:
            self.flaws.append(flaw)


def verified_log(store: str) -> VerifiedLog:
    """Return what the log of a store is once all of it was read, a segment at a time.

    Raises
    ------
    StoreError
        If the log cannot be listed.
    """
    folder, found = SegmentFolder(store), VerifiedLog()
    positions = folder.positions()
    known = set(positions)
    for first, last in _gaps(positions):
        # A listing is not atomic: one that is there all the same was not listed.
        if not _is_there(folder, first):
            found.add(f"{_span(first, last)} missing", first.term)
    before = START
    for position in positions:
        segment = _verify(folder, position, store, found)
        # What a term does not go on after, or a number that does not follow, is missing.
        gap = position.number != (before.number + 1 if position.term == before.term else 1)
        follows = segment.after if segment is not None else None
        if follows is not None and follows != START and follows not in known and not _is_there(folder, follows):
            found.add(f"{position.name} goes on after {follows.name}, which is missing", follows.term)
            gap = True
        if gap or segment is None:
            found.evidence.forget()
        if segment is not None:
            found.evidence.take(position.term, segment.records)
        found.newest, before = (position, segment is not None), position
    return found


def _gaps(positions: list[Position]) -> Iterator[tuple[Position, Position]]:
    for term, of_term in groupby(positions, key=lambda one: one.term):
        for before, after in pairwise([0, *(one.number for one in of_term)]):
            if after > before + 1:
                yield Position(term, before + 1), Position(term, after - 1)


def _span(first: Position, last: Position) -> str:
    return f"{first.name} is" if first == last else f"{first.name} to {last.name} are"


def _is_there(folder: SegmentFolder, position: Position) -> bool:
    try:
        folder.read(position)
    except StoreError:
        return False
    return True


def _verify(folder: SegmentFolder, position: Position, store: str, found: VerifiedLog) -> Segment | None:
    try:
        data = folder.read(position)
        segment = decode(data, position, store)
        grouped(segment.records)
    except StoreError as error:
        found.add(str(error).partition("; ")[0], position.term)
        return None
    except ProtocolError as error:
        found.add(f"{position.name}: {str(error).partition('; ')[0]}", position.term)
        return None
    found.segments += 1
    found.records += len(segment.records)
    found.bytes += len(data)
    return segment
