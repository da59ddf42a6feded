"""An event log beside plain lists, under every interleaving hypothesis can think of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from psplatform.errors import StoreError
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import START, Position, Record
from psplatform.telemetry.log.writer import EventLog

_STORES = count()


class _Flaky(MemoryFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """A memory file system whose puts can fail, before or after the bytes are kept."""

    protocol = "flaky"
    failing: ClassVar[str] = "never"

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        if self.failing == "before":
            raise OSError("no space left")
        super().pipe_file(path, value, **options)
        if self.failing == "after":
            raise OSError("the answer was lost")


register_implementation("flaky", _Flaky, clobber=True)


@dataclass
class Model:
    """What one writer should have done: its visible segments, the one it could not bring out, and its buffer."""

    after: Position
    visible: list[list[Record]] = field(default_factory=list)
    acknowledged: int = 0
    sealed: list[Record] = field(default_factory=list)
    buffer: list[Record] = field(default_factory=list)

    def seal(self) -> None:
        """Make a segment of the buffer unless there is one to be tried again."""
        if not self.sealed:
            self.sealed, self.buffer = self.buffer, []

    def show(self) -> None:
        """Let readers see the sealed segment."""
        self.visible[self.acknowledged :] = [self.sealed]

    def flush(self) -> None:
        """Bring out everything, in at most two segments."""
        for _ in range(2):
            self.seal()
            if self.sealed:
                self.show()
                self.acknowledged, self.sealed = self.acknowledged + 1, []


class LogMachine(RuleBasedStateMachine):
    """Writers of growing terms, superseded ones among them, and a reader that polls now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.store = f"flaky://run-{next(_STORES)}"
        self.reader = LogReader(self.store)
        self.times = count()
        self.writers: list[EventLog] = []
        self.models: list[Model] = []
        self.position = START
        self.seen: list[Record] = []
        self.open(START, by_default=True)

    def open(self, after: Position, by_default: bool) -> None:
        """Open a writer under the next term: a coordinator takes over or the run is recovered."""
        term = len(self.writers) + 1
        given = None if by_default else after
        self.writers.append(EventLog(self.store, term, after=given, flush_records=10**9, flush_seconds=1e9))
        self.models.append(Model(after))

    def end(self) -> Position:
        """Return the newest segment of the highest term that has one."""
        terms = [term for term, model in enumerate(self.models, 1) if model.visible]
        return Position(terms[-1], len(self.models[terms[-1] - 1].visible)) if terms else START

    def positions(self, end: Position) -> list[Position]:
        """Return the segments of the log up to `end`."""
        if end == START:
            return [START]
        own = [Position(end.term, number) for number in range(1, end.number + 1)]
        return self.positions(self.models[end.term - 1].after) + own

    def records(self, end: Position) -> list[Record]:
        """Return the records of the log up to `end`."""
        segments = (self.models[place.term - 1].visible[place.number - 1] for place in self.positions(end)[1:])
        return [record for segment in segments for record in segment]

    def any_writer(self, data: st.DataObject) -> int:
        """Draw the newest writer, or one of the two that it superseded last."""
        return len(self.writers) - data.draw(st.integers(1, min(3, len(self.writers))))

    @rule(data=st.data(), texts=st.lists(st.text(max_size=3), max_size=3), flushed=st.booleans())
    def write(self, data: st.DataObject, texts: list[str], flushed: bool) -> None:
        """Let any writer, superseded or not, append and perhaps flush."""
        which = self.any_writer(data)
        for text in texts:
            record = {"kind": "note", "at": float(next(self.times)), "text": text}
            self.writers[which].append(record)
            self.models[which].buffer.append(record)
        if flushed:
            self.writers[which].flush()
            self.models[which].flush()

    @rule(data=st.data(), kept=st.booleans())
    def fail_to_flush(self, data: st.DataObject, kept: bool) -> None:
        """Flush to a store that fails; it may have kept the segment all the same."""
        which = self.any_writer(data)
        model = self.models[which]
        model.seal()
        if not model.sealed:
            return
        if kept:
            model.show()
        _Flaky.failing = "after" if kept else "before"
        try:
            with pytest.raises(StoreError, match="run-"):
                self.writers[which].flush()
        finally:
            _Flaky.failing = "never"

    @rule(data=st.data(), by_default=st.booleans())
    def take_over(self, data: st.DataObject, by_default: bool) -> None:
        """Continue the log as it is, or some earlier place, under a higher term."""
        self.open(self.end() if by_default else data.draw(st.sampled_from(self.positions(self.end()))), by_default)

    @rule()
    def poll(self) -> None:
        """Read on, or begin again where what was read has been superseded."""
        history = self.reader.history()
        assert history.holds(self.position) == (self.position in self.positions(self.end()))
        if not history.holds(self.position):
            self.position, self.seen = START, []
        for records, place in self.reader.iter_from(self.position, history):
            self.seen.extend(records)
            self.position = place
        assert self.position == self.end()
        assert self.seen == self.records(self.end())

    @invariant()
    def a_new_reader_sees_the_whole_log(self) -> None:
        """Compare reading from the start with the model."""
        found = [record for records, _ in LogReader(self.store).iter_from() for record in records]
        assert found == self.records(self.end())


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=200, stateful_step_count=30)
