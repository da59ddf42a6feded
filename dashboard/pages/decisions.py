"""What the policy decided at each commit, and why."""

from __future__ import annotations

import streamlit as st

from psplatform.dashboard.figures import decisions
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import View, draw, run_page
from psplatform.dashboard.words import UNKNOWN, plain


def page() -> None:
    """Show the page."""
    run_page("Decisions of the policy", _body)


def _body(view: View) -> None:
    run, rows = view.run.reading.read(lambda models: (dict(models.view.run), models.decisions.rows))
    if run:
        given = (run.get("policy_parameters") or {}).items()
        chosen = ", ".join(f"{name} = {value}" for name, value in given if value is not None)
        st.markdown(f"**{plain(run.get('policy', ''))}** {plain(chosen)}")
    base = (run.get("optimizer") or {}).get("lr")
    left, right = st.columns(2)
    with left:
        title = "Gradients per commit"
        draw(decisions.gradients_per_commit(rows, view.axis), "gradients per commit", title)
    with right:
        tip = meaning("factor on the learning rate")
        draw(decisions.learning_rate(rows, view.axis, base), "learning rate", "Learning rate", tip)
    columns = st.columns(2)
    for number, (name, curve) in enumerate(rows.figures.items()):
        with columns[number % 2]:
            draw(decisions.figure_of_policy(curve, name, view.axis), f"figure {number}", plain(name))
    st.markdown("**The newest commits**")
    newest = [
        {
            "at [s]": round(one.at, 2),
            "version": one.version,
            "gradients": one.gradients,
            "rate factor": round(one.rate, 4),
            "decided": one.figures,
            "reason": one.reason,
        }
        for one in rows.newest
    ]
    st.dataframe(newest, hide_index=True, placeholder=UNKNOWN, key="newest decisions", height=320)
