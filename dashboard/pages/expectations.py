"""What simulations say to expect, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from psplatform.dashboard.read_models.expected import Expected
from psplatform.dashboard.words import UNKNOWN, decimals, number


def show_expected(found: Sequence[Expected]) -> None:
    """Show what simulations say to expect, the fastest first."""
    rows = [
        {
            "": one.name,
            "virtual seconds": number(one.seconds),
            "target": {True: "reached", False: "missed", None: UNKNOWN}[one.reached],
            "updates": one.updates,
            "staleness": f"{one.staleness_mean:.2f} (at most {one.staleness_max})",
            "dropped": f"{one.dropped:.1%}",
            "waiting": f"{one.waiting:.0%}",
            "loss": decimals(one.loss),
            "accuracy": decimals(one.accuracy),
        }
        for one in fastest_first(found)
    ]
    st.dataframe(rows, hide_index=True, placeholder=UNKNOWN)


def fastest_first(found: Sequence[Expected]) -> list[Expected]:
    """Return simulations in the order of their virtual seconds, those that missed their target last."""
    return sorted(found, key=lambda one: (one.reached is False, one.seconds))
