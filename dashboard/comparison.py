"""Several trainings in one picture: loss against time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Curve:
    """Losses of one training, each with the time in seconds at which it was measured."""

    name: str
    points: tuple[tuple[float, float | None], ...]

    def drawable(self) -> tuple[list[float], list[float]]:
        """Return times and losses of what was measured and is finite."""
        kept = [(at, loss) for at, loss in self.points if loss is not None and math.isfinite(loss)]
        return [at for at, _ in kept], [loss for _, loss in kept]


def figure(curves: Sequence[Curve]) -> go.Figure:
    """Return one line for each curve, in the order of their last times; on a logarithmic axis where that can be."""
    ordered = sorted(curves, key=lambda curve: max(curve.drawable()[0], default=math.inf))
    lines: list[Any] = []
    for curve in ordered:
        times, losses = curve.drawable()
        lines.append(go.Scatter(x=times, y=losses, mode="lines", name=curve.name))
    axis = "log" if all(loss > 0 for curve in curves for loss in curve.drawable()[1]) else "linear"
    layout = {"xaxis_title": "seconds", "yaxis_title": "loss", "yaxis_type": axis, "template": "plotly_white"}
    return go.Figure(data=lines, layout=layout)


def draw(curves: Sequence[Curve]) -> str:
    """Return the picture as an HTML page that needs nothing else."""
    page: str = figure(curves).to_html(include_plotlyjs=True)
    return page
