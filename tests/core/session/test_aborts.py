"""Aborts: confirmed when nobody computes any more, with how long that took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelCompute
from psplatform.core.protocol.events import ComputeAborted, Computed, Reachable
from psplatform.core.workers.session import Activity

Fresh = Callable[..., Any]
FIGURES = {"samples": 4, "loss": 0.5, "squared_norm": 2.0, "seconds": 0.75}


# --- aborts ---


def test_an_abort_while_pulling_ends_the_pull_at_once(brought_to: Fresh) -> None:
    worker = brought_to(Activity.PULLING)
    pulls = worker.pulls()
    worker.handle(msg.Abort(1, 5), after=2.0)
    assert worker.sent[-1] == msg.Aborted("w", 5, 0.0)
    assert worker.activity is Activity.WAITING
    worker.handle(msg.Pulled(0, pulls[0].request, 0, 1))
    worker.handle(msg.Pulled(1, pulls[1].request, 0, 1))
    assert worker.activity is Activity.WAITING


def test_an_abort_while_computing_is_confirmed_with_its_latency_when_the_computation_has_stopped(
    brought_to: Fresh,
) -> None:
    worker = brought_to(Activity.COMPUTING)
    assert worker.handle(msg.Abort(1, 5), after=2.0) == [CancelCompute(5)]
    assert worker.messages(msg.Aborted) == []
    worker.handle(ComputeAborted(5), after=0.5)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.5)]
    assert worker.activity is Activity.WAITING


def test_a_gradient_that_was_done_before_the_abort_could_stop_it_is_not_exposed(brought_to: Fresh) -> None:
    worker = brought_to(Activity.ABORTING)
    worker.computed(5, after=0.5)
    assert worker.sent[-1] == msg.Aborted("w", 5, 0.5)
    worker.handle(ComputeAborted(5))
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.5)]


def test_an_abort_while_exposing_is_confirmed_when_nobody_writes_any_more(brought_to: Fresh) -> None:
    worker = brought_to(Activity.EXPOSING)
    assert worker.handle(msg.Abort(1, 5), after=2.0) == []
    worker.handle(Reachable(5), after=0.25)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.25)]
    assert worker.messages(msg.Announce) == []


def engaged(worker: Any) -> tuple[int, bool]:
    """Return which gradient it tells a new coordinator of, and whether it has given that up."""
    worker.handle(msg.StateRequest(2))
    (said,) = worker.messages(msg.WorkerState)
    return said.sequence, said.aborted


def test_a_new_coordinator_hears_what_was_given_up(brought_to: Fresh) -> None:
    worker = brought_to(Activity.PULLING)
    worker.handle(msg.Abort(1, 5))
    assert engaged(worker) == (5, True)


def test_a_new_coordinator_hears_what_is_being_given_up(brought_to: Fresh) -> None:
    assert engaged(brought_to(Activity.ABORTING)) == (5, True)


def test_a_new_coordinator_hears_of_the_release_after_what_is_being_given_up(brought_to: Fresh) -> None:
    assert engaged(brought_to(Activity.ABORTING).release(6)) == (6, False)


def test_what_is_done_or_under_way_is_not_given_up(brought_to: Fresh) -> None:
    assert engaged(brought_to(Activity.COMPUTING)) == (5, False)
    worker = brought_to(Activity.EXPOSING)
    worker.handle(Reachable(5))
    assert engaged(worker) == (5, False)


def test_what_a_lost_coordinator_forestalled_a_new_one_may_release(brought_to: Fresh) -> None:
    """The release that it had sent before is void, wherever it is."""
    worker = brought_to(Activity.EXPOSING)
    worker.handle(Reachable(5))
    worker.handle(msg.Abort(1, 6))
    worker.handle(msg.StateRequest(2))
    worker.release(6, 1, term=1)
    assert worker.activity is Activity.WAITING
    worker.release(6, 1, term=2)
    assert worker.activity is Activity.PULLING


def test_an_abort_of_a_gradient_that_is_announced_changes_nothing(brought_to: Fresh) -> None:
    worker = brought_to(Activity.EXPOSING)
    worker.handle(Reachable(5))
    assert worker.handle(msg.Abort(1, 5)) == []
    assert worker.release(6).activity is Activity.PULLING


def test_a_repeated_abort_does_not_shorten_the_latency(brought_to: Fresh) -> None:
    worker = brought_to(Activity.ABORTING)
    assert worker.handle(msg.Abort(1, 5), after=1.0) == []
    worker.handle(ComputeAborted(5), after=1.0)
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 2.0)]


def test_an_abort_of_a_release_that_is_kept_forgets_it(brought_to: Fresh) -> None:
    """The model moved on twice while the first computation was still stopping."""
    worker = brought_to(Activity.ABORTING)
    worker.release(6, 1)
    worker.handle(msg.Abort(1, 6))
    assert worker.sent[-1] == msg.Aborted("w", 6, 0.0)
    worker.release(7, 2)
    worker.handle(ComputeAborted(5))
    assert [pull.version for pull in worker.pulls()] == [2, 2]


def test_a_release_that_was_aborted_while_it_was_kept_is_not_begun(brought_to: Fresh) -> None:
    worker = brought_to(Activity.ABORTING)
    worker.release(6, 1)
    worker.handle(msg.Abort(1, 6))
    worker.handle(ComputeAborted(5))
    assert worker.activity is Activity.WAITING


def test_only_the_computation_that_was_aborted_confirms_its_end(brought_to: Fresh) -> None:
    worker = brought_to(Activity.ABORTING)
    assert worker.handle(ComputeAborted(4)) == []
    assert worker.activity is Activity.ABORTING


def test_an_abort_that_overtakes_its_release_prevents_it(brought_to: Fresh) -> None:
    worker = brought_to(Activity.WAITING)
    worker.handle(msg.Abort(1, 5))
    assert worker.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.0)]
    assert worker.release(5).activity is Activity.WAITING
    worker.handle(msg.Abort(1, 5))
    assert len(worker.messages(msg.Aborted)) == 1
    assert worker.release(6).activity is Activity.PULLING


def test_results_of_an_aborted_computation_do_not_touch_the_next_one(brought_to: Fresh) -> None:
    worker = brought_to(Activity.ABORTING)
    worker.release(6)
    worker.handle(ComputeAborted(5))
    worker.serve()
    assert worker.activity is Activity.COMPUTING
    for stale in (ComputeAborted(5), Computed(5, **FIGURES), Reachable(5), msg.Abort(1, 5)):
        assert worker.handle(stale) == []
    assert worker.activity is Activity.COMPUTING
