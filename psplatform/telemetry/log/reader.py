"""Reading a run's event log from any position on, while it is written or after.

Terms form a chain: the first segment of a term names the segment of a lower term that it continues.  What a lower
term wrote beyond that (a coordinator that did not know yet it had been replaced) is not part of the log any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psplatform.errors import StoreError
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.segments import START, Position, Record, Segment, decode, is_torn


@dataclass(frozen=True, slots=True)
class History:
    """The log as one look at its folder showed it.

    Attributes
    ----------
    ends
        The last segment of each term in the chain, oldest term first.
    """

    ends: tuple[Position, ...]

    @property
    def end(self) -> Position:
        """Where the log ends."""
        return self.ends[-1] if self.ends else START

    def holds(self, position: Position) -> bool:
        """Whether `position` is part of the log, so that reading on from it misses and repeats nothing."""
        return position == START or any(
            end.term == position.term and 0 < position.number <= end.number for end in self.ends
        )

    def count_after(self, position: Position) -> int:
        """Return how many segments there are above `position`, however many a name may claim."""
        ends = [end for end in self.ends if end.term >= position.term]
        return sum(end.number - (position.number if end.term == position.term else 0) for end in ends)

    def after(self, position: Position) -> Iterator[Position]:
        """Yield the segments above `position`, in order."""
        for end in self.ends:
            if end.term >= position.term:
                first = position.number + 1 if end.term == position.term else 1
                yield from (Position(end.term, number) for number in range(first, end.number + 1))


class LogReader:
    """A reader of the event log in `store`; it keeps no place, only what never changes.

    Attributes
    ----------
    skipped
        Missing and damaged segments that were passed over.

    Raises
    ------
    StoreError
        If the store cannot be read, or a segment of the newest term is missing or torn, or any is foreign.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._folder = SegmentFolder(store)
        self._continued: dict[int, Position] = {}
        self.skipped: list[Position] = []

    def history(self) -> History:
        """Return what the log consists of now."""
        newest = {position.term: position for position in self._folder.newest()}
        ends: list[Position] = []
        end = newest[max(newest)] if newest else START
        while end != START:
            ends.append(end)
            end = self._continued_by(end.term)
        return History(tuple(reversed(ends)))

    def iter_from(
        self, position: Position = START, history: History | None = None
    ) -> Iterator[tuple[tuple[Record, ...], Position]]:
        """Yield the records of each segment after `position`, and the position to read on from.

        A missing or damaged segment of a term that a later one goes on from is passed over and noted in `skipped`: the
        later term begins with a description of the run, so that what follows is understood without it.

        Parameters
        ----------
        position
            Where an earlier reading ended.  If a takeover has superseded it since (`History.holds` tells), what was
            read beyond the takeover stays read, and reading goes on with the higher term.
        history
            A look at the log taken before; a fresh one by default.
        """
        history = history or self.history()
        for found in history.after(position):
            try:
                records = self._segment(found).records
            except StoreError as error:
                if found.term == history.end.term or not self._is_lost(found, error):
                    raise
                self.skipped.append(found)
                records = ()
            yield records, found

    def _is_lost(self, position: Position, error: StoreError) -> bool:
        """Whether a segment that could not be read is missing or damaged, and its storage does not just fail."""
        if error.__cause__ is not None:
            return isinstance(error.__cause__, FileNotFoundError)
        return is_torn(self._folder.read(position))

    def _continued_by(self, term: int) -> Position:
        if term not in self._continued:
            self._continued[term] = self._segment(Position(term, 1)).after or START
        return self._continued[term]

    def _segment(self, position: Position) -> Segment:
        return decode(self._folder.read(position), position, self._store)
