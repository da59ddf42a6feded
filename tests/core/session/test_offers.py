"""A session whose transfers are planned: it offers what it has computed, and sends or drops it as it is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Expose
from psplatform.core.protocol.events import Computed, Reachable
from psplatform.core.workers.session import Activity

Fresh = Callable[..., Any]


def test_a_gradient_is_offered_with_all_that_will_be_announced(fresh: Fresh) -> None:
    assignment = msg.BatchAssignment(2, 1)
    worker = fresh(host="h").welcome().release(5, 7, assignment=assignment).serve(after=0.5).computed(5)
    (offer,) = worker.messages(msg.Offer)
    assert (offer.host, offer.announce.member, offer.announce.sequence) == ("h", "w", 5)
    assert offer.announce.label == msg.Label((7, 7), (1, 1))
    assert (offer.announce.squared_norm, offer.announce.pull_s, offer.announce.push_s) == (2.0, 0.5, 0.0)
    assert offer.announce.assignment == assignment
    assert worker.session.waiting_for == "the coordinator"
    assert not worker.messages(msg.Announce)


def test_what_is_routed_is_sent_and_the_seconds_of_waiting_are_not_those_of_sending(brought_to: Fresh) -> None:
    worker = brought_to(Activity.OFFERED)
    assert worker.handle(msg.Route(1, 5), after=3.0) == [Expose(3, 5)]
    assert worker.activity is Activity.EXPOSING
    worker.handle(Reachable(5), after=0.25)
    (announce,) = worker.messages(msg.Announce)
    (offer,) = worker.messages(msg.Offer)
    assert announce.push_s == 0.25
    assert (announce.label, announce.loss) == (offer.announce.label, offer.announce.loss)


def test_waiting_to_be_sent_is_waiting(fresh: Fresh) -> None:
    worker = fresh(host="h").welcome()
    worker.now += 2.0
    worker.release(5).serve().computed(5)
    worker.handle(msg.Route(1, 5), after=3.0)
    worker.handle(Reachable(5))
    assert worker.messages(msg.Announce)[0].wait_s == 5.0


def test_what_every_server_sees_where_it_lies_is_not_offered(fresh: Fresh) -> None:
    """That may change with a server: it is looked at for each gradient."""
    far = iter([False, True])
    worker = fresh(host="h", is_sent=lambda: next(far)).welcome().release(5).serve()
    assert worker.computed(5).activity is Activity.EXPOSING
    worker.handle(Reachable(5))
    assert not worker.messages(msg.Offer)
    assert worker.release(6).serve().computed(6).activity is Activity.OFFERED


def test_what_is_dropped_is_not_sent_and_the_next_release_is_begun(brought_to: Fresh) -> None:
    worker = brought_to(Activity.OFFERED)
    assert worker.handle(msg.Drop(1, 5)) == []
    assert worker.activity is Activity.WAITING
    assert worker.handle(msg.Route(1, 5)) == []
    assert worker.release(6, 9).activity is Activity.PULLING


def test_a_release_that_comes_before_the_drop_is_kept(brought_to: Fresh) -> None:
    worker = brought_to(Activity.OFFERED)
    worker.release(6, 9).handle(msg.Drop(1, 5))
    assert [pull.version for pull in worker.pulls()] == [9, 9]


@pytest.mark.parametrize("message", [msg.Route(1, 4), msg.Route(1, 6), msg.Drop(1, 4), msg.Drop(1, 6)], ids=repr)
def test_an_answer_about_another_gradient_changes_nothing(brought_to: Fresh, message: msg.Route | msg.Drop) -> None:
    worker = brought_to(Activity.OFFERED)
    assert worker.handle(message) == []
    assert worker.activity is Activity.OFFERED


@pytest.mark.parametrize("message", [msg.Route(1, 5), msg.Drop(1, 5)], ids=repr)
@pytest.mark.parametrize(
    "state", [one for one in Activity if one not in (Activity.OFFERED, Activity.GONE)], ids=lambda one: one.value
)
def test_an_answer_that_nobody_waits_for_changes_nothing(
    brought_to: Fresh, state: Activity, message: msg.Route | msg.Drop
) -> None:
    worker = brought_to(state)
    assert worker.handle(message) == []
    assert worker.activity is state


@pytest.mark.parametrize("message", [msg.Route(1, 5), msg.Drop(1, 5)], ids=repr)
def test_a_coordinator_that_is_gone_is_not_obeyed(brought_to: Fresh, message: msg.Route | msg.Drop) -> None:
    worker = brought_to(Activity.OFFERED)
    worker.handle(msg.StateRequest(2))
    assert worker.handle(message) == []
    assert worker.activity is Activity.OFFERED


def test_a_new_coordinator_is_offered_it_again_behind_the_worker_s_state(brought_to: Fresh) -> None:
    worker = brought_to(Activity.OFFERED)
    (before,) = worker.messages(msg.Offer)
    worker.handle(msg.StateRequest(2), after=4.0)
    state, offer = worker.sent[-2:]
    assert (state.sequence, state.aborted) == (5, False)
    assert offer == before


def test_a_new_coordinator_hears_that_it_was_dropped(brought_to: Fresh) -> None:
    """The lost one may have been the only one to know: nothing of it will be announced."""
    worker = brought_to(Activity.OFFERED)
    worker.handle(msg.Drop(1, 5))
    worker.handle(msg.StateRequest(2))
    assert (worker.sent[-1].sequence, worker.sent[-1].aborted) == (5, True)


def test_an_abort_is_confirmed_at_once(brought_to: Fresh) -> None:
    worker = brought_to(Activity.OFFERED)
    worker.handle(msg.Abort(1, 5), after=2.0)
    assert worker.sent[-1] == msg.Aborted("w", 5, 0.0)
    assert worker.handle(msg.Route(1, 5)) == []


@pytest.mark.parametrize(("loss", "squared_norm"), [(math.nan, 2.0), (0.5, math.inf)])
def test_what_is_not_finite_is_not_offered(fresh: Fresh, loss: float, squared_norm: float) -> None:
    """It is refused when it is announced, with what is wrong with it."""
    worker = fresh(host="h").welcome().release(5).serve()
    assert worker.handle(Computed(5, 4, loss, squared_norm, 0.75)) == [Expose(3, 5)]
