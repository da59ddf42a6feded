"""Writing a run's event log: records are buffered and brought out as immutable segments."""

from __future__ import annotations

from itertools import accumulate, takewhile
from threading import Lock
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgpack

from psplatform.errors import InvariantViolation, StoreError
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import Position, Record, encode

MOST_BYTES: Final = 16 << 20
"""Of the records in one segment: a store that took none for hours gets many segments and not one of any length."""


class Mark(NamedTuple):
    """How much of a writer's log is visible: the last segment, and how many of the writer's records that makes.

    Who may have to take over keeps the newest mark, and the records after it: the next term then continues `position`
    and begins with those records again, so that none is lost and none is told twice.
    """

    position: Position
    records: int


class EventLog:
    """The only writer of one term of a run's event log.

    Records are plain dicts with ``kind`` (str) and ``at`` (seconds since the run's start).  They are packed at once,
    so a record may change afterwards.  The log has no clock: time is what records and callers say.  `buffer` and
    `flush` may be called from different threads.

    Parameters
    ----------
    store
        A local path or any URL that fsspec knows; segments go to its folder ``log``.
    term
        The coordinator's term, above every term that has written to this log.
    after
        The position this term continues; by default where the log ends now.  What lower terms wrote beyond it is
        superseded as soon as this term's first segment is visible.
    flush_records, flush_seconds
        A flush is due at so many buffered records, or when the oldest of them is so old.

    Raises
    ------
    StoreError
        If the store cannot be used, or the log already knows this term or a higher one.
    """

    def __init__(
        self,
        store: str,
        term: int,
        *,
        after: Position | None = None,
        flush_records: int = 512,
        flush_seconds: float = 0.5,
    ) -> None:
        self._folder = SegmentFolder(store)
        history = LogReader(store).history()
        if history.end.term >= term:
            message = f"the log of {store} is at term {history.end.term}; write to it under a higher one than {term}"
            raise StoreError(message, store=store)
        self._after = history.end if after is None else after
        if not history.holds(self._after):
            message = f"the log of {store} has no segment {self._after.name} to continue; continue an earlier one"
            raise StoreError(message, store=store)
        self._term = term
        self._number = 0
        self._mark = Mark(self._after, 0)
        self._flush_records = flush_records
        self._flush_seconds = flush_seconds
        self._frames: list[bytes] = []
        self._oldest = 0.0
        self._sealed: bytes | None = None
        self._sealed_records = 0
        self._packer = msgpack.Packer()
        self._filling = Lock()
        self._flushing = Lock()

    @property
    def position(self) -> Position:
        """The last visible segment of this writer's log: where a next term would continue."""
        return self._mark.position

    @property
    def mark(self) -> Mark:
        """What is visible now; position and number belong together, whichever thread flushes meanwhile."""
        return self._mark

    def append(self, record: Record) -> None:
        """Add a record, and flush if its time says that a flush is due.

        Raises
        ------
        StoreError
            If the flush failed; the record is kept, like all others, for the next flush.
        """
        self.buffer(record)
        if self.due(record["at"]):
            self.flush()

    def buffer(self, record: Record) -> None:
        """Add a record without touching storage."""
        with self._filling:
            frame = _packed(record, self._packer)
            if not self._frames:
                self._oldest = record["at"]
            self._frames.append(frame)

    def due(self, now: float) -> bool:
        """Whether a flush is due at `now`, in seconds since the run's start."""
        waiting = bool(self._frames) or self._sealed is not None
        return len(self._frames) >= self._flush_records or (waiting and now - self._oldest >= self._flush_seconds)

    def flush(self) -> None:
        """Make everything buffered visible.

        Raises
        ------
        StoreError
            If the store failed, a full disk for example.  Nothing is lost: a later flush begins with what this one
            could not bring out.
        """
        with self._flushing:
            self._publish()
            while self._seal():
                self._publish()

    def close(self) -> None:
        """Flush; the log needs no other farewell."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _seal(self) -> bool:
        """Make a segment of what is buffered, or of the first of it; return whether there was anything."""
        with self._filling:
            sizes = accumulate(map(len, self._frames))
            most = sum(1 for size in takewhile(lambda size: size <= MOST_BYTES, sizes)) or 1
            frames, self._frames = self._frames[:most], self._frames[most:]
        if not frames:
            return False
        after = self._after if self._number == 0 else None
        self._sealed = encode(Position(self._term, self._number + 1), after, frames)
        self._sealed_records = len(frames)
        return True

    def _publish(self) -> None:
        # A sealed segment is retried byte for byte and never grows: an object store may have kept a put whose answer
        # was lost, and a reader may have read it.
        if self._sealed is not None:
            self._folder.write(Position(self._term, self._number + 1), self._sealed)
            self._number += 1
            self._mark = Mark(Position(self._term, self._number), self._mark.records + self._sealed_records)
            self._sealed = None


def _packed(record: Record, packer: msgpack.Packer) -> bytes:
    if not isinstance(record.get("kind"), str) or not isinstance(record.get("at"), (int, float)):
        raise InvariantViolation(f"a log record needs a kind and a time: {record!r}")
    try:
        frame: bytes = packer.pack(record)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvariantViolation(f"a log record of kind {record['kind']!r} is not plain: {error}") from error
    return frame
