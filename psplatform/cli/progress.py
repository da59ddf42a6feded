"""One live line about a run on standard error, and the closing summary for people."""

from __future__ import annotations

import sys
import time
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from psplatform.cli.protection import protection_rows, unprotected

_TOLD: Final = ("promoted", "checkpoint", "copy", "cold replica", "beyond bound")
"""Kinds of incidents that get a line of their own at once; the others wait for the closing summary."""

_WITH_ROWS: Final = ("promoted", "beyond bound")
"""Kinds of incidents that the closing summary has rows of their own for."""

_PLAIN_EVERY_S: Final = 2.0
"""Between two lines where standard error is no terminal."""


class ProgressLine:
    """Shows how a run stands: rewritten in place on a terminal, now and then a new line elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._last = 0.0
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
        """Show a step of starting."""
        self._show(f"{text} ...", always=True)

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
        if self._live is not None:
            self._console.print(text, markup=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _show(self, text: str, *, always: bool) -> None:
        text = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self._live is not None:
            self._live.update(Text(text))
        elif always or time.monotonic() - self._last >= _PLAIN_EVERY_S:
            self._last = time.monotonic()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def one_line(summary: dict[str, Any]) -> str:
    """Return version, loss, accuracy, workers, waiting and drops in one line."""
    alive = sum(one["status"] not in ("lost", "left") for one in summary["slots"].values())
    parts = [
        f"version {summary['updates']}",
        f"loss {_number(summary['loss'])}",
        f"accuracy {_number(summary['accuracy'])}",
        f"{alive} workers",
        f"{summary['updates_per_second']:.1f} updates/s",
        f"waiting {summary['waiting_fraction']:.0%}",
        f"staleness {summary['staleness']['mean']:.1f}",
    ]
    if summary["dropped"]["total"]:
        parts.append(f"dropped {summary['dropped']['total']}")
    if bare := unprotected(summary):
        parts.append(f"unprotected {bare}")
    return "  ".join(parts)


def closing(summary: dict[str, Any], *, trouble: str = "") -> Table:
    """Return the closing summary as a table, and with it the store's `trouble`."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    rows = _rows(summary)
    rows += [("trouble", _trouble_text(summary, trouble))] if trouble else []
    for name, text in rows:
        table.add_row(name, Text(text))
    return table


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    drops = ", ".join(f"{count} {reason}" for reason, count in summary["dropped"]["by_reason"].items())
    staleness = summary["staleness"]
    applied, gradients, blocks = summary["applied"], summary["gradients"], summary.get("blocks", 1)
    whole = f"{applied} of {gradients} gradients"
    parts = f"{applied} of {gradients * blocks} parts of gradients, {blocks} each"
    data, evaluated = summary.get("evaluate_on", "held-out"), _number(summary["evaluation_loss"])
    rows = [
        ("outcome", _outcome(summary)),
        ("accuracy", f"{_number(summary['accuracy'])} on {data} data"),
        ("loss", f"{_number(summary['loss'])} of the last commit, {evaluated} on {data} data"),
        ("time", f"{summary['seconds']:.1f} s, {summary['updates_per_second']:.1f} updates per second"),
        ("updates", f"{summary['updates']} in {summary['commits']} commits of {whole if blocks == 1 else parts}"),
        ("staleness", f"mean {staleness['mean']:.2f}, at most {staleness['max']} versions"),
        ("dropped", f"{summary['dropped']['total']}" + (f" ({drops})" if drops else "")),
        ("waiting", f"{summary['waiting_fraction']:.0%} of the workers' time"),
        ("policy", f"{summary['policy']} {summary['policy_parameters'] or ''}".strip()),
        ("run", f"{summary['run']}: {summary['workers']} workers, {summary['shards']} shards"),
        *protection_rows(summary),
        ("store", str(summary["store"])),
    ]
    incidents = [one for one in summary["incidents"] if one["kind"] not in _WITH_ROWS]
    return rows + [("incident", f"{one['at']:.1f} s: {one['text']}") for one in incidents[-5:]]


def _outcome(summary: dict[str, Any]) -> str:
    if summary["outcome"] is None:
        return "open: the log has no end; the run goes on, or its cluster was lost"
    return f"{summary['outcome']} ({summary['detail']})"


def _trouble_text(summary: dict[str, Any], trouble: str) -> str:
    if summary["outcome"] is None:
        return f"the store lacks the latest records of the log, which wait in memory: {trouble}"
    return f"the store lacks the last records of the log, or how the run ended: {trouble}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
