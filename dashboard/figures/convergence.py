"""Losses, accuracies and speed of one run or several."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from psplatform.dashboard.figures.curves import Axis, lines, positive
from psplatform.dashboard.figures.style import FROM_ZERO, colour, dash, label, picture, say
from psplatform.dashboard.read_models.convergence import ConvergenceRows

_NOTHING = "nothing was committed yet"


def axis_title(axis: Axis) -> str:
    """Return the title of the axis that time runs along."""
    return "updates (version)" if axis == "updates" else "time since the run began [s]"


def losses(runs: Mapping[str, ConvergenceRows], axis: Axis, smooth: float = 0.0) -> go.Figure:
    """Return training losses (thin band, line) and held-out losses (dots) of the runs by name."""
    traces = []
    for number, (name, rows) in enumerate(runs.items()):
        own, alone = colour(number), len(runs) == 1
        shown = "training" if alone else label(name)
        traces += lines(rows.training, name=shown, axis=axis, colour=own, dash=dash(number), smooth=smooth)
        if len(rows.held_out):
            held = "held-out" if alone else f"{shown} held-out"
            held_colour = colour(1) if alone else own
            traces += lines(rows.held_out, name=held, axis=axis, colour=held_colour, dash="dot", markers=True)
    log = positive([curve for rows in runs.values() for curve in (rows.training, rows.held_out) if len(curve)])
    figure = picture(traces, x=axis_title(axis), y="mean loss per sample", log_y=log)
    return figure if any(len(rows.training) for rows in runs.values()) else say(figure, _NOTHING)


def accuracies(runs: Mapping[str, ConvergenceRows], axis: Axis) -> go.Figure:
    """Return the held-out accuracy of the runs by name."""
    traces = []
    for number, (name, rows) in enumerate(runs.items()):
        shown = "accuracy" if len(runs) == 1 else label(name)
        traces += lines(rows.accuracy, name=shown, axis=axis, colour=colour(number), dash=dash(number), markers=True)
    figure = picture(traces, x=axis_title(axis), y="held-out accuracy [share of 1]")
    if not any((rows.accuracy.mean == rows.accuracy.mean).any() for rows in runs.values()):
        return say(figure, "no accuracy was measured yet")
    return figure


def metrics(runs: Mapping[str, ConvergenceRows], axis: Axis) -> go.Figure:
    """Return the named metrics of the runs by name: a colour for each metric, a dash for each run."""
    names = list(dict.fromkeys(metric for rows in runs.values() for metric in rows.metrics))
    traces = []
    for number, (name, rows) in enumerate(runs.items()):
        for metric, curve in rows.metrics.items():
            shown = label(metric) if len(runs) == 1 else f"{label(name)} {label(metric)}"
            own = colour(names.index(metric))
            traces += lines(curve, name=shown, axis=axis, colour=own, dash=dash(number), markers=True)
    figure = picture(traces, x=axis_title(axis), y="metric [its own unit]")
    known = [curve for rows in runs.values() for curve in rows.metrics.values() if len(curve)]
    return figure if known else say(figure, "no metric was measured yet")


def speed(runs: Mapping[str, ConvergenceRows]) -> go.Figure:
    """Return commits per second of the runs by name."""
    traces = []
    for number, (name, rows) in enumerate(runs.items()):
        counts = rows.commits
        if "commits" in counts.by_key:
            traces.append(
                go.Scatter(
                    x=counts.middles_s,
                    y=counts.rates("commits"),
                    name=label(name),
                    mode="lines",
                    line={"color": colour(number), "dash": dash(number), "shape": "hvh", "width": 2},
                    hovertemplate="%{y:.4g} per second<br>at %{x:.4g} s<extra></extra>",
                )
            )
    figure = picture(traces, x=axis_title("seconds"), y="commits [1/s]", legend=len(runs) > 1, y_axis=FROM_ZERO)
    return figure if traces else say(figure, _NOTHING)
