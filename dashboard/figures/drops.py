"""Gradients that were not applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

import plotly.graph_objects as go

from psplatform.core.reasons import MEANINGS
from psplatform.dashboard.figures.convergence import axis_title
from psplatform.dashboard.figures.style import CATEGORIES, GREY, colour, label, picture, say
from psplatform.dashboard.figures.workers import MOST_WORKERS
from psplatform.dashboard.read_models.drops import DropRows

_PATTERNS: Final = ("", "/", "\\", "x", "-", "|", "+", ".")

_NOTHING = "nothing was dropped"


def over_time(rows: DropRows) -> go.Figure:
    """Return drops per second by reason, stacked."""
    counts = rows.over_time
    traces = [
        go.Bar(
            x=counts.middles_s,
            y=counts.rates(reason),
            width=counts.width_s,
            name=label(reason),
            marker={**_look_of(reason), "line": {"width": 0}},
            hovertemplate=f"{label(reason)}: %{{y:.4g}} per second<br>at %{{x:.4g}} s<extra></extra>",
        )
        for reason in sorted(counts.by_key)
    ]
    figure = picture(traces, x=axis_title("seconds"), y="dropped gradients [1/s]", barmode="stack")
    return figure if traces else say(figure, _NOTHING)


def by_worker(rows: DropRows) -> go.Figure:
    """Return how many gradients of each worker were dropped, by reason."""
    totals: Mapping[int, int] = {slot: sum(counts.values()) for slot, counts in rows.by_worker.items()}
    slots = sorted(sorted(totals, key=lambda slot: -totals[slot])[:MOST_WORKERS])
    reasons = sorted({reason for counts in rows.by_worker.values() for reason in counts})
    traces = [
        go.Bar(
            x=[str(slot) for slot in slots],
            y=[rows.by_worker[slot].get(reason, 0) for slot in slots],
            name=label(reason),
            marker=_look_of(reason),
            hovertemplate=f"worker %{{x}}: %{{y}} {label(reason)}<extra></extra>",
        )
        for reason in reasons
    ]
    figure = picture(traces, x="worker (slot)", y="dropped gradients", x_axis=CATEGORIES, barmode="stack")
    return figure if traces else say(figure, _NOTHING)


def _look_of(reason: str) -> dict[str, Any]:
    """Return how bars of a reason look: the same in every figure, whichever others are shown beside it.

    A reason of a policy's own is grey, with a pattern that follows from its name.
    """
    known = list(MEANINGS)
    if reason in known:
        return {"color": colour(known.index(reason))}
    return {"color": GREY, "pattern": {"shape": _PATTERNS[crc32(reason.encode(errors="replace")) % len(_PATTERNS)]}}
