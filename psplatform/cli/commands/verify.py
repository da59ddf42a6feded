"""``psplatform runs STORE --verify``: whether a store is as it was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from psplatform.cli.progress import ProgressLine
from psplatform.cli.terminal import say

if TYPE_CHECKING:
    from psplatform.client.runs.verification import Verdict

_DAMAGED: Final = 2
_SOUND: Final = ("complete", "incomplete", "none")


def show_verified(store: str, *, as_json: bool) -> None:
    """Read all of a store and say of each of its parts what it is; the process ends with 2 if any is damaged."""
    from psplatform.client.runs.verification import verify  # noqa: PLC0415  brings Zarr

    with ProgressLine() as line:
        found = verify(store, report=line.step)
    if as_json:
        click.echo(json.dumps(found.to_plain()))
    else:
        for text in _lines(found):
            say(text)
    if not found.sound:
        click.get_current_context().exit(_DAMAGED)


def _lines(found: Verdict) -> list[str]:
    log = found.log
    rows = [("log", log.state, f"{log.segments} segments, {log.records} records, {_size(log.bytes)}")]
    rows += [("", "", flaw) for flaw in log.flaws]
    if log.flawed > len(log.flaws):
        rows.append(("", "", f"and {log.flawed - len(log.flaws)} more"))
    models = {"model": found.model, "best model": found.best}
    for name, model in models.items():
        if model.state != "none":
            rows.append((name, model.state, model.flaw or _size(model.bytes)))
    for one in found.checkpoints:
        told = one.flaw or f"version {one.version}, {_size(one.bytes)}"
        rows.append((f"checkpoint {one.number}", one.state, told))
    return [f"{name:20} {state:11} {text}".rstrip() for name, state, text in rows] + [_verdict(found)]


def _verdict(found: Verdict) -> str:
    if found.sound:
        return f"run {found.run}: all that is there is as it was written"
    whole = [one.number for one in found.checkpoints if one.state == "complete"]
    remedy = "restore what is damaged from a copy"
    rest = [one.state for one in (found.model, found.best)] + [one.state for one in found.checkpoints]
    if found.log.flawed and found.log.readable and all(state in _SOUND for state in rest):
        text = f"{remedy}, or leave it: the run has gone on since, and is read without it"
        return f"run {found.run}: a part of its log is lost; {text}"
    if whole:
        remedy += f", or go on from the newest whole checkpoint: psplatform recover {found.store} --checkpoint"
        remedy += f" {whole[-1]} (of a run that has ended, with a later end)"
    return f"run {found.run}: damaged; {remedy}"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
