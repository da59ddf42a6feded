"""What a reading makes of logs that cannot be read, cannot be understood, or are not there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgpack
import pytest

from psplatform.dashboard.read_models import reading as module
from psplatform.dashboard.read_models.reading import Models, Progress, Reading
from psplatform.errors import ProtocolError, StoreError
from psplatform.telemetry.log.segments import Position, Record, encode

ALWAYS_S = 1e9

GRADIENT: Record = {"kind": "gradient", "at": 1.0, "slot": 0, "loss": 2.0, "compute_s": 0.3, "pull_s": 0.1,
                    "push_s": 0.1, "wait_s": 0.5}  # fmt: skip

EXAMPLES: list[Record] = [
    GRADIENT,
    {"kind": "commit", "at": 1.0, "version": 1, "slots": [0], "staleness": [0], "loss": 1.5, "rate": 1.0,
     "duration_s": 0.2},
    {"kind": "dropped", "at": 1.0, "slot": 0, "label": 0, "version": 1, "reason": "stale"},
    {"kind": "applied", "at": 1.0, "version": 1, "visible_s": 0.01},
    {"kind": "evaluated", "at": 1.0, "version": 1, "loss": 1.25, "accuracy": 0.5},
    {"kind": "copy", "at": 1.0, "shard": 0, "copy": "server-0-2", "process": "tcp://b:1", "event": "lost",
     "reason": "gone"},
    {"kind": "promoted", "at": 1.0, "role": "server", "shard": 0, "epoch": 2, "copy": "c", "process": "p",
     "signal": "s", "detected_seconds": 0.0, "promoted_seconds": 0.0, "distance_lost": 0.0, "updates_lost": 0,
     "bound": None, "unit": None},
    {"kind": "resumed", "at": 1.0, "role": "server", "shard": 0, "epoch": 2, "first_commit_seconds": 0.2},
    {"kind": "protection", "at": 1.0, "shards": [0]},
    {"kind": "checkpoint", "at": 1.0, "number": 1, "version": 1, "event": "failed", "seconds": 0.1, "bytes": 8,
     "reason": "r"},
    {"kind": "lost", "at": 1.0, "slot": 0, "incarnation": 1, "process": "p", "reason": "r"},
    {"kind": "joined", "at": 1.0, "slot": 0, "incarnation": 1, "process": "p", "clock": 0},
    {"kind": "beyond bound", "at": 1.0, "shard": 0, "version": 5, "step": 0.9, "bound": 0.5},
    {"kind": "finished", "at": 1.0, "outcome": "o", "detail": "d", "version": 1, "loss": None, "accuracy": None,
     "seconds": 1.0},
    {"kind": "note", "at": 1.0, "text": "hello"},
    {"kind": "transfer", "at": 1.0, "slots": [0], "took_s": 0.5, "planned_s": None, "host": "a"},
    {"kind": "pull", "at": 1.0, "host": "a", "relay": None, "sent": True, "took_s": 0.5, "planned_s": None},
    {"kind": "servers", "at": 1.0, "hosts": ["s"], "bytes": [100.0]},
    {"kind": "run", "at": 1.0},
]  # fmt: skip


def _gradients(reading: Reading) -> tuple[int, int]:
    """Return how many gradients the view counts, and how many the rows of workers do."""
    return reading.read(lambda models: (models.view.gradients, sum(row.gradients for row in models.workers.rows)))


def _raw(store: Path, position: Position, data: bytes) -> None:
    (store / "log" / position.name).write_bytes(data)


@pytest.mark.parametrize(
    ("record", "name"),
    [pytest.param(one, name, id=f"{one['kind']}, {name}") for one in EXAMPLES for name in one if name != "kind"],
)
def test_a_record_that_lacks_a_field_is_refused(record: Record, name: str) -> None:
    """With one sentence that names the kind and the field; whole, it is taken."""
    Models().take([record])
    with pytest.raises(ProtocolError, match=f"kind '{record['kind']}' has no field '{name}'") as caught:
        Models().take([{key: value for key, value in record.items() if key != name}])
    assert "\n" not in str(caught.value)


def test_a_refused_log_shows_nothing_and_says_so_again(new_store: Any, opened: Any, write: Any) -> None:
    """Half of its records would be a wrong picture, and counted twice by the next refresh."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    write(log, [GRADIENT])
    reading.refresh(ALWAYS_S)
    write(log, [GRADIENT, {"kind": "dropped", "at": 2.0, "slot": 0, "reason": "stale"}])
    write(log, [GRADIENT])
    for _ in range(3):
        with pytest.raises(ProtocolError, match="kind 'dropped' has no field"):
            reading.refresh(ALWAYS_S)
        assert _gradients(reading) == (0, 0)
    assert reading.lanes(0.0, 9.0).slots == ()


