"""What was lost and how the run went on; checkpoints; recovery; and faults on purpose."""

from __future__ import annotations

from typing import Any

import streamlit as st

from psplatform.dashboard.figures import failures
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.actions import chaos_buttons, recover_form
from psplatform.dashboard.pages.frame import Shown, View, draw, guarded, library, metric, run_page, steady
from psplatform.dashboard.read_models.failures import NEWEST, FailureRows
from psplatform.dashboard.words import UNKNOWN, duration, moment, plain, size
from psplatform.errors import PsplatformError
from psplatform.telemetry.protection import FAILOVERS


def page() -> None:
    """Show the page."""
    run_page("Failures and recovery", _body, axis=False)


def _body(view: View) -> None:
    run = view.run
    summary, rows = run.reading.read(lambda models: (models.view.to_summary(), models.failures.rows))
    columns = st.columns(4)
    newest = summary["failovers"]
    more = "+" if len(newest) >= FAILOVERS else ""  # the summary has no more of them
    metric(columns[0], "Failovers", f"{len(newest)}{more}")
    lost = sum(one["updates_lost"] for one in newest)
    metric(columns[1], "Updates lost", f"{lost}{more}", "Visible versions that went back, all failovers.")
    unprotected = duration(rows.unprotected_s)
    metric(columns[2], "Unprotected", unprotected, meaning("unprotected seconds"))
    terms = f"{summary['term']}"
    metric(columns[3], "Term", terms, meaning("term"))
    draw(failures.timeline(rows.failovers), "timeline", "From the last sign of life to protected again")
    _failovers(rows)
    with steady(), guarded():
        chaos_buttons(run)
    _checkpoints(run)
    with guarded():
        recover_form(run)
    st.markdown("**Incidents**", help=meaning("incidents"))
    events = [{"at [s]": round(one.at, 2), "kind": one.kind, "text": one.text} for one in reversed(rows.events)]
    if events:
        st.dataframe(events, hide_index=True, placeholder=UNKNOWN, key="events", height=min(38 + 35 * len(events), 320))
        if len(events) >= NEWEST:
            st.caption(f"The newest {NEWEST}; the log has them all.")
    else:
        st.caption("Nothing happened that a person would want to know.")


def _failovers(rows: FailureRows) -> None:
    if rows.failovers:
        st.dataframe(
            [_row(one) for one in reversed(rows.failovers)],
            hide_index=True,
            placeholder=UNKNOWN,
            key="failovers",
            column_config={f"{name} [s]": _narrow(name) for name, _ in failures.PHASES},
        )


def _narrow(phase: str) -> Any:
    """Return a column headed by how a phase ends, so that what was lost has room on a small screen."""
    return st.column_config.NumberColumn(f"{phase.rpartition('→ ')[2]} [s]", help=phase, width="small")


def _row(one: Any) -> dict[str, Any]:
    lengths = zip((name for name, _ in failures.PHASES), failures.phases(one), strict=True)
    cells = {f"{name} [s]": None if length is None else round(length, 3) for name, length in lengths}
    return {"what": failures.name_of(one), **cells, "lost": one.lost}


def _checkpoints(run: Shown) -> None:
    st.markdown("**Checkpoints in the store**", help=meaning("checkpoint"))
    try:
        held = library().checkpoints(run.listed.store)
    except PsplatformError as error:
        st.error(plain(error.args[0]))
        return
    if not held:
        st.caption("None is held.")
        return
    verified: dict[str, str] = st.session_state.setdefault("verified", {})
    rows = [
        {
            "number": one["number"],
            "version": one.get("version"),
            "state": one["state"],
            "size": size(one.get("bytes")),
            "cut at": moment(one.get("time")),
            "flaw": one.get("flaw") or "",
            "verified": verified.get(f"{run.listed.store}/{one['number']}", ""),
        }
        for one in reversed(held)
    ]
    st.dataframe(rows, hide_index=True, placeholder=UNKNOWN, key="checkpoints")
    left, right = st.columns([1, 4], vertical_alignment="bottom")
    left.selectbox("Checkpoint", [one["number"] for one in reversed(held)], key="verify number")
    right.button("Verify every byte", key="verify", on_click=_verify, args=(run.listed.store,))


def _verify(store: str) -> None:
    """Verify the chosen checkpoint; called by the button itself, so also if another page is opened at once."""
    number = st.session_state.get("verify number")
    if number is not None:
        st.session_state.setdefault("verified", {})[f"{store}/{number}"] = _verified(store, number)


def _verified(store: str, number: int) -> str:
    from psplatform.replication.checkpoints.retention import load_checkpoint  # noqa: PLC0415  brings NumPy's formats

    try:
        load_checkpoint(store, number).verify()
    except PsplatformError as error:
        return str(error.args[0])
    return "every byte is as it was written"
