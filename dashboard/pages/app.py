"""The script that Streamlit runs for every visitor: which pages there are."""

from __future__ import annotations

import numpy as np
import streamlit as st
from PIL import Image

from psplatform.dashboard.pages import (
    decisions,
    delays,
    drops,
    failures,
    network,
    overview,
    programs,
    protection,
    runs,
    start,
    what_if,
    workers,
)
from psplatform.dashboard.settling import settle

_COMPACT = """<style>
.block-container {padding: 2.2rem 2rem 2rem 2rem; max-width: none;}
.block-container h1 {font-size: 1.6rem; padding: 0 0 0.3rem 0;}
[data-testid="stMetric"] > div {padding: 0.4rem 0.8rem;}
[data-testid="stMetricValue"] {font-size: 1.3rem;}
[data-testid="stMetricLabel"] p {font-size: 0.8rem;}
[data-testid="stSidebar"] {min-width: 270px; max-width: 290px;}
[data-testid="stSidebarHeader"] {height: 1rem;}
[data-testid="stSidebar"] [data-tag] {max-width: 100%; font-size: 0.75rem;}
[data-testid="stElementContainer"][data-stale="true"] {opacity: 1;}
</style>"""
"""Room for pictures: a dashboard shows more at once than the documents that Streamlit's margins are made for.

And what is about to be refreshed does not fade, as it would once a second on a busy machine."""


def _icon() -> Image.Image:
    """Return a ring, as a picture of 32 × 32: named icons would be fetched from another site."""
    away = np.hypot(*np.mgrid[-15.5:16:1, -15.5:16:1])
    picture = np.zeros((32, 32, 4), dtype=np.uint8)
    picture[(away < 15) & ((away > 9) | (away < 4))] = (0, 114, 178, 255)
    return Image.fromarray(picture)


def main() -> None:
    """Show the page that was asked for."""
    st.set_page_config(page_title="psplatform", page_icon=_icon(), layout="wide")
    st.html(_COMPACT)
    pages = {
        "": [st.Page(runs.page, title="Runs", icon=":material/table_rows:", url_path="runs", default=True)],
        "A run": [
            st.Page(overview.page, title="Overview", icon=":material/show_chart:", url_path="overview"),
            st.Page(delays.page, title="Delays", icon=":material/hourglass_bottom:", url_path="delays"),
            st.Page(workers.page, title="Workers", icon=":material/view_timeline:", url_path="workers"),
            st.Page(drops.page, title="Dropped updates", icon=":material/delete_sweep:", url_path="drops"),
            st.Page(network.page, title="Network", icon=":material/lan:", url_path="network"),
            st.Page(protection.page, title="Replication", icon=":material/content_copy:", url_path="replication"),
            st.Page(decisions.page, title="Decisions", icon=":material/rule:", url_path="decisions"),
            st.Page(failures.page, title="Failures", icon=":material/healing:", url_path="failures"),
        ],
        "Do": [
            st.Page(start.page, title="Start", icon=":material/play_circle:", url_path="start"),
            st.Page(what_if.page, title="What if", icon=":material/science:", url_path="what-if"),
            st.Page(programs.page, title="Programs", icon=":material/terminal:", url_path="programs"),
        ],
    }
    page = st.navigation(pages, expanded=True)
    wanted = st.session_state.pop("wanted page", None)
    if wanted is not None:
        by_path = {one.url_path: one for group in pages.values() for one in group}
        st.switch_page(by_path[wanted], query_params={"run": st.session_state.get("run") or []})
    page.run()
    settle()


if __name__ == "__main__":
    main()
