"""Claims to go on with a run: of several programs that recover it at the same moment, one does.

A claim is an object in the run's store that is made only where there is none::

    recovered/00000001        to go on with what was begun under term 1
    recovered/00000001.2      the same, after the program of the first was killed before it had gone on

The claim of the highest number holds it.  A claim names its program, and one whose program has ended, or
that is older than `LIMIT_S` while the run has still not gone on, is taken over by a claim of the next number: of those
who try, one again makes it.  A program that was only stopped for so long finds that out by `Claim.require` before it
changes anything; and as who takes over begins under a higher term, the log would not take what it writes anyway.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from json import dumps
from pathlib import Path
from typing import Any, Final

from fsspec.implementations.local import LocalFileSystem

from psplatform.errors import ConfigurationError
from psplatform.replication.stores.objects import file_system_of
from psplatform.replication.stores.store import named_failure
from psplatform.untrusted.checks import is_count, is_number
from psplatform.untrusted.files import read_object
from psplatform.untrusted.values import Refused, from_json

LIMIT_S: Final = 300.0
"""A claim is held for the moment between two writes to the store: nobody is that slow, unless it was stopped."""

_FOLDER: Final = "recovered"
_CLAIM_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Claimant:
    """The program that made a claim.

    Attributes
    ----------
    machine
        What its host is called.
    host, pid, began
        Its process: the boot of the host, the number and the begin, which tell it from all others.
    at
        When the claim was made, in seconds of Unix time.
    """

    machine: str
    host: str
    pid: int
    began: int
    at: float

    @classmethod
    def from_bytes(cls, data: bytes) -> Claimant | None:
        """Return the claimant of a claim, ``None`` for one of an older psplatform, which is empty, or of no sense."""
        with contextlib.suppress(ValueError):
            plain = from_json(data)
            if isinstance(plain, dict) and set(plain) == {one.name for one in fields(cls)}:
                found = cls(**plain)
                texts = isinstance(found.machine, str) and isinstance(found.host, str)
                if texts and is_count(found.pid) and is_count(found.began) and is_number(found.at):
                    return found
        return None


IsGone = Callable[[Claimant], bool]
"""Whether a process of this host has ended; of another host nobody can tell, and the answer is no."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to go on with a run that was begun under `term`, which only one program has."""

    store: str
    term: int
    number: int

    def require(self) -> None:
        """Raise `ConfigurationError` if another program has taken the claim over."""
        with named_failure(self.store, "read the claims in"):
            if claims_made(self.store, self.term) != self.number:
                raise _taken(self.store, None, "")

    def release(self) -> None:
        """Let others claim it again."""
        with named_failure(self.store, "write to"):
            _Claims(self.store, self.term).remove(self.number)


def claims_made(store: str, term: int) -> int:
    """Return the number of the highest claim to go on with what was begun under `term`; 0 where there is none."""
    with named_failure(store, "read the claims in"):
        return _Claims(store, term).newest()


def claim_recovery(
    store: str,
    term: int,
    claimant: Claimant | None = None,
    *,
    after: int | None = None,
    is_gone: IsGone = lambda claimant: False,
) -> Claim:
    """Claim to go on with a run that its store describes as begun under `term`: only one program can.

    That is certain on local file systems and on those that can make an object only where there is none, as S3 can; on
    others two programs may do so at the same moment.

    Parameters
    ----------
    after
        The highest claim that the caller knows of; if there is a higher one, another program was faster.

    Raises
    ------
    ConfigurationError
        If another program has claimed it before, and may still go on with it.
    StoreError
        If the storage fails.
    """
    with named_failure(store, "write to"):
        claims = _Claims(store, term)
        number = claims.newest()
        before = claims.read(number) if number else None
        if (number and not claims.is_over(number, before, is_gone)) or (after is not None and number > after):
            raise _taken(store, before, claims.path(number))
        try:
            claims.make(number + 1, claimant)
        except FileExistsError:
            raise _taken(store, claims.read(number + 1), claims.path(number + 1)) from None
        claim = Claim(store, term, number + 1)
        if number and claims.read(number) != before:  # it was released, and perhaps made again, meanwhile
            claims.remove(number + 1)
            raise _taken(store, None, claims.path(number))
        return claim


class _Claims:
    """The claims of one term, as objects."""

    def __init__(self, store: str, term: int) -> None:
        self._files, self._root = file_system_of(store)
        self._name = f"{term:08d}"
        self._local = isinstance(self._files, LocalFileSystem)

    def path(self, number: int) -> str:
        return f"{self._root.rstrip('/')}/{self._place(number)}"

    def _place(self, number: int) -> str:
        return f"{_FOLDER}/{self._name}" if number == 1 else f"{_FOLDER}/{self._name}.{number}"

    def newest(self) -> int:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(f"{self._root.rstrip('/')}/{_FOLDER}", detail=False)
        except FileNotFoundError:
            return 0
        names = [str(path).rstrip("/").rpartition("/")[2].partition(".") for path in found]
        numbers = [more for name, _, more in names if name == self._name]
        return max((int(one or 1) for one in numbers if not one or (one.isdecimal() and len(one) < 9)), default=0)

    def read(self, number: int) -> Claimant | None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, Refused):
            return Claimant.from_bytes(read_object(self._files, self._root, self._place(number), _CLAIM_BYTES))
        return None

    def is_over(self, number: int, claimant: Claimant | None, is_gone: IsGone) -> bool:
        if claimant is not None:
            return is_gone(claimant) or time.time() - claimant.at > LIMIT_S
        try:
            written: float = self._files.modified(self.path(number)).timestamp()
        except Exception:  # noqa: BLE001  every fsspec driver has exceptions of its own, and some know no times
            return False
        return time.time() - written > LIMIT_S

    def make(self, number: int, claimant: Claimant | None) -> None:
        content = dumps(asdict(claimant)).encode() if claimant is not None else b""
        if self._local:
            _make_local(Path(self.path(number)), content)
        else:
            _make_new(self._files, self.path(number), content)

    def remove(self, number: int) -> None:
        self._files.rm_file(self.path(number))


def _make_local(path: Path, content: bytes) -> None:
    """Make a file with its content in one step, so that a claim is never seen without its claimant."""
    path.parent.mkdir(exist_ok=True)
    hidden = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        hidden.write_bytes(content)
        try:
            os.link(hidden, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with path.open("xb") as file:
                file.write(content)
    finally:
        hidden.unlink(missing_ok=True)


def _make_new(files: Any, path: str, content: bytes) -> None:
    try:
        files.pipe_file(path, content, mode="create")
    except FileExistsError:
        raise
    except Exception as error:  # every driver has exceptions of its own for what its server cannot do
        if files.exists(path):
            raise FileExistsError(path) from error
        files.pipe_file(path, content)


def _taken(store: str, claimant: Claimant | None, path: str) -> ConfigurationError:
    text = f"another program has begun to go on with the run in {store}"
    if claimant is not None:
        text += f" (process {claimant.pid} of {claimant.machine})"
    remedy = "attach to it instead"
    if path:
        remedy += f", or, if that program was killed as it began, try again when its claim is {LIMIT_S:g} s old: {path}"
    return ConfigurationError(f"{text}; {remedy}", field="store")
