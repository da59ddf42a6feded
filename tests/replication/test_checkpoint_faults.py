"""Whatever write goes wrong, and however: afterwards there is the old checkpoint or the new one, whole.

The faults are below all of the code: in the file system that fsspec is given, and, for folders, in the calls by which
Python opens, writes, renames and removes.  Each scenario is run once for every one of its writes and removals.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from psplatform.errors import CheckpointError, StoreError
from psplatform.replication.checkpoints.retention import load_checkpoint, newest_whole, prune
from psplatform.replication.stores.store import create_run

OLD, NEW = 10, 20
LIMIT = 400
"""More writes and removals than a scenario has: the loop over them ends by itself."""


class PowerCut(BaseException):
    """The process is gone: no handler of errors runs."""


class Faults:
    """Lets the n-th write or removal go wrong."""

    def __init__(self, kind: str) -> None:
        self.kind, self.at, self.seen = kind, 0, 0

    def arm(self, at: int) -> None:
        self.at, self.seen = at, 0

    @property
    def struck(self) -> bool:
        return 0 < self.at <= self.seen

    def due(self) -> bool:
        self.seen += 1
        return self.seen == self.at

    def error(self) -> BaseException:
        return PowerCut() if self.kind == "power-cut" else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FaultyFileSystem(MemoryFileSystem):
    """A file system in memory whose writes and removals go wrong as told."""

    protocol = "faulty"
    faults: ClassVar[Faults]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.replace("faulty://", "memory://"))
        return stripped

    def _open(self, path: str, mode: str = "rb", **words: Any) -> Any:
        if "r" in mode or not self.faults.due():
            return super()._open(path, mode, **words)
        kind, data = self.faults.kind, words.pop("data", None) or b""
        if kind == "lost":
            return MemoryFile(self, path)
        if kind != "refused":
            super()._open(path, mode, data=bytes(data)[: len(data) // 2])
        raise self.faults.error()

    def rm_file(self, path: str) -> None:
        if not self.faults.due():
            super().rm_file(path)
        elif self.faults.kind != "lost":
            raise self.faults.error()


@pytest.fixture(params=["refused", "torn", "lost", "power-cut"])
def faults(request: pytest.FixtureRequest) -> Faults:
    return Faults(request.param)


@pytest.fixture
def faulty_store(faults: Faults) -> Iterator[Callable[[], str]]:
    """Makes stores on the faulty file system."""
    FaultyFileSystem.faults = faults
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    root = uuid4().hex
    yield lambda: f"faulty://{root}/{uuid4().hex}.zarr"
    faults.arm(0)
    FaultyFileSystem().rm(f"/{root}", recursive=True)


class FaultyFile:
    """An open file whose one write goes wrong."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        if self._faults.kind == "lost":
            return len(data)
        if self._faults.kind != "refused":
            self._file.write(bytes(data)[: len(data) // 2])
        raise self._faults.error()

    def __getattr__(self, name: str) -> Any:
        raise Bypassed(f"{name!r} was asked of a file: there is a way to write besides")


class Bypassed(BaseException):
    """A write took a way on which no fault meets it."""


@pytest.fixture
def faulty_disk(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's ways to write, rename and remove, which go wrong as told once armed."""

    def opened(path: Any, mode: str = "r", *words: Any, **more: Any) -> Any:
        file = plain_open(path, mode, *words, **more)
        return FaultyFile(file, faults) if "w" in mode and faults.due() else file

    def unless_due(call: Callable[..., None]) -> Callable[..., None]:
        def called(*words: Any, **more: Any) -> None:
            if not faults.due():
                call(*words, **more)
            elif faults.kind != "lost":
                raise faults.error()

        return called

    plain_open = io.open
    monkeypatch.setattr(io, "open", opened)
    for name in ("replace", "rename", "remove", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, unless_due(getattr(os, name)))
    # The machine stays on, so nothing needs to be flushed; that flushing may fail has a test of its own.
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _second_checkpoint(sample: Any, store: str) -> bool:
    """Write a checkpoint over an older one as a run does; tell whether that was said to have worked."""
    try:
        sample.save(store, 2, NEW)
        prune(store, 1, writing=3)
    except (StoreError, PowerCut):
        return False
    return True


def _check(sample: Any, store: str, worked: bool, atomic: bool) -> int:
    version: int = sample.version_of(newest_whole(store))
    assert version in ((NEW,) if worked else (OLD, NEW))
    try:
        assert sample.version_of(load_checkpoint(store)) in (OLD, NEW)
    except CheckpointError as error:
        assert not atomic
        assert (error.number, error.previous) == (2, 1)  # noqa: PT017 - either way is right
    return version


def _try_every_fault(sample: Any, faults: Faults, make: Callable[[], str], *, atomic: bool) -> set[int]:
    """Run the scenario with each of its writes and removals going wrong in turn; return the versions that were left.

    Where the storage is not atomic, the newest checkpoint may be half a manifest; that is said, not gone round.
    """
    versions = set()
    for at in range(1, LIMIT):
        store = make()
        faults.arm(0)
        create_run(store, {"run": "digits-bsp-1a2b3c"})
        sample.save(store, 1, OLD, shards=2)
        faults.arm(at)
        worked = _second_checkpoint(sample, store)
        struck = faults.struck
        faults.arm(0)
        print(f"fault {faults.kind} at {at}")
        versions.add(_check(sample, store, worked, atomic))
        if not struck:
            assert worked
            assert at > 40
            return versions
        if at % 5 == 0:
            _check_it_goes_on(sample, store)
    raise AssertionError("the scenario never ended without a fault")


def _check_it_goes_on(sample: Any, store: str) -> None:
    """The next checkpoint is written as if nothing had been, and takes the rest away with it."""
    sample.save(store, 3, NEW + 1, shards=2)
    prune(store, 1, writing=4)
    assert sample.version_of(newest_whole(store)) == NEW + 1
    files, root = fsspec.url_to_fs(store)
    assert {path.rpartition("/")[2] for path in files.ls(f"{root}/checkpoints", detail=False)} <= {
        "00000003",
        "zarr.json",
    }


@pytest.fixture
def tiny(sample_of: Any) -> Any:
    """Enough to have every kind of object: whole chunks, torn ones, a buffer and a slot."""
    whole = sample_of()
    kept = tuple(spec for spec in whole.specs if spec.name in {"fc.1.weight", "norm.num_batches_tracked"})
    return sample_of(kept, slots=("momentum",))


def test_any_object_store_keeps_the_old_or_the_new(tiny: Any, faults: Faults, faulty_store: Callable[[], str]) -> None:
    assert _try_every_fault(tiny, faults, faulty_store, atomic=False) == {OLD, NEW}


def test_a_folder_keeps_the_old_or_the_new(tiny: Any, faults: Faults, faulty_disk: None, tmp_path: Path) -> None:
    def make() -> str:
        for store in tmp_path.iterdir():
            shutil.rmtree(store)
        return str(tmp_path / uuid4().hex)

    assert _try_every_fault(tiny, faults, make, atomic=faults.kind != "lost") == {OLD, NEW}


def test_a_first_checkpoint_that_fails_leaves_none(tiny: Any, faults: Faults, faulty_store: Callable[[], str]) -> None:
    """A run that has no other is told so, and not half of one."""
    store = faulty_store()
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    faults.arm(5)
    with pytest.raises((StoreError, PowerCut)):
        tiny.save(store, 1, NEW)
    with pytest.raises(StoreError, match="holds no complete checkpoint"):
        newest_whole(store)


def test_a_disk_that_cannot_flush_is_named(sample: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be gone after a loss of power is not sealed."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    sample.save(store, 1, OLD)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match=r"cannot write checkpoints/00000002/.*Input/output error"):
            sample.save(store, 2, NEW)
    assert sample.version_of(newest_whole(store)) == OLD


def test_everything_is_flushed_before_the_manifest_appears(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a loss of power never leaves a manifest without what it names."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    flushed: set[str] = set()
    before: list[set[str]] = []
    replace = os.replace

    def renamed(source: Any, target: Any) -> None:
        if Path(target).name == "manifest.jsonl":
            before.append(set(flushed))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda opened: flushed.add(str(Path(f"/proc/self/fd/{opened}").readlink())))
    monkeypatch.setattr(os, "replace", renamed)
    tiny.save(store, 1, OLD)
    folder = tmp_path / "run.zarr" / "checkpoints" / "00000001"
    named = json.loads((folder / "manifest.jsonl").read_bytes().splitlines()[1])["objects"]
    assert [{str(folder / name) for name in named} - paths for paths in before] == [set()]
    assert str(folder) in flushed


FULL = """
import resource, sys
import numpy as np
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.tensors.layout import Layout, TensorSpec
contents = Contents(Layout.of([TensorSpec("w", (50000,), "float32", "parameter")], shards=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    state = {"parameter.float32": np.ones(50000, np.float32)}
    CheckpointWriter(sys.argv[1], 2, contents).write_shard(0, state, position=1, version=1, plain={})
except StoreError as error:
    print(error)
"""


def test_a_place_without_room_is_named_in_one_sentence(sample: Any, tmp_path: Path) -> None:
    """The system itself refuses, in a process of its own; the checkpoint before stays."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    sample.save(store, 1, OLD)
    done = subprocess.run([sys.executable, "-c", FULL, store], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"cannot write checkpoints/00000002/model/w/c/0 to the store {store} (")
    assert "File too large" in line
    assert line.endswith("; free or mend it, or choose another store")
    assert sample.version_of(newest_whole(store)) == OLD


def test_a_place_that_cannot_be_reached_is_named(tmp_path: Path, sample: Any) -> None:
    (tmp_path / "run.zarr").write_text("x")
    with pytest.raises(StoreError, match=r"cannot write checkpoints/00000001/.* to the store .*run\.zarr"):
        sample.save(str(tmp_path / "run.zarr"), 1, NEW)
    with pytest.raises(StoreError, match="carrier-pigeon"):
        sample.save("carrier-pigeon://coop", 1, NEW)
