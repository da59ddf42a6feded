"""One live line about a run on standard error, and tables for people: the closing summary and others."""

from __future__ import annotations

import sys
import time
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from psplatform.cli.terminal import printable
from psplatform.telemetry.words import closing_rows, one_line

_TOLD: Final = ("promoted", "checkpoint", "copy", "cold replica", "beyond bound", "store")
"""Kinds of incidents that get a line of their own at once; the others wait for the closing summary."""

_PLAIN_EVERY_S: Final = 2.0
"""Between two lines where standard error is no terminal."""

_FULL_WIDTH: Final = 10_000
"""Characters in a line of a file or pipe: more than any table has."""


class ProgressLine:
    """Shows how a run stands: rewritten in place on a terminal, now and then a new line elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._last = 0.0
        self._said = ""
        self._told: set[tuple[float, str]] = set()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """Show a step of starting or ending; where lines stay, once."""
        if text != self._said or self._live is not None:
            self._show(f"{text} ...", always=True)
        self._said = text

    def step(self, text: str) -> None:
        """Show one of many steps."""
        self._show(text, always=False)

    def summary(self, summary: dict[str, Any]) -> None:
        """Show how the run stands, and, once each, what went wrong with servers, replicas and checkpoints."""
        incidents = {(one["at"], one["text"]): one for one in summary["incidents"] if one["kind"] in _TOLD}
        for key, one in incidents.items():
            if key not in self._told:
                self._tell(f"{one['at']:5.1f} s into the run: {one['text']}")
        self._told = set(incidents)  # no longer than the summary's own list, however long the run
        self._show(one_line(summary), always=False)

    def _tell(self, text: str) -> None:
        text = printable(text)
        if self._live is not None:
            self._console.print(text, markup=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _show(self, text: str, *, always: bool) -> None:
        text = printable(f"{time.monotonic() - self._began:5.1f} s  {text}")
        if self._live is not None:
            self._live.update(Text(text))
        elif always or time.monotonic() - self._last >= _PLAIN_EVERY_S:
            self._last = time.monotonic()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def show_table(table: Table) -> None:
    """Print a table with whole cells: folded on a terminal that is too narrow, in full width elsewhere."""
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", False
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FULL_WIDTH
    console.print(table)


def closing(summary: dict[str, Any], *, trouble: str = "") -> Table:
    """Return the closing summary as a table, and with it the store's `trouble`."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in closing_rows(summary, trouble=trouble):
        table.add_row(name, Text(printable(text)))
    return table