def _odd(kind: str, **changes: Any) -> Any:
    whole = next(one for one in EXAMPLES if one["kind"] == kind)
    [(name, value)] = changes.items()
    return pytest.param(kind, whole | changes, id=f"{kind}, {name} {value!r:.20}")


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        *(_odd("note", at=value) for value in (math.inf, math.nan, -1.0, 1e9, 10**400, "soon", None, [1.0])),
        *(_odd("gradient", slot=value) for value in (-1, 10**9, 10**30, 0.5, "0", None)),
        *(_odd("commit", slots=value) for value in ([-1], [10**9], ["0"], None, 3)),
        *(_odd("commit", decision=value) for value in ({"k": "two"}, {"k": "2"}, {"k": None}, {"k": [1]}, 5, "k")),
        *(_odd("commit", staleness=value) for value in (None, ["0"], 3)),
        *(_odd("commit", loss=value) for value in ("small", [1.0])),
        *(_odd("evaluated", metrics=value) for value in (3, ["f1"], {"f1": "high"}, {"f1": None}, {"f1": [1]}, "f1")),
        *(_odd("evaluated", loss=value) for value in ("small", [1.0])),
        *(_odd("gradient", compute_s=value) for value in (None, "long")),
        *(_odd("dropped", reason=value) for value in ([], {})),
        *(_odd("dropped", slot=value) for value in (-1, 10**9, [])),
        *(_odd("protection", shards=value) for value in (None, 3, ["[x](http://evil.example)"], [-1], [[0]])),
        *(_odd("run", term=value) for value in ("[x](http://evil.example)", None, 1.5, -1)),
        *(_odd("run", staleness_bound=value) for value in ("![x](http://evil.example)", [3], 0.5)),
        *(_odd("run", shards=value) for value in ("two", 10**9, None)),
        *(_odd("run", network={"fabric": {}, "gradient_bytes": value}) for value in ("many", -1, math.inf, 10**400)),
        *(_odd("transfer", slots=value) for value in (None, 3, ["0"], [-1], [10**9])),
        *(_odd("transfer", hosts=value) for value in (3, "host", [3], [["host"]])),
        *(_odd("transfer", host=value) for value in (None, 3, ["host"])),
        *(_odd("transfer", took_s=value) for value in (None, "long", [1.0])),
        *(_odd("pull", host=value) for value in (None, 3, ["host"])),
        *(_odd("pull", relay=value) for value in (3, ["host"], {})),
        *(_odd("pull", sent=value) for value in (None, 1, 10**400, "yes", [True])),
        *(_odd("pull", planned_s=value) for value in ("long", [1.0])),
        *(_odd("servers", hosts=value) for value in (None, "host", [3], [["host"]])),
        *(_odd("servers", bytes=value) for value in (None, 3, ["many"], [-1], [math.nan], [10**400], [[1.0]])),
        *(_odd("promoted", promoted_seconds=value) for value in (None, "long")),
    ],
)
def test_a_field_that_is_none_is_refused_in_one_sentence(new_store: Any, kind: str, record: Record) -> None:
    """It names the store and the kind; nothing hangs, no other error comes out, and it is said again."""
    store = new_store()
    reading, position = Reading(store), Position(1, 1)
    records = [GRADIENT, record, GRADIENT]
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"the log of {store} .*kind '{kind}'") as caught:
            reading._take(records, position)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
        assert _gradients(reading) == (0, 0)


@pytest.mark.parametrize("record", [{"kind": []}, {"kind": 5, "at": 1.0}, [1, 2], 7])
def test_what_is_no_record_is_refused_in_one_sentence(tmp_path: Path, record: Any) -> None:
    """Another program may have written the segment."""
    (tmp_path / "log").mkdir()
    frames = [msgpack.packb(one) for one in (GRADIENT, record)]
    _raw(tmp_path, Position(1, 1), encode(Position(1, 1), None, frames))
    reading = Reading(str(tmp_path))
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"the log of {tmp_path} ") as caught:
            reading.refresh(ALWAYS_S)
        assert "\n" not in str(caught.value)
        assert _gradients(reading) == (0, 0)


