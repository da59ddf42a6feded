"""Processes of this host: which one an actor is in, and noticing at once that one is dying.

The kernel closes the sockets of a process that was killed after it has unmapped its memory, which takes 15 ms per
600 MB that are shared, and 100 ms where the cores are busy.  All of its threads but the last end before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PIDFD_THREAD: Final = os.O_EXCL
"""Asks for the end of one thread; known to Linux 6.9 and later."""

_WATCHED: Final = 3
"""Threads that are watched: one may end for a reason of its own, one may be the last."""

_STATE, _FLAGS, _BEGAN = 0, 6, 19  # places in what follows the name in ``/proc/PID/stat``
_STAT_BYTES: Final = 4096  # more than it has
_EXITING: Final = 0x4
"""Set of a thread that ends, and never taken back.  That a signal is pending tells the end earlier, but is over before
this is set: a reader that looks in between would take a process for alive whose death another process has noticed."""

_PAUSES_S: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
"""Between looks whether the process ends as well whose thread has ended."""


class NotSeen(Exception):
    """A process cannot be looked at from here: another host's, hidden, gone, or on a system that does not tell."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told from all that ever were on any host.

    Attributes
    ----------
    host
        The boot of the host, and the namespace in which the process has its number.
    pid, began
        That number, and when the process began, in ticks since the boot: numbers are given again.
    """

    host: str
    pid: int
    began: int


def this_process() -> ProcessId | None:
    """Return the process that calls, or None on a system that does not tell."""
    return process_with(os.getpid())


def process_with(pid: int) -> ProcessId | None:
    """Return the process of this host with that number now, or None if there is none or the system does not tell."""
    try:
        return ProcessId(_host(), pid, _began(pid))
    except OSError:
        return None


def is_running(process: ProcessId) -> bool:
    """Whether a process of this host has not ended; one of another host, or of another boot, counts as ended."""
    try:
        return process.host == _host() and not _is_dying(process)
    except OSError:
        return False


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to a process of this host, and to no other that got its number since; return whether it was there.

    Raises
    ------
    PermissionError
        If it is another user's.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(process):  # the handle is of the process that has its number now
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


class Locatable:
    """An actor that says in which process it is."""

    async def alive(self, wait_s: float) -> ProcessId | None:
        """Answer after so long with this process: the caller learns at once when it ends."""
        await asyncio.sleep(wait_s)
        return this_process()


ProcessMark = tuple[int, int, int]
"""A process's number, when it began, and the namespace in which it has that number: what fits into shared memory."""


def mark_of_this_process() -> ProcessMark:
    """Return the mark of the process that calls; zeros on a system that does not tell."""
    try:
        return os.getpid(), _began(os.getpid()), _namespace()
    except OSError:
        return 0, 0, 0


class Witness:
    """Tells of one process, again and again, whether it is dying; a look takes one read, about 5 microseconds.

    What `until_dying` has noticed, a witness that is asked after it knows as well.

    Raises
    ------
    NotSeen
        If nothing can be told of the process; one that is gone is not seen, either.
    """

    def __init__(self, mark: ProcessMark) -> None:
        pid, began, namespace = mark
        try:
            if namespace != _namespace():
                raise NotSeen(f"process {pid} has its number in another namespace")
            self._stat = os.open(_PROC / str(pid) / "stat", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._stat)
            found = int(self._fields()[_BEGAN])
        except OSError as error:
            raise NotSeen(f"process {pid} cannot be seen ({error})") from error
        if found != began:
            raise NotSeen(f"process {pid} is gone")

    def sees_it_dying(self) -> bool:
        """Whether its first thread has begun to end; the others end with it."""
        try:
            return _says_that_it_ends(self._fields())
        except OSError:  # it is gone, and its number may be another's
            return True

    def _fields(self) -> list[str]:
        return _fields_of(os.pread(self._stat, _STAT_BYTES, 0).decode(errors="replace"))


def process_at(address: str) -> str:
    """Return what this process, the Dask worker of that address, is called in the log."""
    return f"{address} pid {os.getpid()}"


async def until_dying(process: ProcessId) -> None:
    """Return once a process of this host ends, whatever the reason: it executes nothing of its program any more.

    Raises
    ------
    NotSeen
        If nothing can be told of it; a process that was gone before is not seen, either.
    """
    try:
        if process.host != _host() or process.began != _began(process.pid):
            raise NotSeen(f"process {process.pid} is not on this host, or gone")
    except OSError as error:
        raise NotSeen(f"process {process.pid} cannot be seen ({error})") from error
    while True:
        await _until_a_thread_ends(process.pid)
        for pause_s in _PAUSES_S:
            if _is_dying(process):
                return
            await asyncio.sleep(pause_s)


async def _until_a_thread_ends(pid: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    with _threads(pid) as threads:
        for thread in threads:
            loop.add_reader(thread, ended.set)
        try:
            if threads:
                await ended.wait()
        finally:
            for thread in threads:
                loop.remove_reader(thread)


@contextlib.contextmanager
def _threads(pid: int) -> Iterator[list[int]]:
    """Open the oldest threads of a process besides its first, which the kernel reports last."""
    opened: list[int] = []
    try:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            numbers = sorted(int(one.name) for one in (_PROC / str(pid) / "task").iterdir())
            opened.extend(os.pidfd_open(one, _PIDFD_THREAD) for one in numbers[1 : 1 + _WATCHED] or numbers)
        yield opened
    except (OSError, AttributeError) as error:  # an older kernel, or another system
        raise NotSeen(f"the threads of process {pid} cannot be watched ({error})") from error
    finally:
        for one in opened:
            os.close(one)


def _is_dying(process: ProcessId) -> bool:
    """Whether a process that was seen before has begun to end."""
    try:
        fields = _stat(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return _says_that_it_ends(fields) or int(fields[_BEGAN]) != process.began


def _says_that_it_ends(fields: list[str]) -> bool:
    return fields[_STATE] in "XZ" or bool(int(fields[_FLAGS]) & _EXITING)


def _host() -> str:
    _require_own_proc()
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"


def _namespace() -> int:
    _require_own_proc()
    return (_PROC / "self/ns/pid").stat().st_ino


def _require_own_proc() -> None:
    """Raise OSError where ``/proc`` numbers processes as another namespace does: a number there is another process."""
    if (_PROC / "self").readlink() != Path(str(os.getpid())):
        raise OSError("/proc is that of another namespace of processes")


def _began(pid: int) -> int:
    return int(_stat(pid)[_BEGAN])


def _stat(pid: int) -> list[str]:
    return _fields_of((_PROC / str(pid) / "stat").read_text())


def _fields_of(stat: str) -> list[str]:
    # What its program is called comes second, in brackets, and may hold anything.
    return stat.rpartition(")")[2].split()
