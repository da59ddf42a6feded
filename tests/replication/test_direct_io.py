"""Files written past the page cache hold what was given, and what file systems cannot do is done as ever."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from psplatform.replication.stores import direct_io
from psplatform.replication.stores.checksums import Checksum, checksum
from psplatform.replication.stores.direct_io import BLOCK_BYTES, LEAST_BYTES, PIECE_BYTES
from psplatform.replication.stores.objects import ObjectFolder

SIZES = [
    *(0, 1, BLOCK_BYTES, LEAST_BYTES - 1, LEAST_BYTES, LEAST_BYTES + 1, LEAST_BYTES + BLOCK_BYTES),
    *(2 * PIECE_BYTES - 1, 2 * PIECE_BYTES, 2 * PIECE_BYTES + BLOCK_BYTES + 1),
]
ODD = 2 * PIECE_BYTES + BLOCK_BYTES + 1


def content(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def write(path: Path, data: bytes | memoryview) -> None:
    """Write a file; what was summed up on the way, in whatever pieces, must be its content."""
    total = Checksum()
    direct_io.write(path, data, total)
    assert str(total) == checksum(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which files can be written past the page cache, as far as a single block tells."""
    path = tmp_path / "probe"
    with path.open("wb") as file:
        try:
            direct_io.fcntl(file, direct_io.F_SETFL, getattr(os, "O_DIRECT"))  # noqa: B009  Linux alone has it
            os.pwrite(file.fileno(), mmap.mmap(-1, BLOCK_BYTES), 0)
        except (AttributeError, OSError):
            pytest.skip("nothing can be written directly here")
    if pages_in_memory(path):
        pytest.skip("what is written directly here lies in memory all the same")
    return tmp_path


def pages_in_memory(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        begin = np.frombuffer(mapped, dtype=np.uint8)
        found = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE + 1))()
        assert libc.mincore(ctypes.c_void_p(begin.ctypes.data), ctypes.c_size_t(len(mapped)), found) == 0
        del begin
    return sum(each & 1 for each in found)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_holds_what_was_given_and_nothing_of_before(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * PIECE_BYTES)
    write(path, content(size))
    assert path.read_bytes() == content(size)


def test_memory_that_begins_anywhere_can_be_written(tmp_path: Path) -> None:
    whole = content(ODD + 3)
    write(tmp_path / "file", memoryview(whole)[3:])
    assert (tmp_path / "file").read_bytes() == whole[3:]


def test_objects_of_a_store_do_not_lie_in_memory(folder: Path) -> None:
    (folder / "plain").write_bytes(content(ODD))
    assert pages_in_memory(folder / "plain") == ODD // mmap.PAGESIZE + 1, "this does not measure what it should"
    ObjectFolder(str(folder), "objects").put("one", content(ODD))
    assert pages_in_memory(folder / "objects" / "one") <= 1, "more than what is left of the last block"


@pytest.mark.parametrize("refused_at", [0, PIECE_BYTES, 2 * PIECE_BYTES])
def test_where_a_block_is_refused_the_rest_is_written_as_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refused_at: int
) -> None:
    real, asked = os.pwrite, []

    def pwrite(file: int, data: bytes, offset: int) -> int:
        asked.append(offset)
        if offset == refused_at:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    write(folder / "file", content(ODD))
    assert (folder / "file").read_bytes() == content(ODD)
    assert asked[-1] == refused_at


def test_where_the_file_system_cannot_it_is_written_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = direct_io.fcntl

    def fcntl(file: int, command: int, flags: int = 0) -> int:
        if command == direct_io.F_SETFL and flags & direct_io._DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(file, command, flags)

    monkeypatch.setattr(direct_io, "fcntl", fcntl)
    write(tmp_path / "file", content(ODD))
    assert (tmp_path / "file").read_bytes() == content(ODD)


@pytest.mark.parametrize("most", [BLOCK_BYTES, 3 * BLOCK_BYTES, 1000])
def test_writes_that_stop_short_are_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Behind one that ends within a block, nothing is aligned any more."""
    real, taken = os.pwrite, []

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if len(data) > most:
            data = data[:most] if not most % BLOCK_BYTES else data[:BLOCK_BYTES]
        taken.append(min(most, real(file, data, offset)))
        return taken[-1]

    monkeypatch.setattr(os, "pwrite", pwrite)
    write(folder / "file", content(LEAST_BYTES + 5))
    assert (folder / "file").read_bytes() == content(LEAST_BYTES + 5)
    assert sum(taken) == (LEAST_BYTES if not most % BLOCK_BYTES else most)


@pytest.fixture
def room() -> Iterator[int]:
    """How much a file may hold for now, in bytes: neither a whole block nor a whole piece."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = PIECE_BYTES + BLOCK_BYTES + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_there_is_no_room_for_is_told(tmp_path: Path, room: int) -> None:
    with pytest.raises(OSError, match="File too large"):
        write(tmp_path / "file", content(ODD))
    assert (tmp_path / "file").read_bytes() == content(ODD)[:room], "it is the room that was missing"
