"""Memory shared by the processes of one host, and left behind by nobody.

A segment is a file in memory (``/dev/shm``; in the temporary folder where that is missing or too small) mapped by
everybody who knows its path.  Its space is reserved when it is made, so that a full file system shows there and then
and not in a crash at the first write; what finds no room lies in memory that nobody else can map, and its content is
sent.  Its owner holds a lock on it that the kernel drops when the owner dies:
`sweep` removes segments without an owner, and never one that is in use.  It drops it late: the memory of a process that
was killed is given back before its files are closed, which takes 15 ms per 600 MB and more, and meanwhile others know
already that it is lost.  So the header names the owner, and `owner_is_dying` asks the kernel.  A random mark in the
header tells whether two processes see the same file under the same path.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import logging
import mmap
import os
import resource
import sys
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from psplatform.runtime.comms.processes import NotSeen, Witness, mark_of_this_process

LOGGER: Final = logging.getLogger(__name__)

HEADER_BYTES: Final = 4096
_PREFIX: Final = "psplatform-"
_POPULATE_READ: Final = 22
"""Linux's MADV_POPULATE_READ, which Python has no name for; kernels before 5.14 refuse it."""

_FIELDS: Final = 16
_MARK: Final = slice(0, 1)
_OWNER: Final = slice(1, 4)
_OWN: Final = 4

_PAGEMAP: Final = Path("/proc/self/pagemap")
_THERE: Final = np.uint64(1 << 63 | 1 << 62)
_OF_A_FILE: Final = np.uint64(1 << 61)
"""Bits of a page in Linux's pagemap: one that is in memory or swapped, and of no file, was copied on write."""


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What another process needs to open a segment."""

    path: str
    mark: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where vectors lie: in which segment, and from which byte of its content on."""

    segment: SegmentName
    at: int


