"""Whose a store is: the run's own, nobody's because it was removed, or another's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from psplatform.errors import StoreError
from psplatform.replication.stores import guard as guards
from psplatform.replication.stores.guard import StoreGone, StoreGuard, StoreTaken
from psplatform.replication.stores.objects import file_system_of
from psplatform.replication.stores.store import create_run, describe_run, update_run

MINE, OTHERS = "digits-bsp-1a2b3c", "mlp-asp-4d5e6f"


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name a place for a store, where looks cost nothing and where each is a request."""
    monkeypatch.setattr(guards, "_REMOTE_LOOK_S", 0.0)
    name = f"memory://{uuid4().hex}/run.zarr"
    yield str(tmp_path / "runs" / "run.zarr") if request.param == "local" else name
    MemoryFileSystem.store.clear()


def remove(store: str) -> None:
    files, root = file_system_of(store)
    files.rm(root, recursive=True)


def test_a_store_of_ones_own_may_be_written_to(store: str) -> None:
    create_run(store, {"run": MINE})
    guard = StoreGuard(store, MINE, 1)
    guard.check()
    update_run(store, outcome="updates")
    guard.check()
    assert guard.within(lambda: "written") == "written"


def test_one_that_was_removed_is_noticed_before_anything_is_written(store: str) -> None:
    create_run(store, {"run": MINE})
    guard = StoreGuard(store, MINE, 1)
    guard.check()
    remove(store)
    written: list[str] = []
    with pytest.raises(StoreGone, match=f"was removed while run {MINE} went on"):
        guard.within(lambda: written.append("a part"))
    assert written == []


def test_what_was_written_before_and_is_missing_was_removed(store: str) -> None:
    create_run(store, {"run": MINE})
    files, root = file_system_of(store)
    files.makedirs(f"{root}/log", exist_ok=True)
    files.pipe_file(f"{root}/log/first", b"")
    guard = StoreGuard(store, MINE, 1)
    guard.check("log/first")
    files.rm_file(f"{root}/log/first")
    with pytest.raises(StoreGone, match="log/first is missing in"):
        guard.check("log/first")


def test_another_runs_store_is_never_written_to_and_both_are_named(store: str) -> None:
    create_run(store, {"run": MINE})
    guard = StoreGuard(store, MINE, 1)
    guard.check()
    remove(store)
    create_run(store, {"run": OTHERS})
    for attempt in (guard.check, lambda: guard.renew({"run": MINE})):
        with pytest.raises(StoreTaken, match=f"now holds run {OTHERS}: it was removed while run {MINE} went on"):
            attempt()
    assert describe_run(store)["run"] == OTHERS


def test_a_run_that_another_program_goes_on_with_is_anothers(store: str) -> None:
    create_run(store, {"run": MINE, "term": 5})
    with pytest.raises(StoreTaken, match=r"another program goes on with run .* \(term 5, not 1\)"):
        StoreGuard(store, MINE, 1).check()


def test_one_that_was_removed_is_described_anew(store: str) -> None:
    """As it was, so that it is found, read and recovered like any other."""
    description = {"run": MINE, "job": {"workers": 2}, "scheduler": "tcp://here:1"}
    create_run(store, description)
    before = describe_run(store)
    remove(store)
    guard = StoreGuard(store, MINE, 1)
    guard.renew(description)
    guard.check()
    assert describe_run(store) == before
    guard.renew(description)
    assert describe_run(store) == before, "a second time changes nothing"


def test_what_fails_because_the_store_is_removed_meanwhile_says_so(store: str) -> None:
    create_run(store, {"run": MINE})

    def fail() -> None:
        remove(store)
        raise StoreError("cannot write", store=store)

    with pytest.raises(StoreGone):
        StoreGuard(store, MINE, 1).within(fail)


def test_a_storage_that_fails_is_neither_gone_nor_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a store that is out of reach for a moment would be made anew."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": MINE})

    def fail(path: str) -> os.stat_result:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(guards.os, "stat", fail)
    with pytest.raises(StoreError, match="cannot look into the store .*Input/output error") as caught:
        StoreGuard(store, MINE, 1).check()
    assert not isinstance(caught.value, StoreGone | StoreTaken)


def test_a_file_in_its_place_is_no_store(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    store.write_text("notes")
    with pytest.raises(StoreTaken, match="now is a file"):
        StoreGuard(str(store), MINE, 1).check()


@pytest.mark.parametrize("links", [True, False])
def test_a_description_is_made_whole_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Also on file systems that have no links."""
    store = tmp_path / "runs" / "run.zarr"

    def refuse(*places: object) -> None:
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(guards.os, "link", refuse)
    StoreGuard(str(store), MINE, 1).renew({"run": MINE})
    assert [path.name for path in store.iterdir()] == ["zarr.json"]
    shutil.rmtree(store.parent)


def test_a_store_that_is_not_local_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a request or two; what is written meanwhile may be lost with the store."""
    store, now = f"memory://{uuid4().hex}/run.zarr", [100.0]
    monkeypatch.setattr(guards.time, "monotonic", lambda: now[0])
    create_run(store, {"run": MINE})
    guard = StoreGuard(store, MINE, 1)
    guard.check()
    remove(store)
    guard.check()
    now[0] += guards._REMOTE_LOOK_S
    with pytest.raises(StoreGone):
        guard.check()
