"""Following a run to its end: progress, Ctrl-C, the closing words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from psplatform.cli.progress import ProgressLine, closing
from psplatform.errors import PsplatformError, StoreError

if TYPE_CHECKING:
    from psplatform.client.run import Run


class Unkept(click.ClickException):
    """A run failed because of its store; exit code 1."""


def follow(
    run: Run,
    line: ProgressLine,
    *,
    as_json: bool,
    stop_on_interrupt: bool = True,
    on_progress: Callable[[dict[str, Any]], None] = lambda summary: None,
) -> None:
    """Show the run until it is over, then its summary.

    `on_progress` is called with the summary so far, a few times per second.

    The first Ctrl-C stops the run and the second leaves it, or, without `stop_on_interrupt`, the first leaves it.

    Raises
    ------
    PsplatformError
        Why the run failed, after its summary was shown.
    Unkept
        The same, where its store is to blame: unlike one that is refused at the start, something was started.
    """
    failure: PsplatformError | None = None
    try:
        _wait(run, line, on_progress, stop_on_interrupt=stop_on_interrupt)
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
    run: Run, line: ProgressLine, on_progress: Callable[[dict[str, Any]], None], *, stop_on_interrupt: bool
) -> None:
    def progress(summary: dict[str, Any]) -> None:
        line.summary(summary)
        on_progress(summary)

    try:
        run.wait(progress=progress, step=line.say)
    except KeyboardInterrupt:
        if not stop_on_interrupt:
            return
        line.say("stopping; press Ctrl-C again to leave the run alone")
        run.stop("interrupted at the keyboard")
        try:
            run.wait(timeout_s=60, progress=line.summary, step=line.say)
        except (KeyboardInterrupt, TimeoutError):
            run.close(stop_within_s=0.0)  # it was asked to stop, and was waited for
            raise
