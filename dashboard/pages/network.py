"""What planned transfers carry: through which interfaces, how fast, and what they leave out."""

from __future__ import annotations

from typing import Any

import streamlit as st

from psplatform.dashboard.figures import delays, network
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import View, draw, metric, run_page
from psplatform.dashboard.words import UNKNOWN, size

_NOT_PLANNED = "The transfers of this run are not planned; start one with `--fabric` to have them planned and logged."


def page() -> None:
    """Show the page."""
    run_page("Network", _body, axis=False)


def _body(view: View) -> None:
    summary, servers, rows, drops = view.run.reading.read(
        lambda models: (
            models.view.to_summary(),
            set(models.view.transfers.interfaces.parts or ()),
            models.network.rows,
            models.drops.rows,
        )
    )
    found = summary.get("network")
    if found is None:
        st.caption(_NOT_PLANNED)
        return
    _metrics(found, summary["applied"])
    left, right = st.columns(2)
    with left:
        title = "Bytes by interface"
        draw(network.interfaces(found["interfaces"] or {}, servers), "interfaces", title, meaning("interface"))
    with right:
        title = "Gradients in the vectors that came"
        draw(network.sizes(rows.sizes), "sizes", title, meaning("gradients per vector"))
    left, right = st.columns(2)
    with left:
        figure = network.seconds(rows.gradients, "gradients to the servers")
        draw(figure, "gradients", "Seconds of gradients to the servers", meaning("planned seconds"))
    with right:
        figure = network.seconds(rows.parameters, "parameters to a worker")
        draw(figure, "parameters", "Seconds of parameters to workers", meaning("planned seconds"))
    left, right = st.columns(2)
    with left:
        title = "Dropped at the source over time"
        draw(network.dropped_at_source(drops.over_time), "unsent", title, meaning("dropped at the source"))
    with right:
        counts = {int(stale): count for stale, count in summary["staleness"]["histogram"].items()}
        figure = delays.histogram(counts, summary.get("staleness_bound"))
        draw(figure, "delays", "Delay of applied gradients", meaning("staleness"))


def _metrics(found: dict[str, Any], applied: int) -> None:
    columns = st.columns(4)
    for place, (name, way) in enumerate((("Into the servers", "in"), ("Out of the servers", "out"))):
        count = found[f"bytes_{way}"]
        metric(columns[place], name, size(count), meaning(name.lower()))
        each = size(count / applied) if applied and count is not None else UNKNOWN
        metric(columns[place + 2], f"{way.title()} per update", each, "For each gradient that was applied.")
    below = st.columns(5)
    aggregation, delay = found["aggregation"], found["delay"]
    mean = UNKNOWN if aggregation is None else f"{aggregation:.2f}"
    metric(below[0], "Gradients per vector", mean, meaning("gradients per vector"))
    metric(below[1], "Dropped at source", f"{found['dropped_at_source']}", meaning("dropped at the source"))
    metric(below[2], "Mean delay", f"{delay['mean']:.2f}", meaning("staleness"))
    metric(below[3], "Delay of 95 %", f"{delay['p95']}", "At most this, of 95 % of the gradients that were applied.")
    metric(below[4], "Largest delay", f"{delay['max']}")
