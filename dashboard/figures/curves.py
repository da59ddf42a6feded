"""Curves with the band between the extremes of what each of their points stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from psplatform.dashboard.figures.style import faint
from psplatform.dashboard.read_models.envelopes import Curve, Floats

Axis = Literal["updates", "seconds"]


def positions(curve: Curve, axis: Axis) -> Floats:
    """Return where a curve's points are on an axis of updates or of seconds of the run."""
    return curve.version if axis == "updates" else curve.at


def smoothed(values: Floats, share: float) -> Floats:
    """Return an exponential moving average, over the values that are known.

    Parameters
    ----------
    share
        How much of the average is kept at each point, in [0, 1): 0 leaves the values as they are.
    """
    if not share:
        return values
    found = np.full(len(values), np.nan)
    average, weight = 0.0, 0.0
    for place, value in enumerate(values):
        if value == value:  # noqa: PLR0124  NaN is not itself
            average = share * average + (1 - share) * value
            weight = share * weight + (1 - share)
        if weight:
            found[place] = average / weight
    return found


def lines(
    curve: Curve,
    *,
    name: str,
    axis: Axis,
    colour: str,
    dash: str = "solid",
    smooth: float = 0.0,
    band: bool = True,
    markers: bool = False,
    group: str | None = None,
    hover: str = "%{y:.5g}",
) -> list[Any]:
    """Return the traces of one curve: its mean, and the band between its extremes where points stand for several.

    The band is there without a width before: so it is hidden with its curve also where it appears later.
    """
    x = positions(curve, axis)
    traces: list[Any] = []
    if band:
        wide = bool(np.any(curve.high > curve.low))
        at, high, low = (x, curve.high, curve.low) if wide else (x[:1], [None], [None])
        edges = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        shared = {**edges, "legendgroup": group or name}
        traces.append(go.Scatter(x=at, y=high, name=f"{name} highest", **shared))
        traces.append(go.Scatter(x=at, y=low, name=f"{name} lowest", fill="tonexty", fillcolor=faint(colour), **shared))
    unit = "" if axis == "updates" else " s"
    traces.append(
        go.Scatter(
            x=x,
            y=smoothed(curve.mean, smooth),
            name=name,
            mode="lines+markers" if markers else "lines",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"size": 5},
            legendgroup=group or name,
            hovertemplate=f"{name}: {hover}<br>{axis} %{{x:.6g}}{unit}<extra></extra>",
        )
    )
    return traces


def positive(curves: Sequence[Curve]) -> bool:
    """Whether a logarithmic axis can show all of the curves."""
    known = [one.low[np.isfinite(one.low)] for one in curves if len(one)]
    return bool(known) and all(bool(np.all(low > 0)) for low in known) and any(len(low) for low in known)
