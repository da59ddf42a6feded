"""The programs that this dashboard has started, and what they print."""

from __future__ import annotations

import shlex

import streamlit as st

from psplatform.client.runs.programs import Program
from psplatform.dashboard import programs
from psplatform.dashboard.pages.frame import guarded, warn_if_public
from psplatform.dashboard.words import moment, plain

_SHOWN = 12


def page() -> None:
    """Show the page."""
    st.title("Programs")
    st.caption("Commands that were started from these pages. They go on when the dashboard ends.")
    warn_if_public()
    st.fragment(_body, run_every=2.0)()


def _body() -> None:
    with guarded():
        found = programs.started()
        if not found:
            st.info("Nothing was started from here yet: see the pages Start and What if.")
        for one in found[:_SHOWN]:
            _program(one)


def _program(one: Program) -> None:
    with st.container(border=True):
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.markdown(f"**{plain(how_it_stands(one))}**, started {plain(moment(one.started))}")
        if one.running:
            tip = "As Ctrl-C: ends in good order."
            right.button("Interrupt", key=f"interrupt {one.name}", help=tip, on_click=_interrupt, args=(one,))
        st.code(shlex.join(["psplatform", *programs.arguments_of(one)]), language="bash", wrap_lines=True)
        with st.expander("What it prints", expanded=not one.running and one.returncode not in (0, None)):
            st.code(one.output(30) or "nothing yet", language=None, wrap_lines=True)


def _interrupt(one: Program) -> None:
    one.interrupt()


def how_it_stands(one: Program) -> str:
    """Return in a word whether a program goes on or how it ended."""
    if one.running:
        return "running"
    if one.returncode is None:
        return "ended"
    return "done" if one.returncode == 0 else f"failed with exit code {one.returncode}"
