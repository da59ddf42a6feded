"""Writing and reading an event log, on a disk that may be full and by processes that may die."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psplatform.errors import InvariantViolation, StoreError
from psplatform.telemetry.follow import LiveRun
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.reader import History, LogReader
from psplatform.telemetry.log.segments import START, Position, Record
from psplatform.telemetry.log.writer import EventLog


def _note(number: int, at: float = 0.0) -> Record:
    return {"kind": "note", "at": at, "text": str(number)}


def _numbers(store: str | Path, position: Position = START) -> list[int]:
    return [int(record["text"]) for records, _ in LogReader(str(store)).iter_from(position) for record in records]


def _files(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "log").iterdir())


@contextmanager
def _full_disk() -> Iterator[None]:
    """Let no file grow beyond a few bytes: writes fail half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    """Readers may come before the writer; they create nothing."""
    reader = LogReader(str(tmp_path / "run"))
    assert list(reader.iter_from()) == []
    assert reader.history().end == START
    assert not (tmp_path / "run").exists()


def test_what_is_flushed_is_read_and_what_is_buffered_is_not(tmp_path: Path) -> None:
    """Records become visible by whole segments, in order."""
    log = EventLog(str(tmp_path), 1)
    log.append(_note(0))
    assert _numbers(tmp_path) == []
    log.flush()
    log.append(_note(1))
    assert _numbers(tmp_path) == [0]
    log.close()
    assert _numbers(tmp_path) == [0, 1]
    assert _files(tmp_path) == ["00000001-00000001.msgpack", "00000001-00000002.msgpack"]


def test_a_flush_of_nothing_writes_nothing(tmp_path: Path) -> None:
    """Idle runs leave no segments."""
    with EventLog(str(tmp_path), 1) as log:
        log.flush()
    assert not (tmp_path / "log").exists()


def test_a_record_is_logged_as_it_was_when_appended(tmp_path: Path) -> None:
    """Records are packed at once and may change afterwards."""
    record = _note(1)
    with EventLog(str(tmp_path), 1) as log:
        log.append(record)
        record["text"] = "2"
    assert _numbers(tmp_path) == [1]


def test_enough_records_are_flushed(tmp_path: Path) -> None:
    """The buffer's size is bounded."""
    log = EventLog(str(tmp_path), 1, flush_records=2, flush_seconds=1e9)
    for number in range(5):
        log.append(_note(number))
    assert _numbers(tmp_path) == [0, 1, 2, 3]


def test_a_record_that_waited_long_enough_is_flushed(tmp_path: Path) -> None:
    """Age counts from the oldest record that is still buffered; between records the caller says what time it is."""
    log = EventLog(str(tmp_path), 1, flush_records=100, flush_seconds=1.0)
    log.append(_note(0, at=10.0))
    log.append(_note(1, at=10.5))
    assert not log.due(10.9)
    assert log.due(11.0)
    log.append(_note(2, at=11.0))
    assert _numbers(tmp_path) == [0, 1, 2]
    assert not log.due(1e9)


def test_buffering_never_touches_storage(tmp_path: Path) -> None:
    """A driver that must not block buffers, and flushes elsewhere when a flush is due."""
    log = EventLog(str(tmp_path), 1, flush_records=1)
    log.buffer(_note(0))
    assert log.due(0.0)
    assert not (tmp_path / "log").exists()


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    """Two logs of the same run are equal, file by file."""
    for name in ("a", "b"):
        log = EventLog(str(tmp_path / name), 1, flush_records=3)
        for number in range(7):
            log.append(_note(number))
        log.close()
    assert _files(tmp_path / "a") == _files(tmp_path / "b")
    for name in _files(tmp_path / "a"):
        assert (tmp_path / "a/log" / name).read_bytes() == (tmp_path / "b/log" / name).read_bytes()


