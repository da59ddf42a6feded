"""How stale the applied gradients were, against what the policy promises."""

from __future__ import annotations

import streamlit as st

from psplatform.dashboard.figures import delays
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import View, draw, metric, run_page
from psplatform.dashboard.words import plain


def page() -> None:
    """Show the page."""
    run_page("Delays", _body)


def _body(view: View) -> None:
    summary, rows = view.run.reading.read(lambda models: (models.view.to_summary(), models.staleness.rows))
    staleness, bound = summary["staleness"], summary.get("staleness_bound")
    columns = st.columns(4)
    metric(columns[0], "Mean staleness", f"{staleness['mean']:.2f}", meaning("staleness"))
    metric(columns[1], "Largest", f"{staleness['max']}")
    promise = "none" if bound is None else f"{bound}"
    tip = "What the policy promises while workers neither join nor leave."
    metric(columns[2], "Bound", promise, tip)
    waiting = f"{summary['waiting_fraction']:.0%}"
    metric(columns[3], "Waiting", waiting, "Share of the workers' time spent waiting for a release.")
    counts = {int(stale): count for stale, count in staleness["histogram"].items()}
    left, right = st.columns(2)
    with left:
        draw(delays.histogram(counts, bound), "staleness", "Staleness of applied gradients", meaning("staleness"))
    with right:
        draw(delays.over_time(rows, view.axis, bound), "staleness over time", "Staleness over time")
    if "policy" in summary:
        st.caption(f"Policy: {plain(summary['policy'])}")
