"""Shared memory: seen by everybody on the host, and left behind by nobody."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from psplatform.runtime.dataplane import segments
from psplatform.runtime.dataplane.segments import Segment, SegmentName, sweep

ANSWER_LIMIT_S = 180.0

OWNER = """
import sys
from psplatform.runtime.dataplane.segments import Segment
segment = Segment.create(sys.argv[1], "slab", 64)
print(segment.name.path, flush=True)
sys.stdin.read()
"""

OWNER_WITH_A_CHILD = """
import os, sys
from psplatform.runtime.dataplane.segments import Segment
segment = Segment.create(sys.argv[1], "shard0", 64)
if os.fork():
    print(segment.name.path, flush=True)
sys.stdin.read()
os._exit(0)
"""

KILLED_WHILE_RESERVING = """
import os, signal, sys
from psplatform.runtime.dataplane import segments
reserve = os.posix_fallocate
def reserve_and_die(*arguments):
    reserve(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
segments.os.posix_fallocate = reserve_and_die
segments.Segment.create(sys.argv[1], "slab", 64)
"""

OWNER_IN_A_FOLDER = (
    """
import sys
from pathlib import Path
from psplatform.runtime.dataplane import segments
segments._folders = lambda: [Path(sys.argv[2])]
"""
    + OWNER
)

FilesOf = Callable[[str], list[Path]]


def files_open(path: str) -> int:
    """How often this process has the file at `path` open: others come and go with what is collected meanwhile."""
    return sum(os.path.lexists(each) and str(each.readlink()) == path for each in Path("/proc/self/fd").iterdir())


def reader_of(path: str) -> Segment:
    """Open what another process has made."""
    reader = Segment.open(SegmentName(path, int(np.fromfile(path, np.int64, 1)[0])))
    assert reader is not None
    return reader


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let segments lie in a folder that no other process of this host sweeps."""
    monkeypatch.setattr(segments, "_folders", lambda: [tmp_path])
    return tmp_path


@contextmanager
def other_owner(
    run: str, program: str = OWNER, folder: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process that owns a segment of the run, in that folder if one is given; yield it and the path."""
    where = [OWNER_IN_A_FOLDER, run, str(folder)] if folder else [program, run]
    command = [sys.executable, "-c", *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], ANSWER_LIMIT_S)
            assert ready, f"the owner made no segment within {ANSWER_LIMIT_S:g} s"
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_what_the_owner_writes_is_what_others_read(run_id: str) -> None:
    """Header and content are the same memory under both mappings."""
    owner = Segment.create(run_id, "slab", 64)
    reader = Segment.open(owner.name)
    assert reader is not None
    owner.content[:3] = 7
    owner.header[2] = 11
    assert reader.content[:4].tolist() == [7, 7, 7, 0]
    assert int(reader.header[2]) == 11


def test_a_new_segment_is_all_zero_and_aligned(run_id: str) -> None:
    """The content begins at a cache line, as flat vectors need it."""
    segment = Segment.create(run_id, "slab", 1000)
    assert segment.content.numel() == 1000
    assert not segment.content.any()
    assert not segment.header.any()
    assert segment.content.data_ptr() % 64 == 0


def test_a_segment_of_nothing_can_be_made(run_id: str) -> None:
    """A shard may own no element at all."""
    owner = Segment.create(run_id, "shard3", 0)
    assert Segment.open(owner.name) is not None


def test_another_file_under_the_same_path_is_not_opened(run_id: str) -> None:
    """On another host the path may lead to another file: the mark tells them apart."""
    owner = Segment.create(run_id, "slab", 64)
    assert Segment.open(replace(owner.name, mark=owner.name.mark + 1)) is None


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 5000], ids=["empty", "short", "foreign"])
def test_a_file_that_is_no_segment_is_not_opened(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "psplatform-x-slab-0"
    path.write_bytes(content)
    assert Segment.open(segments.SegmentName(str(path), 5)) is None


def test_a_segment_that_is_gone_is_not_opened(run_id: str, files_of: FilesOf) -> None:
    """Its name vanishes with `remove`; who has it mapped keeps it."""
    owner = Segment.create(run_id, "slab", 64)
    reader = Segment.open(owner.name)
    owner.remove()
    owner.remove()  # a second time changes nothing
    assert files_of(run_id) == []
    assert Segment.open(owner.name) is None
    assert reader is not None
    reader.content[0] = 3
    assert int(owner.content[0]) == 3


def test_a_reader_never_removes_the_name(run_id: str, files_of: FilesOf) -> None:
    owner = Segment.create(run_id, "slab", 64)
    reader = Segment.open(owner.name)
    assert reader is not None
    reader.remove()
    assert files_of(run_id) == [Path(owner.name.path)]


def write_here(place: memoryview) -> None:
    place[:1] = b"x"


def write_in_a_thread(place: memoryview) -> None:
    thread = threading.Thread(target=write_here, args=(place,))
    thread.start()
    thread.join(ANSWER_LIMIT_S)


def write_in_a_system_call(place: memoryview) -> None:
    with Path("/dev/zero").open("rb", buffering=0) as zeros:
        assert zeros.readinto(place[:1]) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not told")
@pytest.mark.parametrize("write", [write_here, write_in_a_thread, write_in_a_system_call])
def test_what_is_written_through_a_private_mapping_is_noticed(
    run_id: str, write: Callable[[memoryview], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Segment.create(run_id, "server", 64 * mmap.PAGESIZE)
    reader = Segment.open(owner.name, private=True)
    assert reader is not None
    reader.populate({"all": reader.content})
    looks, pread = list[int](), os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, place: looks.append(count) or pread(file, count, place))
    for _ in range(100):
        assert not reader.has_pages_of_its_own
    assert 1 <= len(looks) < 50, "a few faults may come of what this process does meanwhile"
    write(memoryview(reader.content.numpy())[-mmap.PAGESIZE :])
    for _ in range(2):
        assert reader.has_pages_of_its_own
    reader.forget_pages_of_its_own()
    assert not reader.has_pages_of_its_own
    owner.remove()


def test_a_segment_is_private_to_the_user(run_id: str) -> None:
    """Nobody else on the host reads parameters or writes gradients."""
    assert Path(Segment.create(run_id, "slab", 64).name.path).stat().st_mode & 0o777 == 0o600


def test_a_sweep_removes_the_segments_of_the_dead(run_id: str, files_of: FilesOf) -> None:
    """A process that got SIGKILL leaves its segment's name; the next sweep takes it away."""
    with other_owner(run_id) as (process, path):
        sweep(run_id)
        assert files_of(run_id) == [Path(path)]
        process.send_signal(signal.SIGKILL)
        process.wait(ANSWER_LIMIT_S)
        sweep(run_id)
    assert files_of(run_id) == []


def test_readers_know_whether_the_owner_lives(run_id: str) -> None:
    """Stopped it lives; what it shows may still count then, and no longer once it is killed."""
    with other_owner(run_id) as (process, path):
        reader = reader_of(path)
        assert reader.owner_lives
        process.send_signal(signal.SIGSTOP)
        assert reader.owner_lives
        process.send_signal(signal.SIGKILL)
        process.wait(ANSWER_LIMIT_S)
        assert not reader.owner_lives
        assert not reader.owner_lives, "looking takes no lock"


def test_a_segment_that_was_removed_before_anybody_looked_has_no_owner(run_id: str) -> None:
    owner = Segment.create(run_id, "slab", 64)
    reader = Segment.open(owner.name)
    assert reader is not None
    owner.remove()
    assert not reader.owner_lives


def test_looking_whether_the_owner_lives_opens_one_file_and_no_more(run_id: str) -> None:
    """And a segment that nobody asks of takes none."""
    owner = Segment.create(run_id, "slab", 64)
    path = owner.name.path
    before = files_open(path)
    reader = Segment.open(owner.name)
    assert reader is not None
    mapped = files_open(path)
    assert mapped - before == 1, "that of the mapping"
    assert all(reader.owner_lives for _ in range(3))
    assert files_open(path) - mapped == 1
    del reader
    gc.collect()
    assert files_open(path) == before


def test_an_owner_is_dying_although_its_lock_is_still_held(run_id: str) -> None:
    """A process gives back its memory before its files, which takes long enough for another to get its place.

    Here a child has the file as well, and holds the lock until it ends.
    """
    with other_owner(run_id, OWNER_WITH_A_CHILD) as (process, path):
        reader = reader_of(path)
        assert not reader.owner_is_dying
        process.kill()
        process.wait(ANSWER_LIMIT_S)
        assert reader.owner_lives
        assert reader.owner_is_dying


def test_a_stopped_owner_is_not_dying(run_id: str) -> None:
    with other_owner(run_id) as (process, path):
        reader = reader_of(path)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert not reader.owner_is_dying
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("owner", [(0, 0, 0), (2**22, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_an_owner_that_cannot_be_seen_may_be_dying(run_id: str, owner: tuple[int, int, int]) -> None:
    """In another namespace, another process with its number, or on a system that tells nothing."""
    segment = Segment.create(run_id, "slab", 64)
    reader = Segment.open(segment.name)
    assert reader is not None
    found = np.memmap(segment.name.path, np.int64, "r+", shape=(4,))
    assert found[1] == os.getpid()
    found[1:] = found[1:] + np.array(owner) if any(owner) else 0
    assert reader.owner_is_dying
    found[1:] = os.getpid(), 0, 0
    assert reader.owner_is_dying, "that does not change"
    assert not segment.owner_is_dying, "it knows that it lives"


def test_a_sweep_does_not_look_like_an_owner(run_id: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that asks while a sweep removes what a dead owner has left hears that it is dead."""
    unlink, said = Path.unlink, []

    def look_and_unlink(path: Path, *, missing_ok: bool = False) -> None:
        said.append(reader.owner_lives)
        unlink(path, missing_ok=missing_ok)

    with other_owner(run_id, folder=own_folder) as (process, path):
        reader = reader_of(path)
        process.kill()
        process.wait(ANSWER_LIMIT_S)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", look_and_unlink)
            sweep(run_id)
    assert said == [False]


def test_an_owner_knows_that_it_lives_and_other_readers_of_its_process_do(run_id: str) -> None:
    owner = Segment.create(run_id, "slab", 64)
    reader = Segment.open(owner.name)
    assert reader is not None
    assert owner.owner_lives
    assert reader.owner_lives


def test_a_sweep_leaves_its_own_process_alone(run_id: str, files_of: FilesOf) -> None:
    """A segment is in use as long as its owner holds it, also for sweeps of the owner's own process."""
    owner = Segment.create(run_id, "slab", 64)
    sweep(run_id)
    sweep()
    assert files_of(run_id) == [Path(owner.name.path)]


def test_a_sweep_keeps_to_the_run_and_the_role_that_it_is_given(
    run_id: str, files_of: FilesOf, own_folder: Path
) -> None:
    """What other runs and other roles lost is theirs to sweep."""
    with other_owner(run_id, folder=own_folder) as (process, path):
        process.kill()
        process.wait(ANSWER_LIMIT_S)
        sweep(f"{run_id}x")
        sweep(run_id, "shard")
        assert files_of(run_id) == [Path(path)]
        sweep(run_id, "slab")
    assert files_of(run_id) == []


def test_a_segment_whose_owner_died_while_making_it_is_swept(run_id: str, files_of: FilesOf) -> None:
    """Reserving gigabytes takes a while, and SIGKILL may come in the middle of it."""
    command = [sys.executable, "-c", KILLED_WHILE_RESERVING, run_id]
    done = subprocess.run(command, timeout=ANSWER_LIMIT_S, check=False)
    assert done.returncode == -signal.SIGKILL
    sweep(run_id)
    assert files_of(run_id) == []


def test_an_owner_that_forgets_its_segment_frees_it(run_id: str) -> None:
    """The lock is held by the mapping alone: nothing of the file stays open beside it."""
    segment = Segment.create(run_id, "slab", 64)
    name = Path(segment.name.path).name
    assert _open_files(name) > 0
    segment.remove()
    del segment
    gc.collect()
    assert _open_files(name) == 0


def _open_files(name: str) -> int:
    return sum(name in str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink())


def _full(folders: list[Path]) -> Callable[[int, int, int], None]:
    """Stand for `os.posix_fallocate` on file systems without room in `folders`."""
    reserve = os.posix_fallocate

    def refuse(file: int, start: int, size: int) -> None:
        if Path(f"/proc/self/fd/{file}").resolve().parent in folders:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(file, start, size)

    return refuse


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let segments lie in either of two folders."""
    folders = [tmp_path / "memory", tmp_path / "temporary"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(segments, "_folders", lambda: folders)
    return folders


def test_a_segment_goes_to_the_temporary_folder_where_memory_is_full(
    two_folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often have 64 MB of shared memory only."""
    monkeypatch.setattr(os, "posix_fallocate", _full(two_folders[:1]))
    segment = Segment.create("run", "slab", 64)
    assert Path(segment.name.path).parent == two_folders[1]
    assert list(two_folders[0].iterdir()) == []
    segment.remove()


def test_where_there_is_no_room_it_is_said_and_nobody_else_can_open_it(
    two_folders: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Instead of a crash at the first write: how much was wanted, and where to free it."""
    monkeypatch.setattr(os, "posix_fallocate", _full(two_folders))
    segment = Segment.create("run", "slab", 5_000_000)
    (said,) = [one.getMessage() for one in caplog.records if one.name == segments.LOGGER.name]
    assert re.search(r"no room for 5 MB .* in .*memory and .*temporary: .* sent instead.*; free some there", said)
    assert [path for folder in two_folders for path in folder.iterdir()] == []
    segment.content[-1] = 7
    assert len(segment.content) == 5_000_000
    assert not segment.exists
    assert Segment.open(segment.name) is None
    segment.remove()
