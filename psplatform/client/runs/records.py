"""Records of the runs that this user's programs have started: where each one's scheduler is, and how to connect to it.

A store may come from anywhere, so no program connects to an address in it: Dask runs what a scheduler answers.  The
record is used instead.  It lies in a folder of the user's own, which other users can neither read nor write::

    $PSPLATFORM_STATE, or $XDG_STATE_HOME/psplatform, or ~/.local/state/psplatform
        runs/                   mode 0700
            8d3f….json          mode 0600: a run's id, store and scheduler, and the key of an embedded cluster

A file is named by the hash of the run's id, because that may have been read from a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from psplatform.client.clusters.credentials import Credentials
from psplatform.replication.stores.places import whole_place
from psplatform.runtime.comms.processes import ProcessId, is_running, this_process

KEPT: Final = 200
"""Records that a folder holds; of more, the oldest are removed."""

_OLD_S: Final = 86_400.0
"""After a day a record is removed if no program listens at its scheduler's address."""

_PROBES: Final = 2
_PROBE_S: Final = 0.2
"""How many old schedulers are looked for when a record is written, and for how long: the start of a run waits."""

_MOST_BYTES: Final = 1 << 16
_FOLDER: Final = "runs"
_SUFFIX: Final = ".json"
_OTHERS: Final = 0o077
"""What the group and all others may do."""


@dataclass(frozen=True, slots=True)
class Record:
    """A run that a program of this user has started or recovered.

    Attributes
    ----------
    scheduler
        The address of the scheduler that it was started on.
    started
        When, in seconds of Unix time.
    program
        The program with which the run's cluster ends, if it has one of its own.
    credentials
        What that cluster admits programs with.
    """

    run: str
    store: str
    scheduler: str
    started: float
    program: ProcessId | None = None
    credentials: Credentials | None = None


def record_of(run: str, store: str, scheduler: str, credentials: Credentials | None) -> Record:
    """Return the record of a run that this program starts; with credentials, on a cluster of its own."""
    program = this_process() if credentials is not None else None
    return Record(run, whole_place(store), scheduler, time.time(), program, credentials)


def state_folder() -> Path:
    """Return the folder in which this user's programs keep what they know of each other.

    Raises
    ------
    OSError
        If no variable names it and this user has no home.
    """
    if given := os.environ.get("PSPLATFORM_STATE"):
        return Path(given)
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "psplatform"
    except RuntimeError as error:
        raise FileNotFoundError(f"{error}: set PSPLATFORM_STATE to a folder of your own") from error


def remember(record: Record) -> None:
    """Write the record of a run in place of the one before, and remove those of schedulers that are gone.

    Raises
    ------
    OSError
        If there is no folder of this user's own to write it to.
    """
    plain = json.dumps(asdict(record)).encode()
    with _own_folder(make=True) as folder:
        _prune(folder, _file_of(record.run))
        hidden = f".{uuid.uuid4().hex}"
        try:
            opened = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            with os.fdopen(opened, "wb") as file:
                file.write(plain)
            os.rename(hidden, _file_of(record.run), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(hidden, dir_fd=folder)
            raise


def find(run: str) -> Record | None:
    """Return the record of a run, ``None`` if this user has none or its folder is open to others."""
    with contextlib.suppress(OSError), _own_folder() as folder:
        record = _read(folder, _file_of(run))
        return record if record is not None and record.run == run else None
    return None


def known(run: str, store: str) -> Record | None:
    """Return the record of the run in a store, ``None`` if this user has started no such run in that very place."""
    record = find(run)
    return record if record is not None and record.store == whole_place(store) else None


def credentials_at(scheduler: str) -> Credentials | None:
    """Return what the embedded cluster at an address, if this user has one there, admits programs with."""
    found: list[Record] = []
    with contextlib.suppress(OSError), _own_folder() as folder:
        records = [_read(folder, name) for name in _files(folder)]
        found = [one for one in records if one is not None and one.scheduler == scheduler]
    return max(found, key=lambda one: one.started).credentials if found else None


def program_has_ended(run: str, store: str, started: float) -> bool:
    """Whether the program of this user that ran the run in a store, described so at `started`, has ended.

    The run's own cluster has ended with it.  Of a run on another cluster, or that another program has gone on with
    since, nothing is known.
    """
    record = known(run, store)
    return record is not None and record.started >= started and has_ended(record.program)


def forget(run: str, scheduler: str | None = None) -> None:
    """Remove the record of a run that is over; one that has gone on with another `scheduler` since is kept."""
    with contextlib.suppress(OSError), _own_folder() as folder:
        record = _read(folder, _file_of(run))
        if record is not None and scheduler in (None, record.scheduler):
            os.unlink(_file_of(run), dir_fd=folder)


@contextlib.contextmanager
def _own_folder(*, make: bool = False) -> Iterator[int]:
    """Open the folder of records, through no link and only if no other user can read or write in it."""
    place = state_folder() / _FOLDER
    if make:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_own(os.fstat(folder)):
            raise PermissionError(f"{place} is another user's, or open to others; make it yours alone (chmod 700)")
        yield folder
    finally:
        os.close(folder)


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & _OTHERS


def _file_of(run: str) -> str:
    return hashlib.sha256(run.encode(errors="surrogatepass")).hexdigest()[:32] + _SUFFIX


def _files(folder: int) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))


def _read(folder: int, name: str) -> Record | None:
    """Return what a file of the folder says; ``None`` if it is not there, not this user's alone, or no record."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            found = os.fstat(file.fileno())
            if not (stat.S_ISREG(found.st_mode) and _is_own(found) and found.st_size <= _MOST_BYTES):
                return None
            return _record(json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _record(plain: dict[str, Any]) -> Record:
    program, credentials = plain["program"], plain["credentials"]
    return Record(
        run=str(plain["run"]),
        store=str(plain["store"]),
        scheduler=str(plain["scheduler"]),
        started=float(plain["started"]),
        program=ProcessId(**program) if program else None,
        credentials=Credentials(**credentials) if credentials else None,
    )


def _prune(folder: int, written: str) -> None:
    """Remove records of what is gone, and the oldest of too many, but not the one that is to be `written`."""
    aged = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name) for name in _files(folder))
    others = [(at, name) for at, name in aged if name != written]
    probes = 0
    for place, (at, name) in enumerate(others):
        record = _read(folder, name)
        useless = len(others) - place >= KEPT or record is None or has_ended(record.program)
        if not useless and record is not None and probes < _PROBES and time.time() - at > _OLD_S:
            probes += 1
            useless = not _listens(record.scheduler)
        if useless:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def has_ended(program: ProcessId | None) -> bool:
    """Whether a program of this host has ended; of another host's nothing is known."""
    here = this_process()
    return program is not None and here is not None and program.host == here.host and not is_running(program)


def _listens(scheduler: str) -> bool:
    """Whether anything listens at a scheduler's address, as far as that can be told: nothing is said to it."""
    scheme, _, place = scheduler.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("tcp", "tls") or not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S).close()
    except (OSError, OverflowError):
        return False
    return True
