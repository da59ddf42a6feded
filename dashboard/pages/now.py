"""The strip that says how a run stands now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from psplatform.client.runs.listing import State
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import Shown, library, metric
from psplatform.dashboard.read_models.workers import SLOW
from psplatform.dashboard.words import UNKNOWN, decimals, duration, number, plain
from psplatform.telemetry.picture import INCIDENTS
from psplatform.telemetry.words import survival_text

_WIDTHS = (1.1, 1.5, 1.15, 0.95, 0.9)
"""Of the columns of figures, two in each."""


def strip(shown: Shown) -> None:
    """Show how a run stands: every figure is that of its summary (``psplatform runs STORE --json``)."""
    summary, scores = shown.reading.read(lambda models: (models.view.to_summary(), models.workers.scores()))
    if "run" not in summary:
        st.info(f"{plain(shown.name)} has logged nothing yet: {plain(shown.listed.reason)}.")
        return
    incidents = len(summary["incidents"])
    cells = [
        ("State", shown.listed.state.value, "state"),
        ("Version", f"{summary['updates']}", "version"),
        ("Updates/s", number(summary["updates_per_second"]), "updates per second"),
        ("Loss", decimals(summary["loss"]), "loss"),
        ("Held-out loss", decimals(summary["evaluation_loss"]), "held-out loss"),
        ("Accuracy", decimals(summary["accuracy"]), "accuracy"),
        ("Workers", workers_now(summary, scores), "workers"),
        ("Divergence", divergence_now(summary), "divergence"),
        ("Checkpoint", _checkpoint_age(shown), "checkpoint"),
        ("Incidents", f"{incidents}{'+' if incidents >= INCIDENTS else ''}", "incidents"),
    ]
    columns = st.columns(_WIDTHS)
    for column, (label, value, word) in zip([*columns, *columns], cells, strict=True):
        metric(column, label, value, meaning(word))
    _say_how_it_ended(shown, summary)


def workers_now(summary: Mapping[str, Any], scores: Mapping[int, float]) -> str:
    """Return how many workers compute, wait, are slow, are lost and have left: those of which there are any."""
    statuses = [one["status"] for one in summary["slots"].values()]
    slow = sum(
        scores.get(int(slot), 1.0) > SLOW
        for slot, one in summary["slots"].items()
        if one["status"] in ("computing", "idle")
    )
    counts = {
        "computing": statuses.count("computing"),
        "waiting": statuses.count("idle"),
        "slow": slow,
        "lost": statuses.count("lost"),
        "left": statuses.count("left"),
    }
    return " · ".join(f"{count} {word}" for word, count in counts.items() if count) or "none yet"


def divergence_now(summary: Mapping[str, Any]) -> str:
    """Return the largest divergence and its bound."""
    found = summary["divergence"]
    if found["bound"] is None:
        return "no replicas"
    seen = UNKNOWN if found["max"] is None else f"{found['max']:.3g}"
    return f"{seen} of {found['bound']:.3g}" + (" updates" if found["unit"] == "updates" else "")


def _checkpoint_age(shown: Shown) -> str:
    newest = library().newest_checkpoint(shown.listed.store)
    if newest is None or newest.get("time") is None:
        return "none"
    if shown.listed.state is State.LIVE:
        return duration(max(0.0, time.time() - newest["time"]))
    return f"version {newest['version']}"


def _say_how_it_ended(shown: Shown, summary: Mapping[str, Any]) -> None:
    state, reason = shown.listed.state, plain(shown.listed.reason)
    if state is State.FINISHED:
        st.success(f"Finished: {reason} ({plain(summary['detail'])}).")
    elif state is State.RECOVERABLE:
        st.warning(f"{reason}. The page Failures recovers it.")
    elif state is State.FAILED:
        st.error(reason)
    if summary["unprotected"]:
        shards = plain(", ".join(str(shard) for shard in summary["unprotected"]))
        st.warning(f"Unprotected: no replica of shard {shards} is in sync. The loss of its server would end the run.")
    elif state is State.LIVE and (text := survival_text(summary)):
        st.caption(f"The run survives {plain(text)}.")
