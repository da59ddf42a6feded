"""What was lost, and how soon it was replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from psplatform.dashboard.figures.style import ALARM, CATEGORIES, COLOURS, GREY, picture, say
from psplatform.dashboard.read_models.failures import FailoverRow

PHASES: Final = (
    ("killed → noticed", GREY),
    ("noticed → promoted", COLOURS[1]),
    ("promoted → first commit", ALARM),
    ("first commit → protected again", COLOURS[5]),
)
"""The phases of a failover and their colours."""

_SHOWN: Final = 20


def phases(row: FailoverRow) -> list[float | None]:
    """Return how long each of the `PHASES` of a failover took in seconds, ``None`` where it is not over or unknown."""
    first, again = row.first_commit_at, row.protected_at
    return [
        row.noticed_at - row.killed_at,
        row.promoted_at - row.noticed_at,
        None if first is None else max(0.0, first - row.promoted_at),
        None if first is None or again is None else max(0.0, again - first),
    ]


def name_of(row: FailoverRow) -> str:
    """Return what was lost and when, in a few words."""
    what = "coordinator" if row.shard < 0 else f"server of shard {row.shard}"
    return f"{what} at {row.noticed_at:.1f} s"


def timeline(rows: Sequence[FailoverRow]) -> go.Figure:
    """Return the phases of the newest failovers, one bar each, from the moment that each was last heard."""
    shown = list(rows)[-_SHOWN:]
    names = [name_of(row) for row in shown]
    lengths = [phases(row) for row in shown]
    traces = [
        go.Bar(
            y=names,
            x=[length[place] or 0.0 for length in lengths],
            orientation="h",
            name=phase,
            marker={"color": tint},
            hovertemplate=f"{phase}: %{{x:.3g}} s<extra></extra>",
        )
        for place, (phase, tint) in enumerate(PHASES)
    ]
    figure = picture(
        traces,
        x="time since it was last heard [s]",
        y="",
        height=130 + 34 * max(2, len(shown)),
        y_axis={**CATEGORIES, "autorange": "reversed"},
        barmode="stack",
        bargap=0.35,
    )
    figure.layout.legend.traceorder = "normal"
    return figure if shown else say(figure, "no server and no coordinator was lost")
