"""How far replicas lag, against the bound that is enforced."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from psplatform.dashboard.figures.convergence import axis_title
from psplatform.dashboard.figures.curves import Axis, lines
from psplatform.dashboard.figures.style import COLOURS, FROM_ZERO, bound_line, colour, dash, picture, say
from psplatform.dashboard.read_models.divergence import DivergenceRows

_NOTHING = "no replica was ever in sync"


def whole_model(rows: DivergenceRows, axis: Axis, bound: float | None, unit: str | None) -> go.Figure:
    """Return what the worst replica lacked at visible versions, in the unit of the bound."""
    curve = rows.distance if unit == "norm" else rows.lag
    title = "distance (Euclidean norm)" if unit == "norm" else "updates lacking"
    traces = lines(curve, name="mean, with least and largest", axis=axis, colour=COLOURS[0])
    figure = picture(traces, x=axis_title(axis), y=title, y_axis=FROM_ZERO)
    if bound is not None:
        bound_line(figure, bound, f"bound {bound:g}")
    return figure if len(curve) else say(figure, _NOTHING)


def by_shard(rows: DivergenceRows, axis: Axis, bound: float | None, unit: str | None, shards: int) -> go.Figure:
    """Return the same of each shard, sampled once a second; of a distance each shard has its part of the bound."""
    curves = rows.distance_by_shard if unit == "norm" else rows.lag_by_shard
    title = "distance (Euclidean norm)" if unit == "norm" else "updates lacking"
    traces = []
    for shard, curve in curves.items():
        name = f"shard {shard}"
        traces += lines(curve, name=name, axis=axis, colour=colour(shard), dash=dash(shard), band=False)
    figure = picture(traces, x=axis_title(axis), y=title, y_axis=FROM_ZERO)
    if bound is not None and shards:
        own = bound / math.sqrt(shards) if unit == "norm" else bound
        bound_line(figure, own, f"bound of a shard {own:.4g}")
    return figure if traces else say(figure, _NOTHING)
