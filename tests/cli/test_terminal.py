"""What commands print: a terminal obeys nothing of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from psplatform.cli.progress import closing
from psplatform.cli.terminal import printable
from psplatform.replication.stores.store import create_run, update_run
from psplatform.telemetry.log.writer import EventLog

EVIL = "\x1b[2J\x1b]0;title\x07[red]x[/red]\u202etxt\x9b31m\ud800\r"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.5 ≤ bound, größer", "loss 0.5 ≤ bound, größer"),
        ("\x1b[31mred", "�[31mred"),
        ("a\nb\tc", "a b c"),
        ("over\rwritten\b", "over�written�"),
        ("\u202eabc", "�abc"),
        ("\ud83d", "�"),
        ("\x9b1m\x7f", "�1m�"),
    ],
)
def test_what_a_terminal_would_obey_is_marked(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_traceback_keeps_its_lines() -> None:
    assert printable("a\n\tb\x1b", lines=True) == "a\n\tb�"


def test_the_closing_summary_shows_markup_and_escapes_as_they_are(records: Any) -> None:
    from psplatform.telemetry.read_model import RunView

    view = RunView()
    for record in records:
        view.apply({**record, "policy": EVIL, "detail": EVIL} if record["kind"] in ("run", "finished") else record)
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=200, color_system=None).print(closing(view.to_summary()))
    said = stream.getvalue()
    assert "[red]x[/red]" in said
    assert not any(one in said for one in ("\x1b[2J", "\x1b]0", "\x07", "\u202e", "\x9b", "\ud800"))


def test_the_closing_summary_shows_a_long_store_whole(records: Any) -> None:
    from psplatform.telemetry.read_model import RunView

    view = RunView()
    for record in records:
        view.apply(record)
    stream, store = io.StringIO(), "/runs" * 40
    Console(file=stream, width=80, color_system=None).print(closing({**view.to_summary(), "store": store}))
    assert store in "".join(stream.getvalue().split())


def test_the_list_of_runs_shows_nothing_that_a_terminal_obeys(
    psplatform: Callable[..., Any], tmp_path: Path, records: Any
) -> None:
    """Whatever the store and its folder say; a run's id that none of ours can be is not shown at all."""
    for name, run in (("good", "digits-bsp-1a2b3c"), ("evil\x1b[31m", f"digits{EVIL[:3]}")):
        store = str(tmp_path / "runs" / f"{name}.zarr")
        create_run(store, {"run": "digits-bsp-1a2b3c", "workload": EVIL[:-2]})
        with EventLog(store, 1) as log:
            for record in records:
                log.buffer(record)
        path = Path(store, "zarr.json")
        plain = json.loads(path.read_text())
        plain["attributes"]["psplatform"]["run"] = run
        path.write_text(json.dumps(plain))
    result = psplatform("runs", str(tmp_path / "runs"))
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert "digits-bsp-1a2b3c" in result.output
    refused = psplatform("runs", str(tmp_path / "runs" / "evil\x1b[31m.zarr"))
    assert (refused.exit_code, "\x1b" in refused.output) == (2, False)
    assert "its run has an id that is none" in refused.output


def test_a_run_whose_end_is_told_in_escapes_is_told_without(
    psplatform: Callable[..., Any], tmp_path: Path, records: Any
) -> None:
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    with EventLog(store, 1) as log:
        for record in records:
            log.buffer({**record, "detail": "\x1b[2J[bold]"} if record["kind"] == "finished" else record)
    update_run(store, outcome="updates")
    result = psplatform("runs", store)
    assert "�[2J[bold]" in result.output
    assert "\x1b" not in result.output