def test_reading_goes_on_where_it_ended() -> None:
    """Each batch comes with the position after it, from which nothing is read twice."""
    log = EventLog("memory://positions", 1, flush_records=2)
    for number in range(6):
        log.append(_note(number))
    reader = LogReader("memory://positions")
    (_, first), (_, second), (_, third) = reader.iter_from()
    assert (first, second, third) == (Position(1, 1), Position(1, 2), Position(1, 3))
    assert _numbers("memory://positions", first) == [2, 3, 4, 5]
    assert list(reader.iter_from(third)) == []
    assert log.position == third


def test_a_full_disk_keeps_the_records_for_a_later_flush(tmp_path: Path) -> None:
    """The error names the store, nothing half-written stays behind, and order holds across the failure."""
    log = EventLog(str(tmp_path), 1, flush_records=100)
    log.append(_note(0))
    with _full_disk(), pytest.raises(StoreError, match=r"cannot write .*choose another") as caught:
        log.flush()
    assert caught.value.store == str(tmp_path)
    assert _files(tmp_path) == []
    log.append(_note(1))
    assert log.due(1e9)
    log.flush()
    assert _numbers(tmp_path) == [0, 1]


def test_an_append_whose_flush_fails_has_kept_its_record(tmp_path: Path) -> None:
    """A caller that catches the error appends the next record, not the same one again."""
    log = EventLog(str(tmp_path), 1, flush_records=1)
    with _full_disk(), pytest.raises(StoreError):
        log.append(_note(0))
    log.close()
    assert _numbers(tmp_path) == [0]


_KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from psplatform.telemetry.log.writer import EventLog
log = EventLog(sys.argv[1], 1)
log.append({"kind": "note", "at": 0.0, "text": "0"})
log.flush()
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
log.append({"kind": "note", "at": 0.0, "text": "1"})
log.flush()
"""


def test_a_writer_killed_in_the_middle_of_a_write_leaves_nothing_visible(tmp_path: Path) -> None:
    """Readers see what was there before, and the next term goes on from it."""
    killed = subprocess.run([sys.executable, "-c", _KILLED_WRITER, str(tmp_path)], check=False)
    assert killed.returncode == -9
    assert [name[0] for name in _files(tmp_path)] == [".", "0"]
    assert _numbers(tmp_path) == [0]
    with EventLog(str(tmp_path), 2) as log:
        log.append(_note(2))
    assert _numbers(tmp_path) == [0, 2]


def test_a_reader_beside_a_busy_writer_sees_whole_records_once_each_in_order(tmp_path: Path) -> None:
    """Polling at any moment yields a prefix of what was written."""
    total = 400
    log = EventLog(str(tmp_path), 1, flush_records=3)

    def write() -> None:
        for number in range(total):
            log.append(_note(number))
        log.close()

    writer = threading.Thread(target=write)
    writer.start()
    reader, position, seen = LogReader(str(tmp_path)), START, list[int]()
    busy = True
    while busy:
        busy = writer.is_alive()
        for records, end in reader.iter_from(position):
            seen.extend(int(record["text"]) for record in records)
            position = end
        assert seen == list(range(len(seen)))
    assert len(seen) == total


def test_a_segment_missing_from_a_listing_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings are not atomic: a later segment vouches for the earlier ones, so none is skipped."""
    log = EventLog(str(tmp_path), 1, flush_records=1)
    for number in range(3):
        log.append(_note(number))
    monkeypatch.setattr("psplatform.telemetry.log.folder.os.listdir", lambda _: [Position(1, 3).name])
    assert _numbers(tmp_path) == [0, 1, 2]


def test_the_newest_segment_of_each_term_is_found_among_all_that_there_are(tmp_path: Path) -> None:
    """Numbers outgrow their eight digits, and other files lie beside them."""
    (tmp_path / "log").mkdir()
    names = [Position(*one).name for one in [(1, 7), (2, 1), (2, 99_999_999), (2, 100_000_000), (123_456_789, 3)]]
    for name in [*names, "notes.txt", f".{Position(2, 100_000_001).name}.77", "00000003-x.msgpack"]:
        (tmp_path / "log" / name).touch()
    expected = [Position(1, 7), Position(2, 100_000_000), Position(123_456_789, 3)]
    assert SegmentFolder(str(tmp_path)).newest() == expected


