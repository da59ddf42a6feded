"""What simulations say to expect: loss against virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from psplatform.dashboard.figures.style import colour, dash, label, picture, say
from psplatform.dashboard.read_models.expected import Expected


def losses(found: Sequence[Expected]) -> go.Figure:
    """Return one curve for each simulation, by its name."""
    traces = []
    for number, one in enumerate(found):
        known = [(at, loss) for at, _, loss in one.curve if loss is not None]
        traces.append(
            go.Scatter(
                x=[at for at, _ in known],
                y=[loss for _, loss in known],
                name=label(one.name),
                mode="lines",
                line={"color": colour(number), "dash": dash(number), "width": 2},
                hovertemplate=f"{label(one.name)}: %{{y:.4g}}<br>after %{{x:.4g}} s<extra></extra>",
            )
        )
    drawn = [loss for one in found for _, _, loss in one.curve if loss is not None]
    log = bool(drawn) and min(drawn) > 0
    figure = picture(traces, x="virtual time [s]", y="mean loss per sample", height=380, log_y=log)
    return figure if drawn else say(figure, "times only: no loss was computed")
