"""Following a run to its end: progress, Ctrl-C, the closing words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from psplatform.cli.progress import ProgressLine, closing
from psplatform.errors import PsplatformError, StoreError

if TYPE_CHECKING:
    from psplatform.client.run import Run


_STOPS_S: Final = 60.0


class Unkept(click.ClickException):
    """A run failed because of its store; exit code 1."""


class Unfinished(click.ClickException):
    """A run was left before it had stopped; exit code 1."""


def follow(
    run: Run,
    line: ProgressLine,
    *,
    as_json: bool,
    stop_on_interrupt: bool = True,
    embedded: bool = False,
    on_progress: Callable[[dict[str, Any]], None] = lambda summary: None,
) -> None:
    """Show the run until it is over, then its summary.

    `on_progress` is called with the summary so far, a few times per second.

    The first Ctrl-C stops the run and the second leaves it, or, without `stop_on_interrupt`, the first leaves it.  A
    run on a cluster that is `embedded` in this program ends with that.

    Raises
    ------
    PsplatformError
        Why the run failed, after its summary was shown.
    Unkept
        The same, where its store is to blame: unlike one that is refused at the start, something was started.
    Unfinished
        If it was left before it had stopped.
    """
    failure: PsplatformError | None = None
    try:
        _wait(run, line, on_progress, stop_on_interrupt=stop_on_interrupt, embedded=embedded)
    except PsplatformError as error:
        failure = error
    line.__exit__()
    show(run.status(), as_json=as_json, failure=failure)
    if isinstance(failure, StoreError):
        raise Unkept(str(failure)) from failure
    if failure is not None:
        raise failure


def show(status: dict[str, Any], *, as_json: bool, failure: PsplatformError | None = None) -> None:
    """Print a run's summary, for people or as one JSON object, and what the store refuses to take."""
    summary, trouble = status["summary"], status["trouble"]
    if as_json:
        words = {"error": str(failure) if failure else "", "trouble": trouble}
        click.echo(json.dumps({**summary, **{key: text for key, text in words.items() if text}}))
    elif "run" in summary:
        Console(highlight=False).print(closing(summary, trouble=trouble))


def _wait(
    run: Run,
    line: ProgressLine,
    on_progress: Callable[[dict[str, Any]], None],
    *,
    stop_on_interrupt: bool,
    embedded: bool,
) -> None:
    def progress(summary: dict[str, Any]) -> None:
        line.summary(summary)
        on_progress(summary)

    try:
        run.wait(progress=progress, step=line.say)
    except KeyboardInterrupt as interrupt:
        if not stop_on_interrupt:
            return
        _stop(run, line, str(interrupt) or "interrupted at the keyboard", embedded=embedded)


def _stop(run: Run, line: ProgressLine, reason: str, *, embedded: bool) -> None:
    """Stop the run in good order, unless that is interrupted as well."""
    again = "end it without saving what it has learned since its last checkpoint" if embedded else "leave the run alone"
    line.say(f"stopping; press Ctrl-C again to {again}")
    try:
        run.stop(reason)
        run.wait(timeout_s=_STOPS_S, progress=line.summary, step=line.say)
    except (KeyboardInterrupt, TimeoutError) as error:
        state = "interrupted again" if isinstance(error, KeyboardInterrupt) else f"not over after {_STOPS_S:g} s"
        now = "is left alone: psplatform attach"
        if embedded:
            line.say("ending the cluster")
            now = "ended with its cluster: psplatform recover"
        run.close(stop_within_s=0.0)
        raise Unfinished(f"the run was {state} and {now} {run.store}") from None
