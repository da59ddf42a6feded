"""What a run's summary says in words, for people: the same on the command line and on the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_SHOWN: Final = 5  # failovers and incidents, the newest ones; --json has them all

LONGEST_TEXT: Final = 300
"""Characters of one text out of a store, such as an error's, where many of them are shown."""

_REPLICATED: Final = frozenset({"mode", "replicas", "target", "source"})

_WITH_ROWS: Final = ("promoted", "beyond bound")
"""Kinds of incidents that the closing summary has rows of their own for."""


def shortened(text: object, most: int = LONGEST_TEXT) -> str:
    """Return a text of any length in at most so many characters."""
    whole = str(text)
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def one_line(summary: Mapping[str, Any]) -> str:
    """Return version, loss, accuracy, workers, waiting and drops in one line."""
    alive = sum(one["status"] not in ("lost", "left") for one in summary["slots"].values())
    parts = [
        f"version {summary['updates']}",
        f"loss {_number(summary['loss'])}",
        f"accuracy {_number(summary['accuracy'])}",
        *([metrics_text(summary["metrics"])] if summary.get("metrics") else []),
        f"{alive} workers",
        f"{summary['updates_per_second']:.1f} updates/s",
        f"waiting {summary['waiting_fraction']:.0%}",
        f"staleness {summary['staleness']['mean']:.1f}",
    ]
    if summary["dropped"]["total"]:
        parts.append(f"dropped {summary['dropped']['total']}")
    if bare := unprotected(summary):
        parts.append(f"unprotected {bare}")
    elif summary.get("survives"):
        parts.append(f"survives {summary['survives']['what']}")
    return "  ".join(parts)


def closing_rows(summary: Mapping[str, Any], *, trouble: str = "") -> list[tuple[str, str]]:
    """Return the rows, heading and text, of what is said of a run at its end, and with it the store's `trouble`."""
    drops = ", ".join(f"{count} {reason}" for reason, count in summary["dropped"]["by_reason"].items())
    staleness = summary["staleness"]
    data, evaluated = summary.get("evaluate_on", "held-out"), _number(summary["evaluation_loss"])
    rows = [
        ("outcome", _outcome(summary)),
        ("accuracy", f"{_number(summary['accuracy'])} on {data} data"),
        *_metric_rows(summary),
        ("loss", f"{_number(summary['loss'])} of the last commit, {evaluated} on {data} data"),
        ("time", f"{summary['seconds']:.1f} s, {summary['updates_per_second']:.1f} updates per second"),
        ("updates", f"{summary['updates']} in {summary['commits']} commits of {applied_text(summary)}"),
        ("staleness", f"mean {staleness['mean']:.2f}, at most {staleness['max']} versions"),
        ("dropped", f"{summary['dropped']['total']}" + (f" ({drops})" if drops else "")),
        *_bad_batch_rows(summary),
        ("waiting", f"{summary['waiting_fraction']:.0%} of the workers' time"),
        ("policy", f"{_known(summary, 'policy')} {summary.get('policy_parameters') or ''}".strip()),
        ("run", "{}: {} workers, {} shards".format(*(_known(summary, name) for name in ("run", "workers", "shards")))),
        *([("compression", str(summary["compression"]))] if summary.get("compression") not in (None, "none") else []),
        *protection_rows(summary),
        ("store", _known(summary, "store")),
    ]
    incidents = [one for one in summary["incidents"] if one["kind"] not in _WITH_ROWS]
    rows += [("incident", f"{one['at']:.1f} s: {one['text']}") for one in incidents[-_SHOWN:]]
    return rows + ([("trouble", _trouble_text(summary, trouble))] if trouble else [])


def _known(summary: Mapping[str, Any], name: str) -> str:
    """Return what the log's first record says of the run: where that lacks, a dash."""
    return str(summary.get(name, "-"))


def applied_text(summary: Mapping[str, Any]) -> str:
    """Return how much of what was computed was applied; of a policy that decides block by block, in parts."""
    applied, gradients, blocks = summary["applied"], summary["gradients"], summary.get("blocks", 1)
    if blocks == 1:
        return f"{applied} of {gradients} gradients"
    return f"{applied} of {gradients * blocks} parts of gradients, {blocks} each"


def metrics_text(metrics: Mapping[str, float | None]) -> str:
    """Return named values in one line."""
    return ", ".join(f"{name} {_number(value)}" for name, value in metrics.items())


def _metric_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("metrics", metrics_text(summary["metrics"]))] if summary.get("metrics") else []
    best = summary.get("best")
    if best and (best["kept"] or best["metric"] != "loss"):
        saved = ", saved" if best["kept"] else ""
        rows.append(("best", f"{best['metric']} {_number(best['value'])} at version {best['version']}{saved}"))
    return rows


def _bad_batch_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    bad = summary.get("bad_batches") or {}
    if not bad.get("given_up"):
        return []
    batches = "1 batch" if bad["given_up"] == 1 else f"{bad['given_up']} batches"
    named = list(bad["samples"])
    more = ", ..." if len(named) > _SHOWN else ""
    samples = f"; see samples {', '.join(named[:_SHOWN])}{more}" if named else ""
    return [("left out", f"{batches} without a finite gradient{samples}")]


def _outcome(summary: Mapping[str, Any]) -> str:
    if summary["outcome"] is None:
        return "open: the log has no end; the run goes on, or its cluster was lost"
    return f"{summary['outcome']} ({summary['detail']})"


def _trouble_text(summary: Mapping[str, Any], trouble: str) -> str:
    if summary["outcome"] is None:
        return f"the store lacks the latest records of the log, which wait in memory: {trouble}"
    return f"the store lacks the last records of the log, or how the run ended: {trouble}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def protection_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a closing summary: what was protected and how, what took over, what was saved.

    Where the summary has `checkpoints_held`, what was found in the store, there is a row for each of them.
    """
    rows = [("replication", _replication_text(summary))] if summary.get("replication") else []
    rows += [("replication", long_step["text"])] if (long_step := summary.get("long_step")) else []
    rows += [("survives", text)] if (text := survival_text(summary)) else []
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


def survival_text(summary: Mapping[str, Any]) -> str:
    """Return the largest loss that a run survives as it goes on, and why no larger one; empty where that is not known.

    Of a run that is over, or whose cluster is gone, what it survived last means nothing.
    """
    found = summary.get("survives")
    if not found or summary["outcome"] is not None or summary.get("state", "live") != "live":
        return ""
    loss = "no loss" if found["what"] == "nothing" else f"the loss of {found['what']}"
    return f"{loss} ({found['why']})" if found["why"] else loss


def _replication_text(summary: Mapping[str, Any]) -> str:
    spec, divergence = summary["replication"], summary.get("divergence") or {}
    if spec.get("mode") == "none":
        return "none: what a server has learned since the last checkpoint is lost with it"
    if not _REPLICATED.issubset(spec) or divergence.get("bound") is None:
        return str(spec.get("mode", "-"))
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
