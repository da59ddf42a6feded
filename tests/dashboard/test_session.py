"""What a visitor without a browser makes of the messages that Streamlit's server sends, and how a visit ends."""

from __future__ import annotations

import threading

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from psplatform.dashboard.charts import NAME as CHART
from psplatform.dashboard.session import Page, Session

LIMIT_S = 180.0
SUCCESS = ForwardMsg.FINISHED_SUCCESSFULLY
OF_FRAGMENT = ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY


def _begin(*fragments: str) -> ForwardMsg:
    message = ForwardMsg()
    message.new_session.page_script_hash = "overview's"
    message.new_session.config.max_cached_message_age = 2
    message.metadata.run.fragment_ids.extend(fragments)
    return message


def _end(status: int = SUCCESS) -> ForwardMsg:
    message = ForwardMsg()
    message.script_finished = status  # type: ignore[assignment]  # an enum of protobuf's
    return message


def _metric(place: int, body: str, fragment: str = "") -> ForwardMsg:
    message = ForwardMsg()
    message.metadata.delta_path.extend([0, place])
    message.delta.fragment_id = fragment
    message.delta.new_element.metric.label = f"metric {place}"
    message.delta.new_element.metric.body = body
    return message


def _plot(place: int, name: str = "plot") -> ForwardMsg:
    message = ForwardMsg(hash=name)
    message.metadata.cacheable = True
    message.metadata.delta_path.extend([0, place])
    message.delta.new_element.bidi_component.component_name = CHART
    return message


def _reference(place: int, name: str = "plot") -> ForwardMsg:
    message = ForwardMsg(ref_hash=name)
    message.metadata.delta_path.extend([0, place])
    return message


def _page(*messages: ForwardMsg) -> Page:
    page = Page()
    for message in messages:
        page.take(message, 10)
    return page


def test_a_page_is_there_when_its_script_has_ended() -> None:
    page = _page(_begin(), _metric(0, "7"), _plot(1))
    assert page.runs == 0
    page.take(_end(), 10)
    assert (page.runs, page.refreshes, page.figures, page.script) == (1, 0, 1, "overview's")
    assert page.metrics == {"metric 0": "7"}
    assert page.received_bytes == 40
    assert page.trouble == ""


def test_a_script_that_is_run_again_at_once_has_not_ended() -> None:
    assert _page(_begin(), _end(ForwardMsg.FINISHED_EARLY_FOR_RERUN)).runs == 0


def test_what_the_script_does_not_show_again_is_gone() -> None:
    page = _page(_begin(), _metric(0, "7"), _metric(1, "8"), _end(), _begin(), _metric(0, "9"), _end())
    assert page.metrics == {"metric 0": "9"}


def test_a_fragment_refreshes_its_own_part_only() -> None:
    page = _page(_begin(), _metric(0, "7"), _metric(1, "8", "a"), _metric(2, "9", "a"), _end())
    for message in (_begin("a"), _metric(1, "10", "a"), _end(OF_FRAGMENT)):
        page.take(message, 0)
    assert page.metrics == {"metric 0": "7", "metric 1": "10"}
    assert (page.runs, page.refreshes) == (1, 1)


def test_a_fragment_says_how_often_it_is_to_be_refreshed_until_the_page_begins_anew() -> None:
    asking = ForwardMsg()
    asking.auto_rerun.fragment_id, asking.auto_rerun.interval = "a", 1.0
    page = _page(_begin(), asking, _end(), _begin("a"), _end(OF_FRAGMENT))
    assert page.intervals == {"a": 1.0}
    page.take(_begin(), 0)
    assert page.intervals == {}


def test_a_fragment_can_stop_refreshing() -> None:
    asking, stopping = ForwardMsg(), ForwardMsg()
    asking.auto_rerun.fragment_id, asking.auto_rerun.interval = "a", 1.0
    stopping.stop_auto_rerun.fragment_ids.append("a")
    assert _page(_begin(), asking, stopping).intervals == {}


def test_a_large_element_is_kept_and_shown_where_its_hash_comes() -> None:
    page = _page(_begin(), _plot(0), _end(), _begin(), _reference(3), _end())
    assert page.figures == 1
    assert page.hashes == ["plot"]
    assert set(page.shown) == {(0, 3)}


def test_a_hash_of_what_was_not_kept_is_an_error() -> None:
    assert "was not kept" in _page(_begin(), _reference(0, "unknown")).trouble


def test_kept_elements_are_forgotten_after_as_many_runs_as_the_server_counts_on() -> None:
    page = _page(_begin(), _plot(0), _end())
    for _ in range(3):
        for message in (_begin(), _end()):
            page.take(message, 0)
    assert page.hashes == []


def test_a_refresh_of_one_part_lets_no_other_part_forget() -> None:
    page = _page(_begin(), _plot(0), _end())
    for _ in range(5):
        for message in (_begin("a"), _end(OF_FRAGMENT)):
            page.take(message, 0)
    assert page.hashes == ["plot"]
    assert page.figures == 1


def test_an_exception_on_the_page_is_an_error() -> None:
    message = ForwardMsg()
    message.metadata.delta_path.extend([0, 1])
    message.delta.new_element.exception.type = "ValueError"
    message.delta.new_element.exception.message = "no such column"
    assert _page(_begin(), message, _end()).trouble == "ValueError: no such column"


@pytest.mark.parametrize("name", ["no-such-page", ""])
def test_a_page_that_is_not_found_is_an_error(name: str) -> None:
    message = ForwardMsg()
    message.page_not_found.page_name = name
    assert repr(name) in _page(_begin(), message).trouble


def test_a_script_that_does_not_compile_is_an_error() -> None:
    assert "cannot be compiled" in _page(_begin(), _end(ForwardMsg.FINISHED_WITH_COMPILE_ERROR)).trouble


class HeldBack(Session):
    """A visitor whose thread begins when it may, and that notes its visits."""

    def __init__(self) -> None:
        self.may_begin, self.visits = threading.Event(), list[str]()
        super().__init__(port=1, page="overview")

    def _run(self) -> None:
        self.may_begin.wait(LIMIT_S)
        super()._run()

    async def _attend(self) -> None:
        self.visits.append(self._name)


def test_a_visit_that_is_ended_before_it_begins_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would end it then but the end of what serves the page."""
    session = HeldBack()
    thread, closes = session._thread, threading.Event()
    join = thread.join

    def wait() -> None:
        closes.set()
        join(LIMIT_S)

    monkeypatch.setattr(thread, "join", wait)
    closing = threading.Thread(target=session.close, daemon=True)
    closing.start()
    assert closes.wait(LIMIT_S), "it waits for the thread, and has told it whatever it tells"
    session.may_begin.set()
    closing.join(LIMIT_S)
    assert session.visits == []
    assert not thread.is_alive()
    assert not closing.is_alive()
