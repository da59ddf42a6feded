"""Whatever somebody has done to a store, whoever reads it gets what is there or one sentence about what is wrong."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.cli.main import cli
from psplatform.cli.terminal import printable
from psplatform.client.run import Run
from psplatform.client.runs.listing import list_runs, look_at
from psplatform.client.runs.resuming import require_state
from psplatform.client.runs.verification import verify
from psplatform.dashboard.library import Library
from psplatform.dashboard.read_models.reading import Reading
from psplatform.dashboard.settings import Settings
from psplatform.errors import PsplatformError, StoreError
from psplatform.jobs.job import Job
from psplatform.replication.checkpoints.retention import checkpoints_of, held_checkpoints, load_checkpoint, newest_whole
from psplatform.replication.stores.models import load_model
from psplatform.replication.stores.store import describe_run
from psplatform.telemetry.log.kinds import all_of
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.trace import run_times, to_csv
from psplatform.telemetry.words import closing_rows, one_line

MOST_MEMORY = 256 << 20
_ZARR_ONLY = "checkpoints/zarr.json"
"""What lets Zarr find the checkpoints, and is read by nobody here."""

Reader = Callable[[str], Any]


def _log(store: str) -> None:
    run = Run("mlp-backup-1a2b3c", store, gone=True)
    status = run.status()
    summary = status["summary"]
    if "run" in summary:
        closing_rows(summary)
        one_line(summary)


def _trace(store: str) -> None:
    to_csv(run_times(all_of(records for records, _ in LogReader(store).iter_from())))


def _job(store: str) -> None:
    Job.from_plain(describe_run(store).get("job") or {}, store=store)


def _resume(store: str) -> None:
    checkpoint = load_checkpoint(store)
    checkpoint.tensors()
    checkpoint.slots()
    require_state(store, checkpoint)


def _pages(store: str) -> None:
    reading = Reading(store)
    reading.refresh(60.0)
    reading.lanes(0.0, 1e9)
    library = Library(Settings(store=store))
    for listed in library.runs():
        library.brief(listed, 60.0)
    library.checkpoints(store)


def _best(store: str) -> None:
    load_model(store, best=True)


READERS: tuple[Reader, ...] = (
    *(describe_run, look_at, _log, _trace, _job, _pages, load_model, _best),
    *(held_checkpoints, checkpoints_of, newest_whole, _resume, verify),
    lambda store: list_runs(str(Path(store).parent)),
)


@contextmanager
def bounded_memory(most: int = MOST_MEMORY) -> Iterator[None]:
    """Fail if more than so many bytes are asked for at once."""
    tracemalloc.start(1)
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def one_sentence(error: PsplatformError) -> None:
    """Fail unless an error is a line with a remedy, and no longer than a page."""
    said = str(error.args[0])
    assert "\n" not in said, said
    assert "; " in said or ", and `" in said, said
    assert len(said) < 12_000, said[:300]


def read_all(store: str) -> list[str]:
    """Read a store in every way; return what was said of what is wrong with it."""
    said = []
    for read in READERS:
        try:
            read(store)
        except PsplatformError as error:
            one_sentence(error)
            said.append(str(error))
    return said


def test_a_store_that_nobody_has_touched_is_read_without_a_word(real: Path) -> None:
    assert read_all(str(real)) == []


def test_every_reader_takes_or_refuses_a_store_of_other_hands(
    fresh: Callable[[], Path], hands: Any, fuzz: settings
) -> None:
    """Bytes and fields changed, files swapped, cut, removed, and replaced by links, folders and pipes."""

    @fuzz
    @given(st.data())
    def spoiled(data: st.DataObject) -> None:
        store = fresh()
        hands.spoil(store, data)
        with bounded_memory():
            read_all(str(store))

    spoiled()


def test_commands_end_with_a_sentence_and_obey_nothing(fresh: Callable[[], Path], hands: Any, fuzz: settings) -> None:
    """No traceback, and no character that a terminal would obey."""

    @fuzz
    @given(st.data(), st.sampled_from([("runs",), ("runs", "--json"), ("runs", "--verify"), ("trace",), ("attach",)]))
    def commanded(data: st.DataObject, command: tuple[str, ...]) -> None:
        store = fresh()
        hands.spoil(store, data)
        result = CliRunner().invoke(cli, [command[0], str(store), *command[1:]])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        for text in result.output.splitlines():
            assert printable(text) == text

    commanded()


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_no_link_leads_a_reader_out_of_a_store(
    fresh: Callable[[], Path], real: Path, tmp_path: Path, *, folder: bool
) -> None:
    """Each part in turn lies elsewhere, unchanged, behind a link: it is not read, and verification says so."""
    parts = sorted(one for one in real.rglob("*") if one.is_dir() == folder and one != real / _ZARR_ONLY)
    for part in parts:
        store = fresh()
        path = store / part.relative_to(real)
        outside = tmp_path / "outside" / path.name
        outside.parent.mkdir(exist_ok=True)
        path.rename(outside)
        path.symlink_to(outside)
        try:
            assert not verify(str(store)).sound, part
        except StoreError as error:
            one_sentence(error)
        outside.rename(path.with_name("gone"))
