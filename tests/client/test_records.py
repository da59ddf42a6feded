"""What this user's programs note of their runs: found again by them, and believed only where nobody else can write."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from psplatform.client.clusters.credentials import Credentials
from psplatform.client.runs import records
from psplatform.client.runs.records import Record, credentials_at, find, forget, known, remember, state_folder
from psplatform.runtime.comms.processes import this_process

RUN = "digits-bsp-1a2b3c"
ADDRESS = "tls://127.0.0.1:41811"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("PSPLATFORM_STATE", str(folder))
    return folder


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(RUN, str(tmp_path / "run.zarr"), ADDRESS, time.time(), this_process(), Credentials("cert", "key"))


def only_file(state: Path) -> Path:
    (found,) = (state / "runs").iterdir()
    return found


def test_what_was_noted_is_found_in_files_of_the_users_own(record: Record, state: Path) -> None:
    remember(record)
    assert find(RUN) == record
    assert known(RUN, record.store) == record
    assert credentials_at(ADDRESS) == record.credentials
    assert stat.S_IMODE((state / "runs").stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(state).stat().st_mode) == 0o600
    remember(replace(record, scheduler="tls://127.0.0.1:2"))
    assert known(RUN, record.store) == replace(record, scheduler="tls://127.0.0.1:2"), "the newer one"
    assert only_file(state)


def test_a_store_is_known_by_its_place_however_it_is_written(record: Record, tmp_path: Path) -> None:
    remember(record)
    (tmp_path / "run.zarr").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run.zarr")
    for name in ("run.zarr", "run.zarr/", "./run.zarr", "link"):
        assert known(RUN, f"{tmp_path}/{name}") == record
    assert known(RUN, (tmp_path / "run.zarr").as_uri()) == record
    for run, place in ((RUN, "copy.zarr"), ("digits-bsp-000000", "run.zarr")):
        assert known(run, str(tmp_path / place)) is None


@pytest.mark.parametrize("run", ["../../etc/passwd", "a/b", "", "\udcff", "x" * 10_000, "a\0b"])
def test_the_id_of_a_run_is_no_path(run: str, record: Record, state: Path) -> None:
    """It may come from a store."""
    assert find(run) is None
    remember(replace(record, run=run))
    assert find(run) is not None
    assert only_file(state).parent == state / "runs"
    forget(run)
    assert find(run) is None


def test_a_record_is_forgotten_but_not_that_of_a_later_life(record: Record) -> None:
    remember(record)
    forget(RUN, "tls://127.0.0.1:2")
    assert find(RUN) == record
    forget(RUN, ADDRESS)
    forget(RUN, ADDRESS)
    assert find(RUN) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.chmod(0o644),
        lambda file: file.chmod(0o620),
        lambda file: file.parent.chmod(0o755),
        lambda file: file.parent.chmod(0o730),
        lambda file: file.write_text("{"),
        lambda file: file.write_text("[" * 60_000),
        lambda file: file.write_text(json.dumps({"run": RUN})),
        lambda file: file.write_text(file.read_text() + " " * (1 << 16)),
        lambda file: (file.rename(file.parent.parent / "moved"), file.symlink_to(file.parent.parent / "moved")),
        lambda file: (file.unlink(), os.mkfifo(file, 0o600)),
        lambda file: (
            file.parent.rename(file.parent.parent / "moved"),
            file.parent.symlink_to(file.parent.parent / "moved"),
        ),
    ],
    ids=["readable", "writable", "folder", "of a group", "torn", "deep", "half", "long", "link", "pipe", "moved"],
)
def test_what_others_could_have_written_and_what_is_no_record_is_not_believed(
    spoil: Callable[[Path], Any], record: Record, state: Path
) -> None:
    remember(record)
    spoil(only_file(state))
    assert find(RUN) is None
    assert known(RUN, record.store) is None
    assert credentials_at(ADDRESS) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_another_users_is_not_believed(what: str, record: Record, state: Path) -> None:
    remember(record)
    os.chown(only_file(state) if what == "file" else state / "runs", 65534, 65534)
    assert find(RUN) is None
    if what == "folder":
        with pytest.raises(OSError, match="is another user's, or open to others; make it yours alone"):
            remember(record)


def test_without_a_home_nothing_is_found_and_nothing_noted(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PSPLATFORM_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(records.Path, "home", without_home)
    assert find(RUN) is None
    forget(RUN)
    with pytest.raises(OSError, match="set PSPLATFORM_STATE to a folder of your own"):
        remember(record)


def test_where_it_lies_may_be_chosen(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder() == state
    monkeypatch.delenv("PSPLATFORM_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "psplatform"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder() == Path.home() / ".local" / "state" / "psplatform"


def test_a_place_that_cannot_be_written_is_told(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PSPLATFORM_STATE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="Not a directory|File exists"):
        remember(record)
    assert find(RUN) is None


def test_what_is_of_no_more_use_goes_when_something_is_noted(record: Record, state: Path) -> None:
    """Of programs that have ended; and what is a day old and whose scheduler nobody hears any more."""
    own = this_process()
    assert own is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        kept = [
            replace(record, run="here"),
            replace(record, run="elsewhere", program=replace(own, host="another")),
            replace(record, run="young", program=None, scheduler="tcp://127.0.0.1:1"),
            replace(record, run="heard", program=None, scheduler=heard),
        ]
        gone = [
            replace(record, run="ended", program=replace(own, began=own.began - 1)),
            replace(record, run="old", program=None, scheduler="tcp://127.0.0.1:1"),
        ]
        for one in (*kept, *gone):
            remember(one)
        for name in ("heard", "old"):
            os.utime(state / "runs" / records._file_of(name), (1, 1))
        remember(record)
    assert [one.run for one in kept if find(one.run) is None] == []
    assert [one.run for one in gone if find(one.run) is not None] == []


def test_there_are_not_more_than_so_many(record: Record, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 3)
    for number in range(5):
        remember(replace(record, run=str(number)))
        os.utime(state / "runs" / records._file_of(str(number)), (time.time() + number,) * 2)
    assert [one for one in "01234" if find(one) is not None] == ["2", "3", "4"]
    remember(replace(record, run="4"))
    assert find("2") is not None, "what is replaced makes no other one too many"