def test_a_refused_log_is_read_once_a_takeover_has_superseded_it(new_store: Any, opened: Any, write: Any) -> None:
    """Its successor, of another psplatform perhaps, goes on before the record that could not be understood."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    write(log, [GRADIENT])
    write(log, [{"kind": "dropped", "at": 2.0}])
    with pytest.raises(ProtocolError):
        reading.refresh(ALWAYS_S)
    write(opened(store, 2, after=Position(1, 1)), [GRADIENT])
    assert reading.refresh(ALWAYS_S) == Progress(2, 2)
    assert _gradients(reading) == (2, 2)


@pytest.mark.parametrize("budget_s", [0.0, ALWAYS_S])
@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        (b"", "torn, damaged or foreign"),
        (b"no segment", "torn, damaged or foreign"),
        (encode(Position(1, 3), None, [])[:-3], "torn, damaged or foreign"),
        (encode(Position(1, 9), None, []), "belongs to another place"),
    ],
)
def test_a_log_is_shown_up_to_a_segment_that_cannot_be_read(
    tmp_path: Path, opened: Any, write: Any, flaw: bytes, words: str, budget_s: float
) -> None:
    """And once that is mended a refresh goes on from there."""
    log, reading = opened(str(tmp_path)), Reading(str(tmp_path))
    for _ in range(4):
        write(log, [GRADIENT])
    whole = (tmp_path / "log" / Position(1, 3).name).read_bytes()
    _raw(tmp_path, Position(1, 3), flaw)
    for _ in range(2 if budget_s == 0.0 else 0):
        assert not reading.refresh(budget_s).complete
    for _ in range(2):
        with pytest.raises(StoreError, match=words):
            reading.refresh(budget_s)
        assert _gradients(reading) == (2, 2)
    _raw(tmp_path, Position(1, 3), whole)
    while not reading.refresh(budget_s).complete:
        pass
    assert _gradients(reading) == (4, 4)


def test_a_segment_of_a_newer_format_is_refused(
    tmp_path: Path, opened: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to do; what was read before stays."""
    log, reading = opened(str(tmp_path)), Reading(str(tmp_path))
    write(log, [GRADIENT])
    with monkeypatch.context() as patch:
        patch.setattr("psplatform.telemetry.log.segments.VERSION", 2)
        newer = encode(Position(1, 2), None, [])
    _raw(tmp_path, Position(1, 2), newer)
    with pytest.raises(StoreError, match="upgrade to read it"):
        reading.refresh(ALWAYS_S)
    assert _gradients(reading) == (1, 1)


def test_a_log_that_is_not_there_yet_is_an_empty_one(tmp_path: Path, opened: Any, write: Any) -> None:
    """Its rows are empty, and it is read when it appears."""
    store = str(tmp_path / "later")
    reading = Reading(store)
    progress = reading.refresh(ALWAYS_S)
    assert (progress, progress.complete) == (Progress(0, 0), True)
    for rows in (
        "convergence",
        "staleness",
        "workers",
        "lanes",
        "drops",
        "network",
        "divergence",
        "decisions",
        "failures",
    ):
        assert reading.read(lambda models, rows=rows: getattr(models, rows).rows) is not None
    assert len(reading.read(lambda models: models.convergence.rows.training)) == 0
    assert reading.lanes(0.0, 9.0).slots == ()
    write(opened(store), [GRADIENT])
    assert reading.refresh(ALWAYS_S) == Progress(1, 1)
    assert _gradients(reading) == (1, 1)


def test_a_log_that_was_moved_away_is_an_empty_one_again(tmp_path: Path, opened: Any, write: Any) -> None:
    """Nothing of it stays in the rows."""
    reading = Reading(str(tmp_path))
    write(opened(str(tmp_path)), [GRADIENT])
    reading.refresh(ALWAYS_S)
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    assert reading.refresh(ALWAYS_S) == Progress(0, 0)
    assert _gradients(reading) == (0, 0)


def test_without_time_one_segment_is_read(new_store: Any, opened: Any, write: Any) -> None:
    """A refresh always comes further, and a slow store does not make it read thousands of records first."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    for _ in range(3):
        write(log, [GRADIENT])
    found = [reading.refresh(0.0) for _ in range(4)]
    assert found == [Progress(1, 3), Progress(2, 3), Progress(3, 3), Progress(3, 3)]


def test_small_segments_are_folded_together(
    new_store: Any, opened: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run with many of them is read in a few steps."""
    store, sizes, take = new_store(), [], Models.take
    log, reading = opened(store), Reading(store)
    for _ in range(12):
        write(log, [GRADIENT])
    monkeypatch.setattr(module, "_BULK", 5)
    monkeypatch.setattr(Models, "take", lambda self, records: sizes.append(len(records)) or take(self, records))
    assert reading.refresh(ALWAYS_S).complete
    assert sizes == [5, 5, 2]
