"""Staleness of what was applied."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from psplatform.dashboard.figures.convergence import axis_title
from psplatform.dashboard.figures.curves import Axis, lines
from psplatform.dashboard.figures.style import ALARM, COLOURS, FROM_ZERO, bound_line, picture, say
from psplatform.dashboard.read_models.delays import DelayRows

_FEW = 20
"""Values that each have a tick of their own."""


def histogram(counts: Mapping[int, int], bound: int | None) -> go.Figure:
    """Return how many gradients had which staleness, with the policy's bound where it promises one."""
    stale, found = list(counts), list(counts.values())
    bars = go.Bar(
        x=stale,
        y=found,
        marker={"color": COLOURS[0]},
        name="gradients",
        hovertemplate="staleness %{x}: %{y} gradients<extra></extra>",
    )
    last = max([bound or 0, *stale]) + 1
    ticks = {"range": [-0.6, last], **({"dtick": 1} if last <= _FEW else {})}
    figure = picture([bars], x="staleness [versions]", y="applied gradients", legend=False, x_axis=ticks)
    if bound is not None:
        figure.add_vline(
            x=bound + 0.5,
            line={"color": ALARM, "dash": "dash", "width": 1.5},
            annotation_text=f"bound {bound}",
            annotation_position="top left" if stale and bound > max(stale) / 2 else "top right",
        )
    return figure if found else say(figure, "no gradient was applied yet")


def over_time(rows: DelayRows, axis: Axis, bound: int | None) -> go.Figure:
    """Return mean and extremes of the staleness over time."""
    traces = lines(rows.staleness, name="mean, with least and largest", axis=axis, colour=COLOURS[0])
    figure = picture(traces, x=axis_title(axis), y="staleness [versions]", y_axis=FROM_ZERO)
    if bound is not None:
        bound_line(figure, bound, f"bound {bound}")
    return figure if len(rows.staleness) else say(figure, "no gradient was applied yet")
