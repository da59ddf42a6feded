"""What workers did when, and how long they take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go

from psplatform.dashboard.figures.style import ALARM, CATEGORIES, COLOURS, STATE_COLOURS, picture, say
from psplatform.dashboard.read_models.lanes import PARTS, STATES, Lanes
from psplatform.dashboard.read_models.workers import SLOW, ComputeTimes

MOST_WORKERS: Final = 64
"""Workers drawn one by one: of more, the slowest."""

_LANE_PIXELS: Final = 22


def slowest(rows: Sequence[ComputeTimes], count: int = MOST_WORKERS) -> list[ComputeTimes]:
    """Return the workers with the highest straggler scores, by slot."""
    worst = sorted(rows, key=lambda one: -(one.score or 0.0))[:count]
    return sorted(worst, key=lambda one: one.slot)


def lanes(rows: Lanes, shown: Collection[int] | None = None) -> go.Figure:
    """Return one lane for each worker, coloured by what it did; of many only those that are `shown`."""
    slots = [slot for slot in rows.slots if shown is None or slot in shown][:MOST_WORKERS]
    height = 110 + _LANE_PIXELS * min(max(len(slots), 4), 26)
    ends = [rows.start_s, rows.end_s]
    traces = _parts(rows, slots) if rows.bars is None else _bars(rows, slots)
    figure = picture(
        traces,
        x="time since the run began [s]",
        y="worker (slot)",
        height=height,
        # No range, which would move with the run and take the visitor's zoom with it.
        x_axis={"autorangeoptions": {"include": ends, "clipmin": ends[0], "clipmax": ends[1]}},
        y_axis={**CATEGORIES, "categoryorder": "array", "categoryarray": [str(slot) for slot in reversed(slots)]},
        barmode="overlay",
        bargap=0.15,
    )
    return figure if slots else say(figure, "no gradient was announced in this stretch")


def _bars(rows: Lanes, slots: Sequence[int]) -> list[go.Bar]:
    traces = []
    for state in STATES:
        slot, begin, length = (rows.bars or {})[state]
        drawn = np.isin(slot, slots)
        traces.append(
            go.Bar(
                y=[str(one) for one in slot[drawn]],
                base=begin[drawn],
                x=length[drawn],
                orientation="h",
                name=state,
                marker={"color": STATE_COLOURS[state], "line": {"width": 0}},
                hovertemplate=f"worker %{{y}}: {state} for %{{x:.4g}} s<extra></extra>",
            )
        )
    return traces


def _parts(rows: Lanes, slots: Sequence[int]) -> list[go.Heatmap | go.Scatter]:
    places = [rows.slots.index(slot) for slot in slots]
    parts = rows.parts[places] if rows.parts is not None else np.zeros((0, PARTS))
    width = (rows.end_s - rows.start_s) / PARTS
    steps = [(place / len(STATES), STATE_COLOURS[state]) for place, state in enumerate(STATES)]
    scale = [(at, tint) for place, (at, tint) in enumerate(steps) for at in (at, (place + 1) / len(STATES))]
    heat = go.Heatmap(
        x=rows.start_s + (np.arange(PARTS) + 0.5) * width,
        y=[str(slot) for slot in slots],
        z=parts.astype(np.float32),
        zmin=-0.5,
        zmax=len(STATES) - 0.5,
        colorscale=scale,
        showscale=False,
        ygap=2,
        hovertemplate="worker %{y} at %{x:.4g} s<extra>most of the time</extra>",
    )
    keys = [
        go.Scatter(x=[None], y=[None], mode="markers", name=f"mostly {state}", marker=_square(STATE_COLOURS[state]))
        for state in STATES
    ]
    return [heat, *keys]


def _square(tint: str) -> dict[str, object]:
    return {"color": tint, "symbol": "square", "size": 11}


def compute_times(rows: Sequence[ComputeTimes]) -> go.Figure:
    """Return how long the gradients of each worker take: the middle half, the middle 90 %, and the extremes."""
    shown = slowest(rows)
    names = [str(one.slot) for one in shown]
    boxes = go.Box(
        x=names,
        q1=[one.quantiles[1] for one in shown],
        median=[one.quantiles[2] for one in shown],
        q3=[one.quantiles[3] for one in shown],
        lowerfence=[one.quantiles[0] for one in shown],
        upperfence=[one.quantiles[4] for one in shown],
        name="5, 25, 50, 75 and 95 %",
        marker={"color": COLOURS[0]},
        line={"width": 1.5},
    )
    longest = go.Scatter(
        x=names,
        y=[one.largest for one in shown],
        mode="markers",
        name="longest",
        marker={"color": COLOURS[3], "size": 5, "symbol": "line-ew-open"},
        hovertemplate="worker %{x}: longest %{y:.4g} s<extra></extra>",
    )
    title = "compute time of a gradient [s]"
    figure = picture([boxes, longest], x="worker (slot)", y=title, log_y=True, x_axis=CATEGORIES)
    return figure if shown else say(figure, "no gradient was computed yet")


def scores(rows: Sequence[ComputeTimes]) -> go.Figure:
    """Return the straggler score of each worker, those called slow in another colour."""
    shown = slowest(rows)
    found = [one.score or 0.0 for one in shown]
    bars = go.Bar(
        x=[str(one.slot) for one in shown],
        y=found,
        marker={"color": [ALARM if one > SLOW else COLOURS[2] for one in found]},
        hovertemplate="worker %{x}: %{y:.3g} times the usual<extra></extra>",
    )
    title = "straggler score [× usual time]"
    figure = picture([bars], x="worker (slot)", y=title, legend=False, x_axis=CATEGORIES)
    figure.add_hline(y=SLOW, line={"color": ALARM, "dash": "dash", "width": 1.5}, annotation_text=f"slow: {SLOW}")
    return figure if shown else say(figure, "no gradient was computed yet")