def test_a_deleted_segment_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A hole in the log is never passed over in silence."""
    log = EventLog(str(tmp_path), 1, flush_records=1)
    for number in range(3):
        log.append(_note(number))
    (tmp_path / "log" / Position(1, 2).name).unlink()
    with pytest.raises(StoreError, match=r"00000001-00000002\.msgpack"):
        _numbers(tmp_path)


def test_a_higher_term_supersedes_what_it_did_not_continue(tmp_path: Path) -> None:
    """What a replaced coordinator still writes is not part of the log, from its successor's first segment on."""
    old = EventLog(str(tmp_path), 1, flush_records=1)
    old.append(_note(0))
    new = EventLog(str(tmp_path), 2)
    old.append(_note(100))
    assert _numbers(tmp_path) == [0, 100]
    new.append(_note(1))
    new.flush()
    old.append(_note(101))
    assert _numbers(tmp_path) == [0, 1]
    history = LogReader(str(tmp_path)).history()
    assert history.holds(Position(1, 1))
    assert not history.holds(Position(1, 2))


def test_a_term_may_continue_an_earlier_place(tmp_path: Path) -> None:
    """A successor names the last segment whose state it took over."""
    old = EventLog(str(tmp_path), 1, flush_records=1)
    for number in range(3):
        old.append(_note(number))
    with EventLog(str(tmp_path), 4, after=Position(1, 2)) as new:
        new.append(_note(10))
    assert _numbers(tmp_path) == [0, 1, 10]
    with EventLog(str(tmp_path), 5, after=START) as fresh:
        fresh.append(_note(20))
    assert _numbers(tmp_path) == [20]


def test_a_mark_tells_how_many_records_are_visible(tmp_path: Path) -> None:
    """Position and number belong together; what is buffered is beyond the mark."""
    log = EventLog(str(tmp_path), 1, flush_records=2)
    assert log.mark == (START, 0)
    for number in range(5):
        log.append(_note(number))
    assert log.mark == (Position(1, 2), 4)
    log.close()
    assert log.mark == (log.position, 5) == (Position(1, 3), 5)


def test_a_mark_counts_what_could_not_be_written_only_when_it_is(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 1)
    log.buffer(_note(0))
    with _full_disk(), pytest.raises(StoreError):
        log.flush()
    assert log.mark == (START, 0)
    log.buffer(_note(1))
    log.flush()
    assert log.mark == (Position(1, 2), 2)


@pytest.mark.parametrize("flushed_after_the_mark", [0, 1, 3])
def test_a_standby_writes_again_what_it_knows_beyond_a_mark(tmp_path: Path, flushed_after_the_mark: int) -> None:
    """It needs a mark, old or new, and the records since: the log then has each of them once, in order.

    Whatever the old term brought out beyond the mark, what the standby never heard of included, is superseded; so is
    what it writes after the takeover.
    """
    old = EventLog(str(tmp_path), 1, flush_records=2)
    known = [_note(number) for number in range(8)]
    for record in known[:5]:
        old.append(record)
    mark = old.mark
    live = LiveRun(str(tmp_path))
    for record in [*known[5:], _note(100)][: 2 * flushed_after_the_mark]:
        old.append(record)
    live.refresh()

    standby = EventLog(str(tmp_path), 2, after=mark.position)
    for record in [*known[mark.records :], _note(8)]:
        standby.buffer(record)
    standby.flush()
    old.buffer(_note(101))
    old.flush()

    assert _numbers(tmp_path) == list(range(9))
    live.refresh()
    assert [incident.text for incident in live.view.incidents] == [str(number) for number in range(9)]


