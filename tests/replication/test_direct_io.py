"""Files written past the system's memory hold what was given, and what file systems cannot do is done as ever."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psplatform.replication import direct_io
from psplatform.replication.direct_io import BLOCK_BYTES, LEAST_BYTES, PIECE_BYTES, write

SIZES = [
    *(0, 1, BLOCK_BYTES, LEAST_BYTES - 1, LEAST_BYTES, LEAST_BYTES + 1, LEAST_BYTES + BLOCK_BYTES),
    *(2 * PIECE_BYTES - 1, 2 * PIECE_BYTES, 2 * PIECE_BYTES + BLOCK_BYTES + 1),
]
ODD = 2 * PIECE_BYTES + BLOCK_BYTES + 1


def content(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_holds_what_was_given_and_nothing_of_before(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * PIECE_BYTES)
    write(path, content(size))
    assert path.read_bytes() == content(size)


def test_memory_that_begins_anywhere_can_be_written(tmp_path: Path) -> None:
    whole = content(ODD + 3)
    write(tmp_path / "file", memoryview(np.frombuffer(whole, dtype=np.uint8)[3:].data))
    assert (tmp_path / "file").read_bytes() == whole[3:]


def test_what_was_written_does_not_lie_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        try:
            direct_io.fcntl(file, direct_io.F_SETFL, getattr(os, "O_DIRECT"))  # noqa: B009  Linux alone has it
        except (AttributeError, OSError):
            pytest.skip("this file system writes nothing directly")
    path.write_bytes(content(ODD))
    assert pages_in_memory(path) == ODD // BLOCK_BYTES + 1, "this does not measure what it should"
    write(path, content(ODD))
    assert pages_in_memory(path) <= 1, "more than what is left of the last block"


def pages_in_memory(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        begin = np.frombuffer(mapped, dtype=np.uint8)
        found = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE + 1))()
        assert libc.mincore(ctypes.c_void_p(begin.ctypes.data), ctypes.c_size_t(len(mapped)), found) == 0
        del begin
    return sum(each & 1 for each in found)


def refuse(fails_at: int, number: int) -> Any:
    calls = iter(range(1000))
    real = os.pwrite

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if next(calls) == fails_at:
            raise OSError(number, os.strerror(number))
        return real(file, data, offset)

    return pwrite


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_where_a_block_is_refused_the_rest_is_written_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    monkeypatch.setattr(os, "pwrite", refuse(fails_at, errno.EINVAL))
    write(tmp_path / "file", content(ODD))
    assert (tmp_path / "file").read_bytes() == content(ODD)


def test_where_the_file_system_cannot_it_is_written_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = direct_io.fcntl

    def fcntl(file: int, command: int, flags: int = 0) -> int:
        if command == direct_io.F_SETFL and flags & direct_io._DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(file, command, flags)

    monkeypatch.setattr(direct_io, "fcntl", fcntl)
    write(tmp_path / "file", content(ODD))
    assert (tmp_path / "file").read_bytes() == content(ODD)


@pytest.mark.parametrize("step", [1000, BLOCK_BYTES, 3 * BLOCK_BYTES + 1])
def test_writes_that_stop_short_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: real(file, bytes(data[:step]), offset))
    write(tmp_path / "file", content(LEAST_BYTES + 5))
    assert (tmp_path / "file").read_bytes() == content(LEAST_BYTES + 5)


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(os, "pwrite", refuse(fails_at, errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file", content(ODD))
