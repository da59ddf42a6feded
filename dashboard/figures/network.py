"""Where gradients and parameters went, and how long that took."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import plotly.graph_objects as go

from psplatform.core.reasons import NOT_SENT
from psplatform.dashboard.figures.convergence import axis_title
from psplatform.dashboard.figures.curves import lines
from psplatform.dashboard.figures.style import CATEGORIES, COLOURS, FROM_ZERO, label, picture, say
from psplatform.dashboard.read_models.counts import Counts
from psplatform.dashboard.read_models.network import EXACT, Seconds

_WAYS = {"bytes_in": ("in", COLOURS[0]), "bytes_out": ("out", COLOURS[1])}
_BYTES = {"tickformat": "~s", **FROM_ZERO}


def interfaces(found: Mapping[str, Mapping[str, float]], servers: Collection[str]) -> go.Figure:
    """Return the bytes into and out of each host, the busiest interface first; on `servers` are servers."""
    hosts = sorted(found, key=lambda host: (-max(found[host].values()), host))
    names = [label(f"{host} (server)" if host in servers else host) for host in hosts]
    traces = [
        go.Bar(
            x=names,
            y=[found[host][way] for host in hosts],
            name=name,
            marker={"color": tint},
            hovertemplate=f"%{{x}}: %{{y:.4s}}B {name}<extra></extra>",
        )
        for way, (name, tint) in _WAYS.items()
    ]
    figure = picture(traces, x="host", y="bytes [B]", x_axis=CATEGORIES, y_axis=_BYTES, barmode="group")
    return figure if hosts else say(figure, "nothing has crossed an interface")


def seconds(rows: Seconds, what: str) -> go.Figure:
    """Return how long transfers took and were to take: mean and extremes over time."""
    planned = lines(rows.planned, name="planned", axis="seconds", colour=COLOURS[1], dash="dash", hover="%{y:.4g} s")
    took = lines(rows.took, name="actual", axis="seconds", colour=COLOURS[0], hover="%{y:.4g} s")
    figure = picture([*planned, *took], x=axis_title("seconds"), y=f"{what} [s]", y_axis=FROM_ZERO)
    return figure if len(rows.took) or len(rows.planned) else say(figure, "none was sent as planned yet")


def sizes(counts: Mapping[int, int]) -> go.Figure:
    """Return how many vectors that came to the servers were made of how many gradients."""
    names = [f"{size}" if size < EXACT else f"{size}–{2 * size - 1}" for size in counts]
    bars = go.Bar(
        x=names,
        y=list(counts.values()),
        marker={"color": COLOURS[2]},
        hovertemplate="%{y} vectors of %{x} gradients<extra></extra>",
    )
    figure = picture([bars], x="gradients in a vector", y="vectors", legend=False, x_axis=CATEGORIES)
    return figure if counts else say(figure, "no gradient has come to the servers yet")


def dropped_at_source(counts: Counts) -> go.Figure:
    """Return how many gradients per second were dropped before they were sent."""
    dropped = NOT_SENT in counts.by_key
    bars = go.Bar(
        x=counts.middles_s if dropped else [],
        y=counts.rates(NOT_SENT) if dropped else [],
        width=counts.width_s,
        marker={"color": COLOURS[3], "line": {"width": 0}},
        hovertemplate="%{y:.4g} per second<br>at %{x:.4g} s<extra></extra>",
    )
    figure = picture([bars], x=axis_title("seconds"), y="dropped gradients [1/s]", legend=False)
    return figure if dropped else say(figure, "every gradient was sent")
