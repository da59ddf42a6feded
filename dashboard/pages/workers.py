"""What workers do when, how long their gradients take, and who holds the others up."""

from __future__ import annotations

from typing import Any

import streamlit as st

from psplatform.dashboard.figures import workers
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.frame import View, draw, run_page, steady
from psplatform.dashboard.read_models.lanes import KEPT_S
from psplatform.dashboard.read_models.reading import Models
from psplatform.dashboard.read_models.workers import SLOW
from psplatform.dashboard.words import UNKNOWN


def page() -> None:
    """Show the page."""
    run_page("Workers", _body, axis=False)


def _body(view: View) -> None:
    reading = view.run.reading
    lanes, times, seconds = reading.read(lambda one: (one.lanes.rows, one.workers.rows, one.clock.newest_s))
    with steady():
        chosen = _stretch(view.run.listed.store, seconds)
    if chosen is not None:
        lanes = reading.lanes(*chosen)
    tip = " · ".join(f"{state}: {meaning(state)}" for state in ("wait", "pull", "compute", "push"))
    slowest = {one.slot for one in workers.slowest(times)}
    draw(workers.lanes(lanes, slowest), "lanes", "What each worker did", tip)
    left, right = st.columns(2)
    with left:
        draw(workers.compute_times(times), "compute times", "Compute times")
    with right:
        draw(workers.scores(times), "scores", "Straggler score", meaning("straggler score"))
    st.dataframe(reading.read(_table), hide_index=True, placeholder=UNKNOWN, key="workers table")


def _stretch(store: str, seconds: float) -> tuple[float, float] | None:
    """Return the stretch that was chosen, ``None`` for the newest minute."""
    if seconds <= KEPT_S:
        return None
    left, right = st.columns([1, 3], vertical_alignment="center")
    any_stretch = left.toggle("Another stretch", key="stretch", help="Instead of the newest minute.")
    if not any_stretch:
        st.session_state.pop("stretch end", None)
        return None
    # Streamlit sets a slider anew whose range changes: the end stays as it was when another stretch was asked for.
    ends: dict[str, float] = st.session_state.setdefault("stretch end", {})
    end = ends.setdefault(store, float(round(seconds, 1)))
    begin, until = right.slider(
        "Seconds of the run",
        0.0,
        end,
        (max(0.0, end - KEPT_S), end),
        key=f"stretch of {store}",
        label_visibility="collapsed",
        help="Up to where the run was when this was switched on; switch it off and on for what came since.",
    )
    return (begin, until) if until > begin else (begin, begin + 1.0)


def _table(models: Models) -> list[dict[str, Any]]:
    scores, blocks = models.workers.scores(), models.view.blocks
    unit = "" if blocks == 1 else f" [parts of gradients, {blocks} each]"
    return [
        {
            "worker": slot,
            "status": "slow" if one.status in ("computing", "idle") and scores.get(slot, 1.0) > SLOW else one.status,
            "process": one.process,
            "gradients": one.gradients,
            f"applied{unit}": one.applied,
            f"dropped{unit}": one.dropped,
            "waiting": f"{one.time.waiting_fraction:.0%}",
            "straggler score": f"{scores[slot]:.2f}" if slot in scores else UNKNOWN,
            "clock": one.clock,
            "joined [s]": one.joined_at,
            "lost [s]": one.lost_at,
        }
        for slot, one in sorted(models.view.workers.items())
    ]
