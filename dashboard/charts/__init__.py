"""Figures on a page, each of which stays the same element of the page while its data change.

`streamlit.plotly_chart` counts a figure's data as part of its identity: a refresh with new data removes the figure and
mounts another one, which has neither the zoom nor the hidden curves of the first, and is blank for a moment.  Here the
key alone is the identity, and ``chart.js`` hands new data to plotly.js, which keeps what ``layout.uirevision`` covers.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import plotly
import plotly.graph_objects as go
import streamlit as st
from streamlit.components import v1

NAME: Final = "psplatform.chart"

_PLOTLY: Final = Path(plotly.__file__).parent / "package_data"
"""The folder of the installed package from which the browser gets plotly.js: no other site is asked for it."""


@functools.cache
def _component() -> Any:
    script = (Path(__file__).parent / "chart.js").read_text(encoding="utf-8")
    # Without a shadow root, because plotly.js puts its style sheet into the document's head.
    return st.components.v2.component(NAME, js=script, isolate_styles=False)


@functools.cache
def _library() -> str:
    """Return the path of plotly.js on the server, which serves it from now on."""
    served = v1.declare_component("plotly", path=_PLOTLY)
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    return f"{base and f'/{base}'}/component/{served.name}/plotly.min.js?{plotly.__version__}"


def chart(figure: go.Figure, key: str, name: str, subject: str = "") -> None:
    """Show a figure in the colours of the page, as wide as there is room.

    Parameters
    ----------
    figure
        Its template is replaced by the theme of the page.
    key
        Identity of the figure on its page: the next figure of the same key is drawn into the same element.
    name
        What the figure is called for those who do not see it.
    subject
        What it is about: of another subject it begins with neither zoom nor hidden curves.
    """
    spec = figure.to_json(validate=False, remove_uids=False)
    _component()(
        key=key, data={"figure": spec, "name": name, "subject": subject, "library": _library()}, width="stretch"
    )
