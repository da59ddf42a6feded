"""How all pictures look: colours that colour-blind people can tell apart, units on every axis, zoom that stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final
from zlib import crc32

import plotly.graph_objects as go

# M. Okabe, K. Ito, "Color universal design", 2008, without the yellow, which white paper swallows.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D31")
GREY: Final = "#9A9A9A"
ALARM: Final = "#D55E00"

STATE_COLOURS: Final = {"wait": "#9A9A9A", "pull": "#56B4E9", "compute": "#009E73", "push": "#E69F00"}
"""What a worker does."""

DASHES: Final = ("solid", "dash", "dot", "dashdot")

HEIGHT: Final = 300

FROM_ZERO: Final = {"rangemode": "tozero"}
CATEGORIES: Final = {"type": "category"}
"""Of an axis."""

_MOST_COLOURS: Final = len(COLOURS)

_LONGEST_LABEL: Final = 80


def label(text: str) -> str:
    """Return a text out of a store as plotly shows it word for word: it takes tags and templates for its own."""
    shown = text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"
    return escape(shown, quote=False).replace("%{", "% {")


def colour(number: int) -> str:
    """Return the colour of the curve of that number; they repeat, with other dashes (`dash`)."""
    return COLOURS[number % _MOST_COLOURS]


def dash(number: int) -> str:
    """Return the dash of the curve of that number."""
    return DASHES[(number // _MOST_COLOURS) % len(DASHES)]


def faint(hex_colour: str, opacity: float = 0.18) -> str:
    """Return a colour with some transparency."""
    red, green, blue = (int(hex_colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def picture(
    traces: Iterable[Any],
    *,
    x: str,
    y: str,
    height: int = HEIGHT,
    log_y: bool = False,
    legend: bool = True,
    x_axis: Mapping[str, Any] | None = None,
    y_axis: Mapping[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Return a figure of `traces` with titled axes, whose zoom and legend stay as they are when it is drawn anew.

    The zoom stays while the title of the x axis does.  What the legend hides is known by the names of the traces, of
    which some may come and go.

    Parameters
    ----------
    x, y
        Titles of the axes, with units.
    x_axis, y_axis, layout
        What plotly is told besides of the axes and the whole; here, because later updates take it several times as
        long.
    """
    log = {"type": "log", "exponentformat": "power", "minor": {"dtick": "D1"}} if log_y else {}
    # An empty template: the page fills in its theme where the figure is shown, and refreshes carry no default one.
    return go.Figure(
        data=_told_apart(traces),
        layout={
            "template": {},
            "height": height,
            "margin": {"l": 66, "r": 16, "t": 28, "b": 44},
            "uirevision": "kept",
            "showlegend": legend,
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0, "itemwidth": 30},
            "hovermode": "closest",
            "bargap": 0.1,
            "xaxis": {"title": {"text": x, "standoff": 6}, "uirevision": x, **(x_axis or {})},
            "yaxis": {
                "title": {"text": y, "standoff": 12},
                "uirevision": f"{y} along {x}",
                "automargin": True,
                **log,
                **(y_axis or {}),
            },
            **layout,
        },
    )


def _told_apart(traces: Iterable[Any]) -> list[Any]:
    """Return the traces, each with an identity that it keeps while others come and go: its kind and its name."""
    found = list(traces)
    seen: Counter[str] = Counter()
    for one in found:
        # plotly.js makes a class name of it, in which a name out of a store has no place.
        known = f"t{crc32(f'{one.type} {one.name}'.encode(errors='replace')):08x}"
        one.uid = f"{known}-{seen[known]}" if seen[known] else known
        seen[known] += 1
    return found


def say(figure: go.Figure, text: str) -> go.Figure:
    """Return the figure with a sentence in its middle, where there is nothing to draw."""
    figure.add_annotation(text=text, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5, font={"size": 14})
    return figure


def bound_line(figure: go.Figure, value: float, text: str) -> go.Figure:
    """Return the figure with a horizontal line at a bound."""
    figure.add_hline(
        y=value,
        line={"color": ALARM, "dash": "dash", "width": 1.5},
        annotation_text=text,
        annotation_position="top left",
    )
    return figure
