"""A session's way from joining to a gradient announced, and what it does about everything out of turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelCompute, Compute, Depart, Expose
from psplatform.core.protocol.events import Begin, ComputeAborted, ComputeFailed, Overwritten, Reachable
from psplatform.core.workers.session import Activity

Fresh = Callable[..., Any]
STATES = pytest.mark.parametrize(
    "state", [one for one in Activity if one is not Activity.GONE], ids=lambda one: one.value
)


# --- the way through ---


def test_a_session_begins_by_joining_under_its_name(fresh: Fresh) -> None:
    worker = fresh()
    worker.handle(Begin())
    assert worker.sent == [msg.Join("w", "here")]
    assert worker.session.waiting_for == "the coordinator"


def test_a_gradient_is_pulled_computed_exposed_and_announced(fresh: Fresh) -> None:
    assignment = msg.BatchAssignment(2, 1)
    worker = fresh().welcome().release(5, 7, assignment=assignment)
    assert [(pull.shard, pull.version) for pull in worker.pulls()] == [(0, 7), (1, 7)]
    worker.serve()
    assert worker.effects == [Compute(3, 5, assignment)]
    assert worker.computed(5).effects == [Expose(3, 5)]
    worker.handle(Reachable(5))
    (announce,) = worker.messages(msg.Announce)
    assert (announce.member, announce.sequence, announce.label) == ("w", 5, msg.Label((7, 7), (1, 1)))
    assert (announce.samples, announce.loss, announce.squared_norm) == (4, 0.5, 2.0)
    assert worker.activity is Activity.WAITING


def test_an_announcement_says_how_long_each_part_took(fresh: Fresh) -> None:
    worker = fresh().welcome()
    worker.now += 3.0
    worker.release(1).serve(after=0.5).computed(1, after=2.0)
    worker.handle(Reachable(1), after=0.25)
    worker.now += 1.5
    worker.release(2).serve().computed(2)
    worker.handle(Reachable(2))
    times = [(one.wait_s, one.pull_s, one.compute_s, one.push_s) for one in worker.messages(msg.Announce)]
    assert times == [(3.0, 0.5, 0.75, 0.25), (1.5, 0.0, 0.75, 0.0)]


def test_an_exact_session_computes_only_when_all_shards_show_one_version(fresh: Fresh) -> None:
    worker = fresh().welcome().release(1, 4).serve(4, 6)
    assert [(pull.shard, pull.version) for pull in worker.pulls()] == [(0, 6)]
    assert worker.activity is Activity.PULLING
    assert worker.session.waiting_for == "shards [0]"
    worker.serve()
    assert worker.effects == [Compute(3, 1, None)]


def test_a_session_that_is_not_exact_takes_what_each_shard_shows(fresh: Fresh) -> None:
    worker = fresh(exact=False).welcome().release(1, 4).serve(4, 6).computed(1)
    worker.handle(Reachable(1))
    assert worker.messages(msg.Announce)[0].label == msg.Label((4, 6), (1, 1))


def test_content_is_expected_only_while_its_answer_is_waited_for(fresh: Fresh) -> None:
    worker = fresh().welcome().release(1)
    answers = [msg.Pulled(pull.shard, pull.request, 0, 1) for pull in worker.pulls()]
    assert all(worker.session.expects(one) for one in answers)
    worker.serve()
    assert not any(worker.session.expects(one) for one in answers)


# --- releases out of turn ---


def test_a_release_before_the_welcome_is_kept(fresh: Fresh) -> None:
    worker = fresh()
    worker.handle(Begin())
    assert worker.release(1, 2).effects == []
    worker.handle(msg.Welcome(1, 3, 1))
    assert [pull.version for pull in worker.pulls()] == [2, 2]


@pytest.mark.parametrize("state", [Activity.PULLING, Activity.COMPUTING, Activity.EXPOSING, Activity.ABORTING])
def test_a_release_that_comes_while_busy_is_kept_until_the_gradient_is_done(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    assert worker.release(6, 9).effects == []
    worker.handle(msg.Abort(1, 5))
    worker.handle(ComputeAborted(5))
    worker.handle(Reachable(5))
    assert worker.activity is Activity.PULLING
    assert [pull.version for pull in worker.messages(msg.Pull)[-2:]] == [9, 9]


def test_of_two_kept_releases_the_newer_counts_whatever_order_they_come_in(brought_to: Fresh) -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.release(7, 3).release(6, 2)
    worker.computed(5)
    worker.handle(Reachable(5))
    assert [pull.version for pull in worker.pulls()] == [3, 3]


@STATES
def test_a_repeated_release_starts_nothing(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    if state in (Activity.JOINING, Activity.WAITING):
        worker.handle(msg.Welcome(1, 3, 1))
        worker.release(5)
    state, before = worker.activity, len(worker.sent)
    worker.release(5).release(4)
    assert (worker.activity, len(worker.sent)) == (state, before)


# --- repeats, terms, stops, failures ---


@STATES
def test_a_repeated_welcome_changes_nothing(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Welcome(1, 3, 1))
    before = worker.activity
    worker.handle(msg.Welcome(1, 4, 1))
    assert (worker.activity, worker.session.slot) == (before, 3)


@STATES
def test_messages_of_a_lower_term_change_nothing(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Abort(4, 99))
    before = worker.activity
    for message in (msg.Welcome(3, 8, 1), msg.Release(3, 100, 1, None), msg.Abort(3, 5), msg.Stop(3, "old")):
        assert worker.handle(message) == []
    assert worker.activity is before


@STATES
def test_a_stop_ends_the_session_from_any_state(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Stop(1, "the run ends"))
    assert worker.effects[-1] == Depart("the run ends")
    computing = state in (Activity.COMPUTING, Activity.ABORTING)
    assert worker.effects[:-1] == ([CancelCompute(5)] if computing else [])


@STATES
def test_a_session_that_is_over_does_nothing_any_more(brought_to: Fresh, state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Stop(1, "over"))
    worker.release(9).computed(5)
    for event in (Reachable(5), ComputeAborted(5), msg.Stop(1, "again"), msg.Welcome(1, 1, 1), msg.Abort(1, 5)):
        assert worker.handle(event) == []
    assert worker.activity is Activity.GONE


def test_an_error_in_the_user_s_code_is_reported_and_ends_the_session(brought_to: Fresh) -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.handle(ComputeFailed(5, "ValueError", "bad", "Traceback ..."))
    assert worker.sent[-1] == msg.Failed("w", 5, "ValueError", "bad", "Traceback ...")
    assert isinstance(worker.effects[-1], Depart)
    assert worker.activity is Activity.GONE


def test_one_that_was_welcomed_and_not_released_asks_a_new_coordinator_again(fresh: Fresh) -> None:
    """Only the lost one may have known that it had joined."""
    worker = fresh().welcome()
    worker.handle(msg.StateRequest(2))
    assert worker.sent == [msg.Join("w", "here"), msg.Join("w", "here")]
    worker.handle(msg.Welcome(2, 5, 1))
    worker.release(1, term=2)
    assert worker.session.slot == 5


def test_one_that_is_released_before_it_is_welcomed_again_starts_with_the_welcome(fresh: Fresh) -> None:
    worker = fresh().welcome()
    worker.handle(msg.StateRequest(2))
    assert worker.release(1, term=2).effects == []
    worker.handle(msg.Welcome(2, 3, 1))
    assert worker.session.activity is Activity.PULLING


def test_what_was_computed_on_parameters_that_were_written_over_is_pulled_again(brought_to: Fresh) -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.handle(Overwritten(5))
    assert len(worker.pulls()) == 2
    assert worker.activity is Activity.PULLING
    worker.serve(7, 7)
    assert worker.effects == [Compute(3, 5, None)]
    worker.computed(5)
    worker.handle(Reachable(5))
    assert worker.sent[-1].label.versions == (7, 7)


def test_the_end_of_another_gradient_pulls_nothing_again(brought_to: Fresh) -> None:
    worker = brought_to(Activity.COMPUTING)
    assert worker.handle(Overwritten(4)) == []
    assert worker.activity is Activity.COMPUTING


def test_parameters_that_were_written_over_end_an_abort(brought_to: Fresh) -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.handle(msg.Abort(1, 5))
    worker.handle(Overwritten(5))
    assert isinstance(worker.sent[-1], msg.Aborted)
    assert worker.activity is Activity.WAITING
