"""Gradients that were computed and not applied: when, why and whose."""

from __future__ import annotations

import streamlit as st

from psplatform.core.reasons import MEANINGS
from psplatform.dashboard.figures import drops
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import View, draw, metric, run_page
from psplatform.dashboard.words import UNKNOWN, plain
from psplatform.telemetry.words import applied_text, shortened

_DELAY = "Its staleness would have exceeded the policy's bound on the delay."
_IN_WORDS = {**MEANINGS, "delay": _DELAY}


def page() -> None:
    """Show the page."""
    run_page("Dropped updates", _body, axis=False)


def _body(view: View) -> None:
    summary, rows = view.run.reading.read(lambda models: (models.view.to_summary(), models.drops.rows))
    dropped = summary["dropped"]
    computed = summary["gradients"] * summary["blocks"]
    of_parts = "" if summary["blocks"] == 1 else " parts"
    columns = st.columns(4)
    metric(columns[0], "Dropped" + of_parts, f"{dropped['total']}", meaning("dropped"))
    share = f"{dropped['total'] / computed:.1%}" if computed else "–"
    metric(columns[1], "Share of all computed", share)
    metric(columns[2], "Applied" + of_parts, f"{summary['applied']}")
    metric(columns[3], "Gradients", f"{summary['gradients']}")
    if summary["blocks"] > 1:
        st.caption(plain(f"Each block is applied or dropped by itself: {applied_text(summary)}"))
    left, right = st.columns(2)
    with left:
        draw(drops.over_time(rows), "drops over time", "Dropped gradients over time")
    with right:
        draw(drops.by_worker(rows), "drops by worker", "Dropped gradients by worker")
    counts = dropped["by_reason"].items()
    unit = "gradients" if summary["blocks"] == 1 else "parts of gradients"
    reasons = [
        {"reason": shortened(one), unit: n, "in words": _IN_WORDS.get(one, "Said by the policy.")} for one, n in counts
    ]
    if reasons:
        st.dataframe(reasons, hide_index=True, placeholder=UNKNOWN, key="drop reasons")
    if rows.newest:
        with st.expander(f"The newest {len(rows.newest)}"):
            newest = [
                {
                    "at [s]": round(one.at, 2),
                    "worker": one.slot,
                    "version": one.version,
                    "computed on": one.label,
                    "reason": one.reason,
                    "in words": one.detail,
                }
                for one in rows.newest
            ]
            st.dataframe(newest, hide_index=True, placeholder=UNKNOWN, key="newest drops")
