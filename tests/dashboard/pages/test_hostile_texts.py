"""What a store says is shown word for word: it is never HTML, a link, a formula or a template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.dashboard import pages
from psplatform.dashboard.read_models.reading import Models
from psplatform.dashboard.words import plain
from psplatform.errors import ProtocolError
from psplatform.replication.stores.store import update_run

EVIL = "<img src=x onerror=alert(1)> [x](http://evil.example) <b>b</b> %{evil} $x$ www.evil.example &lt;i&gt; :red[r]"

RUN = "mlp-backup-1a2b3c"
"""A run's id is one of ours, or the store is none; what the log says it is, is evil all the same."""

RAW = (r"(?<!\\)<", r"(?<!\\)\[x", r"(?<!\\)\$x", r"http://", r"http\\://", r"www\\?\.", r"(?<!\\)&lt;", r"(?<!\\):red")
"""What Markdown, or Streamlit, would make something of."""

ODD: tuple[Any, ...] = (EVIL, [EVIL], {EVIL: EVIL})
"""What a field may hold that is not of its kind."""

ABOUT_RUNS = ("overview", "delays", "workers", "drops", "network", "protection", "decisions", "failures")
PAGES = ("runs", *ABOUT_RUNS, "start", "what_if")


def evil_records(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a log that is evil wherever it still can be folded."""
    fields = dict.fromkeys((one["kind"], name) for one in records for name in one if name not in ("kind", "at"))
    for kind, name in fields:
        for odd in ODD:
            changed = [{**one, name: odd} if one["kind"] == kind and name in one else one for one in records]
            if _is_folded(changed):
                records = changed
                break
    found = []
    for one in records:
        changes: dict[str, Any] = {}
        if one["kind"] == "run":
            changes |= {"policy": EVIL, "workload": EVIL, "policy_parameters": {EVIL: EVIL}, "run": EVIL}
            changes["replication"] = {"mode": EVIL}
            changes["network"] = {"fabric": {EVIL: EVIL}, "gradient_bytes": 8}
        if one["kind"] == "commit":
            changes["decision"] = {EVIL: 3.0}
        found.append({**one, **changes})
    return found


def moves() -> list[dict[str, Any]]:
    """Return what a log says of a planned transfer, of a pull and of servers."""
    seconds = {"took_s": 1.0, "planned_s": 1.0}
    return [
        {"kind": "servers", "at": 1.0, "hosts": ["s"], "bytes": [8.0]},
        {"kind": "transfer", "at": 1.0, "slots": [0], "sequences": [1], "host": "a", "hosts": ["b"], **seconds},
        {"kind": "pull", "at": 1.0, "slot": 0, "sequence": 1, "host": "a", "relay": "b", "sent": True, **seconds},
    ]


def _is_folded(records: list[dict[str, Any]]) -> bool:
    models = Models()
    try:
        models.take(records)
        models.view.to_summary()
    except (ArithmeticError, AttributeError, LookupError, ProtocolError, TypeError, ValueError):
        return False
    return True


@pytest.fixture(params=["finished", "failed"])
def evil(shelf: Any, request: pytest.FixtureRequest) -> str:
    known = {"run": RUN, "policy": EVIL, "workload": EVIL, "job": {**shelf.trained.job, "policy": EVIL}}
    store = shelf.write("evil", evil_records([*shelf.trained.records, *moves()]), **known)
    failure = {"class": "UserCodeError", "message": EVIL, "attributes": {}}
    failed = {"outcome": "failed", "error": EVIL, "failure": failure}
    update_run(store, **(failed if request.param == "failed" else {"outcome": EVIL}))
    return RUN


def texts_in(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        for name, one in plain.items():
            if name != "template":
                yield from texts_in(one)
    elif isinstance(plain, list):
        for one in plain:
            yield from texts_in(one)


def test_texts_of_stores_are_shown_word_for_word(
    evil: str, bench: Any, healthy: Callable[[AppTest], None], said: Callable[[AppTest], list[str]]
) -> None:
    for page in PAGES:
        app = bench.show(page)
        if page == "start":
            app.selectbox(key="what").select(f"job of the run {evil}").run()
        healthy(app)
        texts = said(app)
        for text in texts:
            for pattern in RAW:
                assert not re.search(pattern, text), (page, pattern, text)
        assert not any(getattr(one, "allow_html", False) for one in app.markdown)
        for chart in app.get("bidi_component"):
            for text in texts_in(json.loads(json.loads(chart.proto.json)["figure"])):
                assert not re.search(r"<img|<b>|<i>|%\{evil", text), (page, text)
        for table in app.dataframe:
            assert not re.search('"type": ?"(link|image|list)"', table.proto.columns), page
    assert evil in bench.show("runs").dataframe[0].value["run"].tolist()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b*c", r"a\_b\*c"),
        ("<img src=x>", r"\<img src=x\>"),
        ("[x](javascript:y)", r"\[x\]\(javascript\:y\)"),
        ("two\n\n# lines", r"two \# lines"),
        ("&lt;", r"\&lt;"),
        ("tcp://127.0.0.1:8786", r"tcp\://127\.0\.0\.1\:8786"),
        ("http://x.y", "http\u2060\\://x\\.y"),
        ("www.x.y", "www\u2060\\.x\\.y"),
        ("me@x.y", "me@\u2060x\\.y"),
    ],
)
def test_plain_text_means_nothing_to_markdown(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_the_value_of_a_metric_is_shown_word_for_word() -> None:
    def script(text: str) -> None:
        import streamlit as st

        from psplatform.dashboard.pages.frame import metric

        metric(st.columns(1)[0], f"label {text}", f"value {text}")

    (shown,) = AppTest.from_function(script, args=(EVIL,)).run().metric
    assert (shown.label, shown.value) == (plain(f"label {EVIL}"), plain(f"value {EVIL}"))


def test_no_page_shows_a_metric_but_word_for_word() -> None:
    """Streamlit takes the label and the value of its metric for Markdown."""
    places = [one.name for one in Path(pages.__path__[0]).glob("*.py") if ".metric(" in one.read_text()]
    assert places == ["frame.py"]
