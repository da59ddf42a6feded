"""How training goes: the run now, losses, accuracies and speed, of several runs over each other."""

from __future__ import annotations

from typing import Any

import streamlit as st

from psplatform.dashboard.figures import convergence
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.actions import stop_button
from psplatform.dashboard.pages.frame import View, draw, run_page, steady
from psplatform.dashboard.pages.now import strip
from psplatform.dashboard.words import plain
from psplatform.telemetry.words import closing_rows


def page() -> None:
    """Show the page."""
    run_page("Overview", _body, overlays=True)


def _body(view: View) -> None:
    with steady():
        strip(view.run)
        stop_button(view.run)
    rows = {one.name: one.reading.read(lambda models: models.convergence.rows) for one in view.runs}
    left, right = st.columns(2)
    with left:
        draw(convergence.losses(rows, view.axis, view.smooth), "losses", "Loss", meaning("loss"))
    with right:
        draw(convergence.accuracies(rows, view.axis), "accuracies", "Accuracy", meaning("accuracy"))
    if any(one.metrics for one in rows.values()):
        draw(convergence.metrics(rows, view.axis), "metrics", "Metrics", meaning("metrics"))
    draw(convergence.speed(rows), "speed", "Speed", "Commits per second over the run; the last point is not over yet.")
    summary = view.run.reading.read(lambda models: models.view.to_summary())
    if "run" in summary:
        with st.expander("In words"):
            # Not a data frame, which takes a third of a refresh.
            st.markdown("\n".join(["| | |", "|-|-|", *_lines(summary)]))


def _lines(summary: dict[str, Any]) -> list[str]:
    return [f"| **{plain(name)}** | {plain(text)} |" for name, text in closing_rows(summary)]
