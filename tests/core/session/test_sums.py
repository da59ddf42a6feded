"""A session whose gradient is summed with others on the way: it keeps it until its fate is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Expose, SendPart
from psplatform.core.protocol.events import Reachable
from psplatform.core.protocol.messages import Bundle
from psplatform.core.workers.session import Activity

Fresh = Callable[..., Any]
FIRST = msg.Route(1, 5, 7, "g")


@pytest.fixture
def summed(brought_to: Fresh) -> Any:
    """Return a worker that has just been told to send gradient 5 to be summed by g."""
    worker = brought_to(Activity.OFFERED)
    worker.handle(FIRST, after=3.0)
    return worker


def test_what_is_to_be_summed_is_sent_to_the_aggregator_and_stays_offered(summed: Any) -> None:
    assert summed.effects == [SendPart(3, 5, Bundle("g", 1, 7))]
    assert summed.activity is Activity.OFFERED
    assert summed.session.waiting_for == "the coordinator"
    assert not summed.messages(msg.Announce)


@pytest.mark.parametrize(
    "route",
    [FIRST, msg.Route(1, 5, 7, "h"), msg.Route(1, 5, 7), msg.Route(1, 5, 6, "h"), msg.Route(1, 5, 6), msg.Route(1, 5)],
    ids=repr,
)
def test_a_route_that_is_not_newer_changes_nothing(summed: Any, route: msg.Route) -> None:
    assert summed.handle(route) == []
    assert summed.activity is Activity.OFFERED
    assert summed.handle(msg.Route(1, 5, 8, "h")) == [SendPart(3, 5, Bundle("h", 1, 8))]


@pytest.mark.parametrize("route", [msg.Route(1, 4, 8), msg.Route(1, 6, 8, "h")], ids=repr)
def test_a_route_of_another_gradient_changes_nothing(summed: Any, route: msg.Route) -> None:
    assert summed.handle(route) == []
    assert summed.activity is Activity.OFFERED
    assert summed.handle(msg.Route(1, 5, 8, "h")) == [SendPart(3, 5, Bundle("h", 1, 8))]


@pytest.mark.parametrize("aggregator", ["g", "h"])
def test_a_newer_route_sends_it_again(summed: Any, aggregator: str) -> None:
    assert summed.handle(msg.Route(1, 5, 8, aggregator)) == [SendPart(3, 5, Bundle(aggregator, 1, 8))]
    assert summed.activity is Activity.OFFERED
    assert summed.handle(FIRST) == []


def test_a_newer_route_sends_it_straight(summed: Any) -> None:
    assert summed.handle(msg.Route(1, 5, 8), after=2.0) == [Expose(3, 5)]
    assert summed.activity is Activity.EXPOSING
    summed.handle(Reachable(5), after=0.25)
    (announce,) = summed.messages(msg.Announce)
    assert (announce.wait_s, announce.push_s) == (5.0, 0.25)
    assert summed.activity is Activity.WAITING


@pytest.mark.parametrize("route", [msg.Route(1, 5, 9, "h"), msg.Route(1, 5, 9)], ids=repr)
def test_what_was_sent_straight_is_sent_no_other_way(summed: Any, route: msg.Route) -> None:
    summed.handle(msg.Route(1, 5, 8))
    assert summed.handle(route) == []
    assert summed.activity is Activity.EXPOSING
    summed.handle(Reachable(5))
    assert summed.handle(route) == []


def test_a_release_says_that_its_fate_is_decided(summed: Any) -> None:
    summed.handle(msg.Release(1, 6, 9, None), after=2.0)
    assert summed.activity is Activity.PULLING
    assert [pull.version for pull in summed.pulls()] == [9, 9]
    for late in (msg.Route(1, 5, 8), msg.Route(1, 5, 8, "h"), msg.Drop(1, 5)):
        assert summed.handle(late) == []
    assert summed.activity is Activity.PULLING


@pytest.mark.parametrize("sequence", [4, 5])
def test_a_release_that_is_known_decides_nothing(summed: Any, sequence: int) -> None:
    assert summed.handle(msg.Release(1, sequence, 9, None)) == []
    assert summed.activity is Activity.OFFERED
    assert summed.handle(msg.Route(1, 5, 8)) == [Expose(3, 5)]


def test_the_next_gradient_is_offered_and_sent_like_the_first(summed: Any) -> None:
    summed.release(6, 9).serve().computed(6)
    assert [one.announce.sequence for one in summed.messages(msg.Offer)] == [5, 6]
    assert summed.handle(FIRST) == []
    assert summed.handle(msg.Route(1, 6, 8, "h")) == [SendPart(3, 6, Bundle("h", 1, 8))]


def test_routes_of_the_next_gradient_need_not_be_newer(summed: Any) -> None:
    """That of a run that ends has no number."""
    summed.release(6, 9).serve().computed(6)
    assert summed.handle(msg.Route(1, 6)) == [Expose(3, 6)]


def test_time_from_the_release_on_is_not_spent_waiting(summed: Any) -> None:
    summed.handle(msg.Release(1, 6, 9, None), after=2.0)
    summed.serve(after=0.5).computed(6)
    offer = summed.messages(msg.Offer)[-1]
    assert (offer.announce.wait_s, offer.announce.pull_s) == (0.0, 0.5)


def test_an_abort_is_confirmed_at_once(summed: Any) -> None:
    summed.handle(msg.Abort(1, 5), after=2.0)
    assert summed.sent[-1] == msg.Aborted("w", 5, 0.0)
    assert summed.activity is Activity.WAITING
    assert summed.handle(msg.Route(1, 5, 8)) == []
    assert summed.release(6, 9).activity is Activity.PULLING


@pytest.mark.parametrize("routed", [(), (FIRST,)], ids=["offered", "summed"])
def test_an_abort_that_a_release_overtakes_is_confirmed_all_the_same(
    brought_to: Fresh, routed: tuple[msg.Route, ...]
) -> None:
    """The coordinator remembers what it has not heard of."""
    worker = brought_to(Activity.OFFERED)
    for route in routed:
        worker.handle(route)
    worker.release(6, 9).handle(msg.Abort(1, 5))
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.0)]


def test_no_pull_is_lost_where_a_release_was_kept_before(fresh: Fresh) -> None:
    """Two of them have overtaken the aborts of what was released before."""
    worker = fresh(host="h").welcome().release(5).serve().release(6, 8).computed(5)
    worker.handle(FIRST)
    assert worker.activity is Activity.OFFERED
    worker.release(7, 9)
    assert worker.activity is Activity.PULLING
    assert [pull.shard for pull in worker.pulls()] == [0, 1]


def test_a_new_coordinator_is_offered_it_again_behind_the_worker_s_state(summed: Any) -> None:
    (before,) = summed.messages(msg.Offer)
    summed.handle(msg.StateRequest(2), after=4.0)
    state, offer = summed.sent[-2:]
    assert (state.term, state.sequence, state.aborted) == (2, 5, False)
    assert offer == before
    assert summed.activity is Activity.OFFERED


def test_a_new_coordinator_s_routes_are_newer_whatever_their_numbers(summed: Any) -> None:
    summed.handle(msg.StateRequest(2))
    assert summed.handle(msg.Route(1, 5, 9)) == []
    assert summed.handle(msg.Route(2, 5, 1, "h")) == [SendPart(3, 5, Bundle("h", 2, 1))]
    assert summed.handle(msg.Route(2, 5, 1)) == []
    assert summed.handle(msg.Route(2, 5, 2)) == [Expose(3, 5)]


def test_a_new_coordinator_may_have_it_sent_before_it_asks(summed: Any) -> None:
    assert summed.handle(msg.Route(2, 5, 1, "h")) == [SendPart(3, 5, Bundle("h", 2, 1))]
    summed.handle(msg.StateRequest(2))
    assert len(summed.messages(msg.Offer)) == 2
    assert summed.handle(msg.Route(2, 5, 1, "h")) == []


def test_what_was_sent_to_be_summed_may_be_dropped(summed: Any) -> None:
    assert summed.handle(msg.Drop(1, 5)) == []
    assert summed.activity is Activity.WAITING
    assert summed.handle(msg.Route(1, 5, 8)) == []
    assert summed.release(6, 9).activity is Activity.PULLING
    summed.handle(msg.StateRequest(2))
    assert len(summed.messages(msg.Offer)) == 1


def test_a_drop_of_another_gradient_changes_nothing(summed: Any) -> None:
    assert summed.handle(msg.Drop(1, 4)) == []
    assert summed.handle(msg.Route(1, 5, 8)) == [Expose(3, 5)]


def test_a_stop_ends_the_session(summed: Any) -> None:
    summed.handle(msg.Stop(1, "over"))
    assert summed.activity is Activity.GONE
    assert summed.handle(msg.Route(1, 5, 8)) == []
