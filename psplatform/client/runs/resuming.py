"""The state of a coordinator out of a checkpoint: looked at before a run goes on from it."""

from __future__ import annotations

from typing import Any, Final

from psplatform.errors import CheckpointError
from psplatform.replication.checkpoints.checkpoint import Checkpoint
from psplatform.untrusted.checks import are_counts, is_count, is_number

_PAIR: Final = 2
_OF_PROGRESS: Final = 4


def require_state(store: str, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose coordinator cannot be made of its state.

    Raises
    ------
    CheckpointError
        Naming what in it is not of its kind.
    """
    shards = all(is_count(one.plain.get("commits")) for one in checkpoint.shards)
    flaw = _flaw_of(checkpoint.state, len(checkpoint.shards)) if shards else "commits of a shard"
    if flaw is not None:
        text = f"checkpoint {checkpoint.number} of {store} is damaged (state.msgpack: its {flaw} makes no sense)"
        remedy = "recover from another checkpoint, which `psplatform runs` lists"
        raise CheckpointError(f"{text}; {remedy}", store=store, number=checkpoint.number, previous=None)


def _flaw_of(state: dict[str, Any], shards: int) -> str | None:
    newest, batch_scheduler, roster = state.get("newest"), state.get("deck"), state.get("roster")
    bad = state.get("bad_batches", [0, 0])
    commit_logs = isinstance(newest, list) and len(newest) in (1, shards) and all(_are_pairs(one) for one in newest)
    checks = {
        "version": is_count(state.get("version")),
        "positions": are_counts(state.get("positions")) and len(state["positions"]) == shards,
        "versions": are_counts(state.get("versions")) and len(state["versions"]) == shards,
        "seconds": is_number(state.get("seconds")) and state["seconds"] >= 0,
        "samples_applied": is_count(state.get("samples_applied")),
        "bad_batches": are_counts(bad) and len(bad) == _PAIR,
        "newest": commit_logs,
        "roster": _is_roster(roster),
        "deck": batch_scheduler is None or _is_batch_scheduler(batch_scheduler),
        "progress": _is_progress(state.get("progress")),
    }
    return next((name for name, holds in checks.items() if not holds), None)


def _are_pairs(value: Any, length: int = _PAIR) -> bool:
    return isinstance(value, list) and all(are_counts(one) and len(one) == length for one in value)


def _is_roster(value: Any) -> bool:
    if not isinstance(value, dict) or not is_count(value.get("minimum_clock")):
        return False
    return _are_pairs(value.get("sequences")) and _are_pairs(value.get("incarnations"))


def _is_batch_scheduler(value: Any) -> bool:
    if not isinstance(value, dict) or not all(is_count(value.get(name)) for name in ("epoch", "number", "batches")):
        return False
    return _are_pairs(value.get("returned")) and _are_pairs(value.get("refusals", []), 3)


def _is_progress(value: Any) -> bool:
    if value is None:  # older checkpoints have none
        return True
    if not isinstance(value, dict) or not isinstance(value.get("metric"), str):
        return False
    values = value.get("values")
    if not isinstance(values, list) or len(values) != _OF_PROGRESS or not isinstance(value.get("lower"), bool):
        return False
    best, version, goal, waited = values
    figures = all(one is None or type(one) in (int, float) for one in (best, goal))
    return figures and type(version) is int and is_count(waited)