class Segment:
    """A mapped segment: a header of 64-bit fields, and bytes.

    Attributes
    ----------
    header
        ``int64[12]`` for the owner to use, shared.
    content
        ``uint8[n]`` torch tensor on the shared bytes, aligned to 64.
    """

    def __init__(self, path: Path | None, memory: mmap.mmap, *, owner: bool = False, private: bool = False) -> None:
        self._path = path
        self._lock: int | None = None
        self._owner, self._private = owner, private
        self._map = memory
        self._found_none_at: int | None = None
        fields = np.frombuffer(self._map, np.int64, _FIELDS)
        self._mark, self._made_by = fields[_MARK], fields[_OWNER]
        if owner:
            self._made_by[:] = mark_of_this_process()
            self._mark[0] = uuid.uuid4().int & (2**62 - 1)
        self.header: NDArray[np.int64] = fields[_OWN:]
        self.content = torch.frombuffer(self._map, dtype=torch.uint8, offset=HEADER_BYTES)

    @property
    def name(self) -> SegmentName:
        """What another process needs to open it."""
        return SegmentName(str(self._path or ""), int(self._mark[0]))

    @property
    def exists(self) -> bool:
        """Whether others can still open it."""
        return self._path is not None and self._path.exists()

    @property
    def owner_lives(self) -> bool:
        """Whether the process that has made this lives, be it stopped: the kernel takes its lock away at its end.

        That is some time after others may have noticed its death: see `owner_is_dying`.
        """
        if self._owner:
            return True
        try:
            if self._lock is None:  # opened for who asks: each is one more open file
                self._lock = os.open(str(self._path), os.O_RDONLY)
                weakref.finalize(self, os.close, self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # it was removed
            return False
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        return False

    @property
    def owner_is_dying(self) -> bool:
        """Whether the process that has made this is seen to end, or cannot be seen.

        As soon as any other process has noticed that it dies, this is true: so it tells whether what lies here may have
        been replaced because of that.
        """
        if self._owner:
            return False
        return self._witness is None or self._witness.sees_it_dying()

    @cached_property
    def _witness(self) -> Witness | None:
        try:
            return Witness(tuple(self._made_by.tolist()))
        except NotSeen:
            return None

    @classmethod
    def create(cls, run: str, role: str, size: int) -> Segment:
        """Make a segment of `size` bytes, all zero, owned by this process; where there is no room, one of its own."""
        file_name = f"{_PREFIX}{run}-{role}-{uuid.uuid4().hex[:8]}"
        for folder in _folders():
            # Hidden and empty until it is locked, so that no sweep takes it for one without an owner.
            hidden, path = folder / f".{file_name}", folder / file_name
            file = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.posix_fallocate(file, 0, HEADER_BYTES + max(size, 1))
                hidden.rename(path)
                segment = cls(path, mmap.mmap(file, 0), owner=True)
            except OSError as error:
                hidden.unlink(missing_ok=True)
                if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
                    raise
            else:
                atexit.register(segment.remove)
                return segment
            finally:
                os.close(file)  # the mapping keeps its own descriptor, and with it the lock
        places = " and ".join(str(folder) for folder in _folders())
        text = (
            "no room for %.0f MB of shared memory in %s: what lies there is sent instead, in more time; free some there"
        )
        LOGGER.warning(text, size / 1e6, places)
        return cls(None, mmap.mmap(-1, HEADER_BYTES + max(size, 1)), owner=True)

    @classmethod
    def open(cls, name: SegmentName, *, private: bool = False) -> Segment | None:
        """Map the segment of that name, or return ``None`` if this process cannot see it.

        Parameters
        ----------
        private
            Whether what is written through this mapping stays in it, and hides what others write there later.
        """
        try:
            file = os.open(name.path, os.O_RDWR)
        except OSError:
            return None
        try:
            flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
            segment = cls(Path(name.path), mmap.mmap(file, 0, flags=flags), private=private)
        except (OSError, ValueError):
            return None
        finally:
            os.close(file)
        return segment if segment.name.mark == name.mark else None

    def populate(self, vectors: Mapping[str, torch.Tensor]) -> None:
        """Map the pages of vectors that lie here now: who first reads them is not held up by a fault at each page."""
        if sys.platform != "linux":
            return
        begin = self.content.data_ptr() - HEADER_BYTES
        for vector in [one for one in vectors.values() if one.numel()]:
            start = (vector.data_ptr() - begin) // mmap.PAGESIZE * mmap.PAGESIZE
            stop = vector.data_ptr() - begin + vector.numel() * vector.element_size()
            with contextlib.suppress(OSError):  # it costs time only
                self._map.madvise(_POPULATE_READ, start, stop - start)

    @property
    def has_pages_of_its_own(self) -> bool:
        """Whether something was written through a private mapping; true where the system does not tell.

        Whichever thread or system call writes to a page first, the kernel counts a fault of this process.  Where it has
        counted none since none of the pages was found here, they are not looked at: that takes 50 ns for each.
        """
        faults = _faults()
        if faults == self._found_none_at:
            return False
        found = self._finds_pages_of_its_own()
        if not found:
            self._found_none_at = faults
        return found

    def _finds_pages_of_its_own(self) -> bool:
        begin = (self.content.data_ptr() - HEADER_BYTES) // mmap.PAGESIZE
        try:
            with _PAGEMAP.open("rb", buffering=0) as pagemap:
                found = os.pread(pagemap.fileno(), len(self._map) // mmap.PAGESIZE * 8, begin * 8)
        except OSError:
            return True
        pages = np.frombuffer(found, np.uint64)
        seen_all = len(pages) * mmap.PAGESIZE == len(self._map) // mmap.PAGESIZE * mmap.PAGESIZE
        return not seen_all or bool((((pages & _THERE) != 0) & ((pages & _OF_A_FILE) == 0)).any())

    def forget_pages_of_its_own(self) -> None:
        """Undo what was written through a private mapping."""
        if self._private:
            self._map.madvise(mmap.MADV_DONTNEED)

    def remove(self) -> None:
        """Remove the name, if this process owns it; those that have it mapped keep it until the last one is gone."""
        if self._owner and self._path is not None:
            self._path.unlink(missing_ok=True)
            atexit.unregister(self.remove)


def _faults() -> int:
    """Count the pages that this process has faulted on, in all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def sweep(run: str = "", role: str = "") -> None:
    """Remove this host's segments whose owner is dead; of one run, or of one role in it, if named."""
    initial_role = f"{_PREFIX}{run}-{role}" if run else _PREFIX
    for folder in _folders():
        for path in sorted([*folder.glob(f"{initial_role}*"), *folder.glob(f".{initial_role}*")]):
            with contextlib.suppress(OSError), _locked(path):
                if path.stat().st_size:
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_RDWR)
    try:
        # Shared: a reader that tests the lock meanwhile must not mistake this for the owner's.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


def _folders() -> list[Path]:
    memory = Path("/dev/shm")  # noqa: S108  where Linux keeps shared memory
    temporary = Path(tempfile.gettempdir())
    return [memory, temporary] if memory.is_dir() and os.access(memory, os.W_OK) else [temporary]
