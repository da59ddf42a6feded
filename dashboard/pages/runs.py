"""All runs of the folder and of the scheduler in one table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import streamlit as st

from psplatform.client.runs.listing import Listed, State
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.library import Brief, understood
from psplatform.dashboard.pages.frame import (
    MOST_OVERLAID,
    cluster,
    guarded,
    library,
    listed_runs,
    named,
    nothing_here,
    turn_to,
    warn_if_public,
)
from psplatform.dashboard.settings import current
from psplatform.dashboard.words import UNKNOWN, date_of, plain
from psplatform.errors import PsplatformError

_BUDGET_S: Final = 0.8
"""Of reading logs in one refresh: what is left is read at the next one."""

_EVERY_S: Final = 2.0

_IN_TROUBLE: Final = (State.FOREIGN, State.FAILED, State.RECOVERABLE)
_MOST_SAID: Final = 5
"""Runs of which is said below the table what is wrong: on a small screen the table has no room for it."""


def page() -> None:
    """Show the page."""
    st.title("Runs")
    warn_if_public()
    _where()
    st.fragment(_table, run_every=_EVERY_S)()


def _where() -> None:
    settings = current()
    place = f"of the store {settings.store}" if settings.store else f"of the folder {settings.folder}"
    scheduler = f", and of the scheduler {settings.scheduler}" if settings.scheduler else ""
    st.caption(plain(place[0].upper() + place[1:] + scheduler))


def _table() -> None:
    with guarded():
        found = listed_runs()
        here = named(found)
        names = here | {name: one for name, one in named([*found, *_elsewhere(found)]).items() if one not in found}
        if not names:
            st.info(nothing_here())
            return
        rows = _rows(names)
        chosen = st.dataframe(
            rows,
            key=_key_of(names),
            selection_default={"selection": {"rows": _ticked(list(names))}},
            hide_index=True,
            placeholder=UNKNOWN,
            on_select="rerun",
            selection_mode="multi-row",
            height=min(38 + 35 * len(rows), 560),
            column_config={
                "state": st.column_config.TextColumn(help=meaning("state")),
                "progress": st.column_config.ProgressColumn(
                    help=meaning("progress"), min_value=0.0, max_value=1.0, format="percent", width="small"
                ),
                "losses": st.column_config.LineChartColumn(
                    help="Losses so far, held-out ones where there are any.", width="small"
                ),
                "loss": st.column_config.NumberColumn(help=meaning("loss"), format="%.4f"),
                "accuracy": st.column_config.NumberColumn(help=meaning("accuracy"), format="%.4f"),
                "updates/s": st.column_config.NumberColumn(help=meaning("updates per second"), format="%.3g"),
                "protection": st.column_config.TextColumn(help=meaning("protection")),
                "age": st.column_config.DatetimeColumn(help="Since it was started or recovered.", format="distance"),
                "why": st.column_config.TextColumn(width="large"),
            },
        )
        for name, one in [(name, one) for name, one in names.items() if one.state in _IN_TROUBLE][:_MOST_SAID]:
            st.caption(plain(f"{name}: {one.reason}"))
        picked = [list(names)[row] for row in chosen["selection"]["rows"]][:MOST_OVERLAID]
        st.session_state["ticked"] = picked
        _open([name for name in picked if name in here])


def _key_of(names: Iterable[str]) -> str:
    """Return a key of the table by its rows: a selection holds row numbers, which are of these rows alone."""
    return f"runs table {sha256('/'.join(names).encode(errors='replace')).hexdigest()[:16]}"


def _ticked(names: list[str]) -> list[int]:
    """Return which rows are ticked at first: where another run has come or gone, those that were before."""
    before: tuple[list[str], list[int]] | None = st.session_state.get("ticked at first")
    if before is None or before[0] != names:
        before = names, [row for row, name in enumerate(names) if name in st.session_state.get("ticked", ())]
        st.session_state["ticked at first"] = before
    return before[1]


def _rows(names: dict[str, Listed]) -> list[dict[str, Any]]:
    give_up_at = time.monotonic() + _BUDGET_S
    rows = []
    for name, one in names.items():
        try:
            with understood(one.store):
                brief = library().brief(one, give_up_at - time.monotonic()) if one.description else None
                rows.append(_row(name, one, brief))
        except PsplatformError as error:  # of one run, which must not keep the others from being shown
            rows.append({"run": name, "state": one.state.value, "why": str(error)})
    return rows


def _row(name: str, one: Listed, brief: Brief | None) -> dict[str, Any]:
    return {
        "run": name,
        "state": one.state.value,
        "policy": one.description.get("policy"),
        "workload": one.description.get("workload"),
        "progress": brief.progress if brief else None,
        "losses": list(brief.losses) if brief else None,
        "updates": brief.updates if brief else None,
        "loss": brief.loss if brief else None,
        "accuracy": brief.accuracy if brief else None,
        "updates/s": brief.updates_per_second if brief else None,
        "protection": brief.protection if brief and one.state is State.LIVE else "",
        "age": date_of(one.description.get("started")),
        "why": one.reason,
    }


def _open(picked: list[str]) -> None:
    label = "Open" if len(picked) < 2 else f"Open {len(picked)} over each other"
    if st.button(label, key="open", type="primary", disabled=not picked, help="Tick rows of the table first."):
        st.session_state["run"] = picked
        turn_to("overview")


def _elsewhere(found: Sequence[Listed]) -> list[Listed]:
    """Return the runs of the scheduler whose stores cannot be read from here."""
    asked = cluster()
    if asked is None:
        return []
    known = {one.run for one in found if asked.knows(one)}
    return [
        Listed(run, store, State.LIVE, f"it goes on on the scheduler; its store {store} cannot be read from here", {})
        for run, store in asked.live.items()
        if run not in known
    ]
