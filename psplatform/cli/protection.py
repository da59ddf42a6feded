"""Replication and checkpoints on the command line: the options, and what a summary tells people about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
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
_SHOWN: Final = 5  # failovers, the newest ones; --json has them all

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


def protection_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a closing summary: what was protected and how, what took over, what was saved.

    Where the summary has `checkpoints_held`, what was found in the store, there is a row for each of them.
    """
    rows = [("replication", _replication_text(summary))] if summary.get("replication") else []
    rows += [("replication", long_step["text"])] if (long_step := summary.get("long_step")) else []
    rows += [("failover", _failover_text(one)) for one in summary.get("failovers", ())[-_SHOWN:]]
    rows += [("fencing", text) for text in _fencing(summary)]
    if summary.get("checkpoint_rule") or summary.get("checkpoints") or summary.get("checkpoints_held"):
        rows.append(("checkpoints", _checkpoints_text(summary)))
    logged = {one["number"]: one for one in summary.get("checkpoints", ())}
    held = summary.get("checkpoints_held", ())
    return rows + [("checkpoint", _checkpoint_text(one, logged.get(one["number"]))) for one in held]


def unprotected(summary: Mapping[str, Any]) -> str:
    """Return which shards lack a replica in sync, empty where none does."""
    shards = summary.get("unprotected") or []
    if not shards:
        return ""
    return f"shard{'s' if len(shards) > 1 else ''} {', '.join(str(shard) for shard in shards)}"


def _replication_text(summary: Mapping[str, Any]) -> str:
    spec, divergence = summary["replication"], summary.get("divergence") or {}
    if spec["mode"] == "none":
        return "none: what a server has learned since the last checkpoint is lost with it"
    copies = "1 copy" if spec["replicas"] == 1 else f"{spec['replicas']} copies"
    place = "in the store" if spec["target"] == "store" else f"of each server, sent by the {spec['source']}"
    return f"{spec['mode']}: {copies} {place}, {_bound_text(spec, divergence)}{_lacking_text(summary)}"


def _lacking_text(summary: Mapping[str, Any]) -> str:
    if not summary.get("copies"):
        return "; no copy was made"  # what was asked for is not what was done
    bare = unprotected(summary)
    return f"; {bare} without a copy in sync" if bare else ""


def _bound_text(spec: Mapping[str, Any], divergence: Mapping[str, Any]) -> str:
    if spec["mode"] == "chain":
        return "no visible update lacking"
    largest, bound, unit = (divergence.get(name) for name in ("max", "bound", "unit"))
    if unit == "norm":
        seen = "" if largest is None else f" (at most {largest:.3g} seen)"
        return f"within a distance of {bound:g}{seen}"
    seen = "" if largest is None else f" ({largest:g} seen)"
    return f"at most {bound:g} updates behind{seen}"


def _failover_text(one: Mapping[str, Any]) -> str:
    first = one["first_commit_seconds"]
    resumed = "no commit since" if first is None else f"first commit after {first:.2f} s"
    return f"{one['at']:.1f} s: {one['text']}; {resumed}"


def _fencing(summary: Mapping[str, Any]) -> list[str]:
    term, epochs = summary.get("term", 1), summary.get("shard_epochs") or {}
    parts = [f"term {term}"] * (term > 1) + [f"shard {shard} in epoch {epoch}" for shard, epoch in epochs.items()]
    return [", ".join(parts)] if parts else []


def _checkpoints_text(summary: Mapping[str, Any]) -> str:
    complete, failed = summary.get("checkpoints") or [], summary.get("checkpoint_failures", 0)
    given_up = summary.get("checkpoints_abandoned", 0)
    count = f"{summary.get('checkpoints_complete', len(complete))} complete"
    if "checkpoints_held" in summary:  # the log knows those that were removed, and may lack the newest
        complete = [one for one in summary["checkpoints_held"] if one["state"] == "complete"]
        count = f"{len(complete)} complete in the store"
    parts = [f"{count}, {_rule_text(summary)}"]
    if complete:
        parts.append(f"the newest at version {complete[-1]['version']}")
    parts += [f"{failed} failed"] * bool(failed) + [f"{given_up} abandoned"] * bool(given_up)
    return "; ".join(parts)


def _rule_text(summary: Mapping[str, Any]) -> str:
    rule = summary.get("checkpoint_rule") or {}
    if rule.get("keep") == 0:
        return "none asked for"
    units = {"updates": rule.get("every_updates"), "s": rule.get("every_seconds")}
    words = [f"{value:g} {unit}" for unit, value in units.items() if value is not None]
    return f"one every {' or '.join(words)}" if words else "no rule known"


def _checkpoint_text(held: Mapping[str, Any], logged: Mapping[str, Any] | None) -> str:
    """Return what a checkpoint in the store is, and how long it took, where the log knows."""
    if held["state"] != "complete":
        version = "" if logged is None else f"version {logged['version']}, "
        return f"{held['number']}: {version}{held['state']} ({held['flaw']})"
    cut = datetime.fromtimestamp(held["time"], UTC).astimezone().isoformat(" ", "seconds")
    took = "" if logged is None else f" in {logged['seconds']:.2f} s"
    return f"{held['number']}: version {held['version']}, complete, {held['bytes'] / 1e6:.1f} MB{took}, cut at {cut}"