def test_a_takeover_that_dies_before_its_first_segment_changes_nothing(tmp_path: Path) -> None:
    """The log stays the old term's, and the term may be used by the next one that tries."""
    with EventLog(str(tmp_path), 1) as old:
        old.buffer(_note(0))
    EventLog(str(tmp_path), 2, after=START).buffer(_note(50))
    assert _numbers(tmp_path) == [0]
    with EventLog(str(tmp_path), 2) as again:
        again.buffer(_note(1))
    assert _numbers(tmp_path) == [0, 1]


def test_reading_on_in_a_higher_term_repeats_nothing_of_lower_ones() -> None:
    """A position lies behind all segments of the terms it followed."""
    history = History((Position(1, 2), Position(3, 2)))
    assert list(history.after(START)) == [Position(1, 1), Position(1, 2), Position(3, 1), Position(3, 2)]
    assert list(history.after(Position(1, 2))) == [Position(3, 1), Position(3, 2)]
    assert list(history.after(Position(3, 1))) == [Position(3, 2)]
    held = [place for place in [(1, 2), (1, 3), (2, 1), (3, 0), (3, 2)] if history.holds(Position(*place))]
    assert held == [(1, 2), (3, 2)]


@pytest.mark.parametrize("term", [1, 2])
def test_a_term_is_used_once(tmp_path: Path, term: int) -> None:
    """A second writer of a term, or one of a lower term, is refused before it writes."""
    with EventLog(str(tmp_path), 2) as log:
        log.append(_note(0))
    with pytest.raises(StoreError, match="term 2"):
        EventLog(str(tmp_path), term)


def test_a_term_cannot_continue_what_is_not_there(tmp_path: Path) -> None:
    """A successor never leaves a hole in the log."""
    with pytest.raises(StoreError, match="no segment 00000001-00000005"):
        EventLog(str(tmp_path), 2, after=Position(1, 5))


@pytest.mark.parametrize("record", [{"at": 1.0}, {"kind": "note"}, {"kind": "note", "at": 0.0, "text": object()}])
def test_a_record_that_cannot_be_logged_is_our_bug(tmp_path: Path, record: Record) -> None:
    """Records are plain and have a kind and a time; others are refused at once and harm nothing."""
    log = EventLog(str(tmp_path), 1)
    with pytest.raises(InvariantViolation):
        log.append(record)
    log.close()
    assert _numbers(tmp_path) == []


@pytest.mark.parametrize("store", ["nosuch://bucket/run", "nosuch::memory://run"])
def test_a_store_of_an_unknown_kind_is_refused_by_name(store: str) -> None:
    """The error comes when the log is opened and names the store."""
    with pytest.raises(StoreError, match="nosuch"):
        LogReader(store)


def test_a_store_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    """Something that is no folder cannot become a store."""
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(StoreError, match=str(tmp_path / "run")):
        EventLog(str(tmp_path / "run"), 1)


def test_a_live_run_keeps_up_with_its_log(tmp_path: Path) -> None:
    """Each refresh folds what is new and says whether there was anything."""
    live = LiveRun(str(tmp_path))
    assert not live.refresh()
    log = EventLog(str(tmp_path), 1, flush_records=1)
    log.append(_note(0))
    assert live.refresh()
    assert not live.refresh()
    log.append(_note(1))
    assert live.refresh()
    assert [incident.text for incident in live.view.incidents] == ["0", "1"]


def test_a_live_run_forgets_what_a_takeover_superseded(tmp_path: Path) -> None:
    """The picture is that of the log as it is, not of what was once read."""
    live = LiveRun(str(tmp_path))
    old = EventLog(str(tmp_path), 1, flush_records=1)
    old.append(_note(0))
    old.append(_note(100))
    live.refresh()
    with EventLog(str(tmp_path), 2, after=Position(1, 1)) as new:
        new.append(_note(1))
    live.refresh()
    assert [incident.text for incident in live.view.incidents] == ["0", "1"]
