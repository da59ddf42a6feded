"""What is counted in parts says so, and what is counted up to a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import psplatform as ps
from psplatform.dashboard.words import plain

Check = Callable[[AppTest], None]


@pytest.fixture(scope="module")
def by_blocks() -> list[dict[str, Any]]:
    """Return the log of a policy that decides about each block by itself."""
    options = {"samples": 400, "dimension": 8, "classes": 3}
    job = ps.Job(
        workload="mlp", options=options, policy="psp", shards=4, workers=3, batch_size=16, stop=ps.Stop(updates=5)
    )
    return list(ps.simulate(job, ps.Conditions(), keep_records=True).records)


def test_parts_of_gradients_are_called_so(
    shelf: Any, bench: Any, healthy: Check, by_blocks: list[dict[str, Any]]
) -> None:
    """Beside whole gradients, of which each has as many parts as there are blocks."""
    blocks = len({one["block"] for one in by_blocks if one["kind"] == "commit"})
    applied = sum(len(one["slots"]) for one in by_blocks if one["kind"] == "commit")
    gradients = sum(one["kind"] == "gradient" for one in by_blocks)
    shelf.write("psp", by_blocks, policy="psp")
    app = bench.show("drops")
    healthy(app)
    shown = {one.label: one.value.replace("\\", "") for one in app.metric}
    assert blocks > 1
    assert shown["Applied parts"] == str(applied)
    assert "Dropped parts" in shown
    words = plain(f"{applied} of {gradients * blocks} parts of gradients, {blocks} each")
    assert any(words in one.value for one in app.caption)
    app = bench.show("workers")
    healthy(app)
    table = app.dataframe[0].value
    assert table[f"applied [parts of gradients, {blocks} each]"].sum() == applied
    assert table["gradients"].sum() == gradients


def test_whole_gradients_have_no_unit(shelf: Any, bench: Any, healthy: Check) -> None:
    shelf.finished("digits-a")
    app = bench.show("drops")
    healthy(app)
    assert {"Applied", "Dropped"} <= {one.label for one in app.metric}
    assert {"applied", "dropped"} <= set(bench.show("workers").dataframe[0].value)


def test_the_words_of_a_drop_are_those_of_its_reason(shelf: Any, bench: Any, healthy: Check) -> None:
    where = {"kind": "dropped", "at": 1.0, "slot": 0, "sequence": 0, "label": 0, "version": 1, "detail": ""}
    kinds = ("lost version", "overtaken", "a policy's own")
    shelf.write("digits-a", [*shelf.trained.records[:9], *({**where, "reason": one} for one in kinds)])
    app = bench.show("drops")
    healthy(app)
    found = app.dataframe[0].value.set_index("reason")["in words"]
    assert found["lost version"] == "It was computed on a version that was lost with a server."
    assert found["overtaken"] == "It was held until a later gradient of the same worker was applied."
    assert found["a policy's own"] == "Said by the policy."


@pytest.mark.parametrize(("count", "failovers", "lost"), [(255, "255", "510"), (300, "256+", "512+")])
def test_what_a_summary_has_no_more_of_is_a_least_number(
    shelf: Any, bench: Any, healthy: Check, promoted: Any, count: int, failovers: str, lost: str
) -> None:
    records = [promoted(at=1.0 + n, shard=0, epoch=2 + n, updates_lost=2) for n in range(count)]
    shelf.write("digits-a", [shelf.trained.records[0], *records])
    app = bench.show("failures")
    healthy(app)
    shown = {one.label: one.value.replace("\\", "") for one in app.metric}
    assert (shown["Failovers"], shown["Updates lost"]) == (failovers, lost)
    assert any("The newest 200" in one.value for one in app.caption)
    shown = {one.label: one.value.replace("\\", "") for one in bench.show("overview").metric}
    assert shown["Incidents"] == failovers


def test_a_text_of_any_length_is_cut_where_it_is_shown() -> None:
    assert len(plain("x" * 10**6)) == 1000
    assert plain("x" * 1000) == "x" * 1000
