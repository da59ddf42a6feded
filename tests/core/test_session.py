"""A worker's session: what it does about every message in every state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core import messages as msg
from psplatform.core.effects import CancelCompute, Compute, Depart, Effect, Expose, Send
from psplatform.core.events import Begin, ComputeAborted, Computed, ComputeFailed, Reachable
from psplatform.core.session import Activity, WorkerSession

FIGURES = {"samples": 4, "loss": 0.5, "squared_norm": 2.0, "seconds": 0.75}


@dataclass
class Worker:
    """A session, what it did about the last event, and short words for what can happen to it."""

    session: WorkerSession
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def handle(self, event: Any, *, after: float = 0.0) -> list[Effect]:
        self.now += after
        self.effects = self.session.handle(event, self.now)
        self.sent += [one.message for one in self.effects if isinstance(one, Send)]
        return self.effects

    def welcome(self, term: int = 1) -> Worker:
        self.handle(Begin())
        self.handle(msg.Welcome(term, 3, 1))
        return self

    def release(self, sequence: int, version: int = 0, *, term: int = 1, ticket: msg.Ticket | None = None) -> Worker:
        self.handle(msg.Release(term, sequence, version, ticket))
        return self

    def pulls(self) -> list[msg.Pull]:
        return [one.message for one in self.effects if isinstance(one, Send) and isinstance(one.message, msg.Pull)]

    def serve(self, *versions: int, after: float = 0.0) -> Worker:
        """Answer the pulls just sent, by default with the version asked for."""
        self.now += after
        for number, pull in enumerate(self.pulls()):
            self.handle(msg.Pulled(pull.shard, pull.request, versions[number] if versions else pull.version, 1))
        return self

    def computed(self, sequence: int, *, after: float = 0.0) -> Worker:
        self.handle(Computed(sequence, **FIGURES), after=after)
        return self

    @property
    def activity(self) -> Activity:
        return self.session.activity

    def messages(self, kind: type) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]


def fresh(shards: int = 2, *, exact: bool = True) -> Worker:
    return Worker(WorkerSession("w", "here", shards, exact=exact))


# How to bring a worker into each state with gradient 5 released, as far as that state has one.
WAYS: dict[Activity, Callable[[Worker], Any]] = {
    Activity.JOINING: lambda one: one.handle(Begin()),
    Activity.WAITING: lambda one: one.welcome(),
    Activity.PULLING: lambda one: one.welcome().release(5),
    Activity.COMPUTING: lambda one: one.welcome().release(5).serve(),
    Activity.EXPOSING: lambda one: one.welcome().release(5).serve().computed(5),
    Activity.ABORTING: lambda one: one.welcome().release(5).serve().handle(msg.Abort(1, 5)),
}
STATES = pytest.mark.parametrize("state", list(WAYS), ids=lambda one: one.value)


def brought_to(state: Activity) -> Worker:
    worker = fresh()
    WAYS[state](worker)
    assert worker.activity is state
    return worker


# --- the way through ---


def test_a_session_begins_by_joining_under_its_name() -> None:
    worker = fresh()
    worker.handle(Begin())
    assert worker.sent == [msg.Join("w", "here")]
    assert worker.session.waiting_for == "the coordinator"


def test_a_gradient_is_pulled_computed_exposed_and_announced() -> None:
    ticket = msg.Ticket(2, 1)
    worker = fresh().welcome().release(5, 7, ticket=ticket)
    assert [(pull.shard, pull.version) for pull in worker.pulls()] == [(0, 7), (1, 7)]
    worker.serve()
    assert worker.effects == [Compute(3, 5, ticket)]
    assert worker.computed(5).effects == [Expose(3, 5)]
    worker.handle(Reachable(5))
    (announce,) = worker.messages(msg.Announce)
    assert (announce.member, announce.sequence, announce.label) == ("w", 5, msg.Label((7, 7), (1, 1)))
    assert (announce.samples, announce.loss, announce.squared_norm) == (4, 0.5, 2.0)
    assert worker.activity is Activity.WAITING


def test_an_announcement_says_how_long_each_part_took() -> None:
    worker = fresh().welcome()
    worker.now += 3.0
    worker.release(1).serve(after=0.5).computed(1, after=2.0)
    worker.handle(Reachable(1), after=0.25)
    (announce,) = worker.messages(msg.Announce)
    assert (announce.wait_s, announce.pull_s, announce.compute_s, announce.push_s) == (3.0, 0.5, 0.75, 0.25)


def test_an_exact_session_computes_only_when_all_shards_show_one_version() -> None:
    worker = fresh().welcome().release(1, 4).serve(4, 6)
    assert [(pull.shard, pull.version) for pull in worker.pulls()] == [(0, 6)]
    assert worker.activity is Activity.PULLING
    assert worker.session.waiting_for == "shards [0]"
    worker.serve()
    assert worker.effects == [Compute(3, 1, None)]


def test_a_session_that_is_not_exact_takes_what_each_shard_shows() -> None:
    worker = fresh(exact=False).welcome().release(1, 4).serve(4, 6).computed(1)
    worker.handle(Reachable(1))
    assert worker.messages(msg.Announce)[0].label == msg.Label((4, 6), (1, 1))


def test_content_is_expected_only_while_its_answer_is_waited_for() -> None:
    worker = fresh().welcome().release(1)
    answers = [msg.Pulled(pull.shard, pull.request, 0, 1) for pull in worker.pulls()]
    assert all(worker.session.expects(one) for one in answers)
    worker.serve()
    assert not any(worker.session.expects(one) for one in answers)


# --- releases out of turn ---


def test_a_release_before_the_welcome_is_kept() -> None:
    worker = fresh()
    worker.handle(Begin())
    assert worker.release(1, 2).effects == []
    worker.handle(msg.Welcome(1, 3, 1))
    assert [pull.version for pull in worker.pulls()] == [2, 2]


@pytest.mark.parametrize("state", [Activity.PULLING, Activity.COMPUTING, Activity.EXPOSING, Activity.ABORTING])
def test_a_release_that_comes_while_busy_is_kept_until_the_gradient_is_done(state: Activity) -> None:
    worker = brought_to(state)
    assert worker.release(6, 9).effects == []
    worker.handle(msg.Abort(1, 5))
    worker.handle(ComputeAborted(5))
    worker.handle(Reachable(5))
    assert worker.activity is Activity.PULLING
    assert [pull.version for pull in worker.messages(msg.Pull)[-2:]] == [9, 9]


def test_of_two_kept_releases_the_newer_counts_whatever_order_they_come_in() -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.release(7, 3).release(6, 2)
    worker.computed(5)
    worker.handle(Reachable(5))
    assert [pull.version for pull in worker.pulls()] == [3, 3]


@STATES
def test_a_repeated_release_starts_nothing(state: Activity) -> None:
    worker = brought_to(state)
    if state in (Activity.JOINING, Activity.WAITING):
        worker.handle(msg.Welcome(1, 3, 1))
        worker.release(5)
    state, before = worker.activity, len(worker.sent)
    worker.release(5).release(4)
    assert (worker.activity, len(worker.sent)) == (state, before)


# --- aborts ---


def test_an_abort_while_pulling_ends_the_pull_at_once() -> None:
    worker = brought_to(Activity.PULLING)
    pulls = worker.pulls()
    worker.handle(msg.Abort(1, 5))
    assert worker.sent[-1] == msg.Aborted("w", 5, 0.0)
    assert worker.activity is Activity.WAITING
    worker.handle(msg.Pulled(0, pulls[0].request, 0, 1))
    worker.handle(msg.Pulled(1, pulls[1].request, 0, 1))
    assert worker.activity is Activity.WAITING


def test_an_abort_while_computing_is_confirmed_with_its_latency_when_the_computation_has_stopped() -> None:
    worker = brought_to(Activity.COMPUTING)
    assert worker.handle(msg.Abort(1, 5)) == [CancelCompute(5)]
    assert worker.messages(msg.Aborted) == []
    worker.handle(ComputeAborted(5), after=0.5)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.5)]
    assert worker.activity is Activity.WAITING


def test_a_gradient_that_was_done_before_the_abort_could_stop_it_is_not_exposed() -> None:
    worker = brought_to(Activity.ABORTING)
    worker.computed(5, after=0.5)
    assert worker.sent[-1] == msg.Aborted("w", 5, 0.5)
    worker.handle(ComputeAborted(5))
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.5)]


def test_an_abort_while_exposing_is_confirmed_when_nobody_writes_any_more() -> None:
    worker = brought_to(Activity.EXPOSING)
    assert worker.handle(msg.Abort(1, 5)) == []
    worker.handle(Reachable(5), after=0.25)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.25)]
    assert worker.messages(msg.Announce) == []


def test_an_abort_of_a_gradient_that_is_announced_changes_nothing() -> None:
    worker = brought_to(Activity.EXPOSING)
    worker.handle(Reachable(5))
    assert worker.handle(msg.Abort(1, 5)) == []
    assert worker.release(6).activity is Activity.PULLING


def test_a_repeated_abort_does_not_shorten_the_latency() -> None:
    worker = brought_to(Activity.ABORTING)
    assert worker.handle(msg.Abort(1, 5), after=1.0) == []
    worker.handle(ComputeAborted(5), after=1.0)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 2.0)]


def test_an_abort_of_a_release_that_is_kept_forgets_it() -> None:
    """The model moved on twice while the first computation was still stopping."""
    worker = brought_to(Activity.ABORTING)
    worker.release(6, 1)
    worker.handle(msg.Abort(1, 6))
    assert worker.sent[-1] == msg.Aborted("w", 6, 0.0)
    worker.release(7, 2)
    worker.handle(ComputeAborted(5))
    assert [pull.version for pull in worker.pulls()] == [2, 2]


def test_an_abort_that_overtakes_its_release_prevents_it() -> None:
    worker = brought_to(Activity.WAITING)
    worker.handle(msg.Abort(1, 5))
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.0)]
    assert worker.release(5).activity is Activity.WAITING
    worker.handle(msg.Abort(1, 5))
    assert len(worker.messages(msg.Aborted)) == 1
    assert worker.release(6).activity is Activity.PULLING


def test_results_of_an_aborted_computation_do_not_touch_the_next_one() -> None:
    worker = brought_to(Activity.ABORTING)
    worker.release(6)
    worker.handle(ComputeAborted(5))
    worker.serve()
    assert worker.activity is Activity.COMPUTING
    for stale in (ComputeAborted(5), Computed(5, **FIGURES), Reachable(5), msg.Abort(1, 5)):
        assert worker.handle(stale) == []
    assert worker.activity is Activity.COMPUTING


# --- repeats, terms, stops, failures ---


@STATES
def test_a_repeated_welcome_changes_nothing(state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Welcome(1, 3, 1))
    before = worker.activity
    worker.handle(msg.Welcome(1, 4, 1))
    assert (worker.activity, worker.session.slot) == (before, 3)


@STATES
def test_messages_of_a_lower_term_change_nothing(state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Abort(4, 99))
    before = worker.activity
    for message in (msg.Welcome(3, 8, 1), msg.Release(3, 100, 1, None), msg.Abort(3, 5), msg.Stop(3, "old")):
        assert worker.handle(message) == []
    assert worker.activity is before


@STATES
def test_a_stop_ends_the_session_from_any_state(state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Stop(1, "the run ends"))
    assert worker.effects[-1] == Depart("the run ends")
    computing = state in (Activity.COMPUTING, Activity.ABORTING)
    assert worker.effects[:-1] == ([CancelCompute(5)] if computing else [])


@STATES
def test_a_session_that_is_over_does_nothing_any_more(state: Activity) -> None:
    worker = brought_to(state)
    worker.handle(msg.Stop(1, "over"))
    worker.release(9).computed(5)
    for event in (Reachable(5), ComputeAborted(5), msg.Stop(1, "again"), msg.Welcome(1, 1, 1), msg.Abort(1, 5)):
        assert worker.handle(event) == []
    assert worker.activity is Activity.GONE


def test_an_error_in_the_user_s_code_is_reported_and_ends_the_session() -> None:
    worker = brought_to(Activity.COMPUTING)
    worker.handle(ComputeFailed(5, "ValueError", "bad", "Traceback ..."))
    assert worker.sent[-1] == msg.Failed("w", 5, "ValueError", "bad", "Traceback ...")
    assert isinstance(worker.effects[-1], Depart)
    assert worker.activity is Activity.GONE
