"""What the policy decided."""

from __future__ import annotations

import plotly.graph_objects as go

from psplatform.dashboard.figures.convergence import axis_title
from psplatform.dashboard.figures.curves import Axis, lines
from psplatform.dashboard.figures.style import COLOURS, FROM_ZERO, label, picture, say
from psplatform.dashboard.read_models.decisions import DecisionRows
from psplatform.dashboard.read_models.envelopes import Curve

_NOTHING = "nothing was committed yet"


def figure_of_policy(curve: Curve, name: str, axis: Axis) -> go.Figure:
    """Return one figure that the policy gives with its decisions: k, c, bound and so on."""
    traces = lines(curve, name=label(name), axis=axis, colour=COLOURS[2])
    figure = picture(traces, x=axis_title(axis), y=label(name), legend=False, y_axis=FROM_ZERO)
    return figure if len(curve) else say(figure, _NOTHING)


def gradients_per_commit(rows: DecisionRows, axis: Axis) -> go.Figure:
    """Return how many gradients each commit took."""
    traces = lines(rows.gradients, name="gradients", axis=axis, colour=COLOURS[0])
    figure = picture(traces, x=axis_title(axis), y="gradients per commit", legend=False, y_axis=FROM_ZERO)
    return figure if len(rows.gradients) else say(figure, _NOTHING)


def learning_rate(rows: DecisionRows, axis: Axis, base: float | None) -> go.Figure:
    """Return the effective learning rate: the job's, times the policy's and the schedule's factor of each commit."""
    factor = base if base is not None else 1.0
    curve = rows.rate
    scaled = Curve(curve.at, curve.version, curve.low * factor, curve.mean * factor, curve.high * factor)
    title = "effective learning rate" if base is not None else "factor on the learning rate"
    traces = lines(scaled, name=title, axis=axis, colour=COLOURS[3])
    figure = picture(traces, x=axis_title(axis), y=title, legend=False, y_axis=FROM_ZERO)
    return figure if len(curve) else say(figure, _NOTHING)
