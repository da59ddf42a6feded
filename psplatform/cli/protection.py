"""Replication and checkpoints on the command line: the options, and the fields of a job that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

_REPLICATION: Final = {
    "replication": "mode",
    "max_divergence": "max_divergence",
    "replicas": "replicas",
    "replication_source": "source",
    "replication_target": "target",
    "on_replica_loss": "on_replica_loss",
}
"""Options, and what a job file calls them under ``replication``."""

PROTECTION: Final = ("replication", "checkpoints")
"""Fields of a job that the options describe."""

_USUAL_MODE: Final = "bounded"

_OPTIONS: Final = (
    ("--replication", "MODE", "none, chain or bounded.", "bounded"),
    ("--max-divergence", "X", "How far copies may lag: 0.5 (a norm) or 8updates.", "8updates"),
    ("--replicas", "N", "Copies of each server.", "1"),
    ("--replication-source", "WHO", "Who sends to the copies: server or workers.", "server"),
    ("--replication-target", "WHERE", "replica (a process) or store.", "replica"),
    ("--on-replica-loss", "WHAT", "continue, or pause until there is another.", "continue"),
    ("--checkpoint-every", "N|Ts|none", "Updates (200) or seconds (10s) between.", "30s"),
    ("--keep-checkpoints", "K", "How many checkpoints are kept, the newest ones.", "3"),
)
"""Flag, metavar, help, and what holds in a new job where it is not given."""


def protection_options(otherwise: str | None = None) -> list[Any]:
    """Return the options as click has them; `otherwise` is what holds where one is not given, if not the usual."""
    return [
        click.option(flag, metavar=metavar, help=f"{text} [{otherwise or usual}]")
        for flag, metavar, text, usual in _OPTIONS
    ]


def protection_fields(described: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's fields ``replication`` and ``checkpoints``, where a file or the command line speaks of them.

    What the command line does not speak of is the very value that is `described`.
    """
    fields = {
        "replication": _replication(described.get("replication"), given),
        "checkpoints": _checkpoints(described.get("checkpoints"), given),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _replication(described: Any, given: Mapping[str, Any]) -> Any:
    asked = {name: given[option] for option, name in _REPLICATION.items() if given.get(option) is not None}
    if not asked:
        return described
    spec = {"mode": described} if isinstance(described, str) else dict(described or {})
    if asked.get("mode", spec.get("mode", _USUAL_MODE)) != spec.get("mode", _USUAL_MODE):
        spec = {}  # the file's settings are those of the mode that it names
    if "max_divergence" in asked:
        spec.pop("unit", None)
    return spec | asked


def _checkpoints(described: Any, given: Mapping[str, Any]) -> Any:
    every, keep = given.get("checkpoint_every"), given.get("keep_checkpoints")
    if every is None and keep is None:
        return described
    spec = dict(described or {}) if described is None or isinstance(described, Mapping) else {"every": described}
    if every is not None:
        kept = {} if every == "none" else {name: spec[name] for name in ("keep",) if spec.get(name)}
        spec = {**kept, "every": every}
    return spec if keep is None else {**spec, "keep": keep}
