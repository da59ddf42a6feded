"""The script that Streamlit runs for every visitor: which pages there are."""

from __future__ import annotations

import streamlit as st

from psplatform.dashboard.pages import (
    decisions,
    delays,
    drops,
    failures,
    overview,
    programs,
    protection,
    runs,
    start,
    what_if,
    workers,
)


def main() -> None:
    """Show the page that was asked for."""
    st.set_page_config(page_title="psplatform", page_icon=":material/hub:", layout="wide")
    pages = {
        "": [st.Page(runs.page, title="Runs", icon=":material/table_rows:", url_path="runs", default=True)],
        "A run": [
            st.Page(overview.page, title="Overview", icon=":material/show_chart:", url_path="overview"),
            st.Page(delays.page, title="Delays", icon=":material/hourglass_bottom:", url_path="delays"),
            st.Page(workers.page, title="Workers", icon=":material/view_timeline:", url_path="workers"),
            st.Page(drops.page, title="Dropped updates", icon=":material/delete_sweep:", url_path="drops"),
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
    st.session_state["pages"] = {one.url_path: one for group in pages.values() for one in group}
    st.navigation(pages, expanded=True).run()


if __name__ == "__main__":
    main()
