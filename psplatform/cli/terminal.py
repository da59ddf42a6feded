"""What commands print: texts of any origin, of which a terminal obeys nothing, and the streams that take them.

Standard error is only for people: what it cannot take is dropped, and the command goes on.  Standard output is the
result: a command whose output cannot be written fails.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls: escape sequences begin with one
    r"\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # what turns the direction round, or is unseen
    r"\ud800-\udfff]"  # halves of characters, which no encoding has
)
_BREAK: Final = re.compile(r"[\t\n]")
_SHOWN: Final = "\N{REPLACEMENT CHARACTER}"
_LAST_STANDARD: Final = 2
"""Descriptor of standard error; those of standard input and output are below."""


def printable(text: object, *, lines: bool = False) -> str:
    """Return a text without what a terminal would obey, or show out of its place: each such character is marked.

    Parameters
    ----------
    lines
        Whether it may have several, as a traceback has; else they become one.
    """
    shown = _UNSAFE.sub(_SHOWN, str(text))
    return shown if lines else _BREAK.sub(" ", shown)


def say(text: object, *, err: bool = False) -> None:
    """Print a line."""
    click.echo(printable(text), err=err)


class UnwrittenOutput(click.ClickException):
    """Standard output cannot be written; exit code 1."""


def guard_streams() -> None:
    """Let this process survive a standard error that cannot be written, and fail in one sentence for standard output.

    Only the streams that Python opened are replaced: those that a test or a notebook has set are left alone.
    """
    _open_closed_descriptors()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  it is open until the process ends
    elif sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, _StandardError)
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, _StandardOutput)


def _open_closed_descriptors() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next file or connection gets its number, and child processes take that for the stream and write to it.
    """
    while True:
        lowest = os.open(os.devnull, os.O_RDWR)
        if lowest > _LAST_STANDARD:
            os.close(lowest)
            return
        os.set_inheritable(lowest, True)


def _guarded(stream: TextIO, file: type[io.FileIO]) -> io.TextIOWrapper:
    """Return a stream that writes by a `file` of that class, and encodes and buffers lines as `stream` does."""
    stream.flush()
    raw = file(stream.fileno(), "w", closefd=False)
    lines = bool(stream.line_buffering)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=lines)


class _StandardError(io.FileIO):
    """Drops what cannot be written: a full disk, a closed pipe or a lost terminal ends no run."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written: int | None = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written  # none, too, where writing would block


class _StandardOutput(io.FileIO):
    """Raises `UnwrittenOutput` at the first failure and drops the rest, which Python writes again as it ends.

    A broken pipe stays the error that click and rich know: the reader has seen enough.
    """

    _failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._failed = True
            raise UnwrittenOutput(f"cannot write to standard output ({error.strerror})") from error
