"""Commands of psplatform as programs of their own, which outlive the one that starts them and are found again.

A folder holds three files for each program, which no other user may read::

    01763921414000000000-1a2b3c4d.json      process, command, when it was started, and its exit code once that is known
    01763921414000000000-1a2b3c4d.out       what it says on standard output
    01763921414000000000-1a2b3c4d.err       and on standard error
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.runtime.comms.processes import ProcessId, is_running, process_with, send_signal
from psplatform.untrusted.files import read_named
from psplatform.untrusted.values import from_json

KEPT: Final = 50
"""Programs of which a folder keeps records: more than anybody looks back at."""

_TAIL_BYTES: Final = 1 << 16
_RESULT_BYTES: Final = 1 << 25
"""The longest last line that is read: a summary is some kilobytes, with many curves some megabytes."""

_RECORD_BYTES: Final = 1 << 22

_RECORD: Final = ".json"
_OUTPUT: Final = ".out"
_ERRORS: Final = ".err"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was started here, whether it runs or not.

    Attributes
    ----------
    record
        Its file in the folder.
    command
        Program and arguments.
    started
        When, in seconds of Unix time.
    process
        Told from all others that had its number before or get it later.
    """

    record: Path
    command: tuple[str, ...]
    started: float
    process: ProcessId

    @property
    def name(self) -> str:
        """What tells it from the other programs of its folder."""
        return self.record.stem

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return is_running(self.process)

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it.

        ``None`` while it runs, and of a program that ended after the one that started it, which alone is told.
        """
        code = _read(self.record).get("returncode")
        return code if isinstance(code, int) else None

    def output(self, lines: int = 20) -> str:
        """Return the last lines that it has said: progress and errors, then what it has printed."""
        said = _tail(self.record.with_suffix(_ERRORS)) + _tail(self.record.with_suffix(_OUTPUT))
        return "\n".join(said[-lines:] if lines > 0 else [])

    def result(self) -> dict[str, Any] | None:
        """Return the JSON object on the last line that it has printed, ``None`` if there is none (yet)."""
        last = _tail(self.record.with_suffix(_OUTPUT), _RESULT_BYTES)[-1:]
        try:
            found = from_json(last[0]) if last else None
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def interrupt(self) -> bool:
        """Interrupt it, as Ctrl-C does: ``psplatform train`` stops its run in good order; return whether it ran."""
        return send_signal(self.process, signal.SIGINT)

    def kill(self) -> bool:
        """End it at once; a run with a cluster of its own ends with it, without a word.  Return whether it ran."""
        return send_signal(self.process, signal.SIGKILL)


def start(arguments: Sequence[str], folder: str | os.PathLike[str]) -> Program:
    """Start ``psplatform ARGUMENTS`` as a program of its own; it goes on when this one ends.

    It has a session of its own and no input.  The newest 50 programs of the folder are kept, and those that run.

    Raises
    ------
    ConfigurationError
        If the folder cannot be written to, or the program not be started.
    """
    place = Path(folder)
    command = (sys.executable, "-m", "psplatform", *arguments)
    started = time.time_ns()
    record = place / f"{started:020d}-{uuid.uuid4().hex[:8]}{_RECORD}"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        child = _launch(command, record)
        plain = _note(child, record, command, started / 1e9)
    except (OSError, ValueError) as error:  # the latter is said of an argument with a null byte
        text = f"cannot start {' '.join(command[1:4])} with its output in {folder} ({error}); choose another folder"
        raise ConfigurationError(text, field="folder") from error
    threading.Thread(target=_reap, args=(child, record, plain), name="psplatform-program", daemon=True).start()
    _prune(place)
    return Program(record, command, started / 1e9, ProcessId(**plain["process"]))


def programs(folder: str | os.PathLike[str]) -> list[Program]:
    """Return the programs that were started with their records in `folder`, by this program or one before it.

    The newest comes first; what is no record is left out.
    """
    found = [_program(record) for record in sorted(Path(folder).glob(f"*{_RECORD}"), reverse=True)]
    return [one for one in found if one is not None]


def _launch(command: Sequence[str], record: Path) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as stack:
        paths = (record.with_suffix(_OUTPUT), record.with_suffix(_ERRORS))
        output, errors = (stack.enter_context(open(path, "xb", opener=_private)) for path in paths)
        return subprocess.Popen(  # noqa: S603  our own command line, without a shell
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )


def _note(child: subprocess.Popen[bytes], record: Path, command: Sequence[str], started: float) -> dict[str, Any]:
    """Write the record of a program; one that cannot be found again is ended."""
    try:
        process = process_with(child.pid)  # its number is its own until it is waited for, be it dead
        if process is None:
            raise OSError("this system does not tell processes apart")
        plain = {"command": list(command), "started": started, "process": asdict(process), "returncode": None}
        _write(record, plain)
    except BaseException:
        child.kill()
        child.wait()
        raise
    return plain


def _reap(child: subprocess.Popen[bytes], record: Path, plain: Mapping[str, Any]) -> None:
    """Wait for a program's end, so that it leaves no zombie, and note its exit code."""
    code = child.wait()
    with contextlib.suppress(OSError):  # the folder may be gone
        if record.exists():
            _write(record, {**plain, "returncode": code})


def _program(record: Path) -> Program | None:
    found = _read(record)
    try:
        process = ProcessId(**found["process"])
        return Program(record, tuple(found["command"]), float(found["started"]), process)
    except (KeyError, TypeError, ValueError):
        return None


def _prune(folder: Path) -> None:
    for old in programs(folder)[KEPT:]:
        if not old.running:
            for suffix in (_OUTPUT, _ERRORS, _RECORD):
                old.record.with_suffix(suffix).unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(record: Path, plain: Mapping[str, Any]) -> None:
    """Write a record in one piece: who reads it sees the old one or the new."""
    hidden = record.with_name(f".{record.name}.{os.getpid()}")
    with open(hidden, "w", opener=_private) as file:
        json.dump(plain, file)
    hidden.replace(record)


def _read(record: Path) -> dict[str, Any]:
    try:
        found = from_json(read_named(record, _RECORD_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _tail(path: Path, size: int = _TAIL_BYTES) -> list[str]:
    """Return the last lines of a file, the first of them perhaps cut."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
