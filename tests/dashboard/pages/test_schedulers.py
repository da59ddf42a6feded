"""A scheduler that does not answer keeps no page from showing what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.client.clusters.ports import free_port
from psplatform.dashboard.cluster import Cluster
from psplatform.dashboard.pages import frame
from psplatform.errors import ClusterError


@pytest.fixture(scope="module")
def dead() -> str:
    """An address at which nobody listens."""
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def asked(dead: str) -> Iterator[Cluster]:
    """A scheduler that is gone, after it was asked once."""
    found = Cluster(dead)
    found.await_answer(120)
    yield found
    found.close()


def test_every_page_says_that_the_scheduler_is_gone_and_shows_what_is_stored(
    shelf: Any,
    bench: Any,
    asked: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    healthy: Callable[[AppTest], None],
) -> None:
    monkeypatch.setattr(frame, "cluster_at", lambda address: asked)
    bench.settings = replace(bench.settings, scheduler=asked.address)
    shelf.live("digits-a")
    for page in ("runs", "overview", "protection", "failures", "start", "what_if", "programs"):
        app = bench.show(page)
        healthy(app)
        (warning,) = [one.value.replace("\\", "") for one in app.warning if "scheduler" in one.value]
        assert asked.address.removeprefix("tcp://") in warning
        assert "What is stored is shown" in warning
    version = next(one.value for one in bench.show("overview").metric if one.label == "Version")
    assert version == "20"


def test_a_run_of_a_scheduler_that_is_gone_cannot_be_acted_on(asked: Cluster) -> None:
    assert asked.news.view is None
    assert asked.live == {}
    assert "\n" not in asked.news.trouble
    with pytest.raises(ClusterError):
        asked.begin("digits-a", "stopping", str).outcome()


def test_a_store_cannot_send_the_dashboard_to_a_scheduler(
    bench: Any, shelf: Any, monkeypatch: pytest.MonkeyPatch, healthy: Callable[[AppTest], None]
) -> None:
    """Whoever answers there would be believed."""
    asked: list[str] = []
    monkeypatch.setattr("psplatform.dashboard.pages.actions.cluster_at", asked.append)
    records = [one for one in shelf.trained.records if one["kind"] not in ("finished", "left")]
    shelf.write("digits-a", records, scheduler="tcp://evil.example:8786")
    for page in ("overview", "protection", "failures"):
        healthy(bench.show(page))
    assert asked == []
