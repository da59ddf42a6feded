"""What a coordinator that has taken over decided is computed on only when it has repeated the release it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.policy import Scope
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import Begin, ComputeAborted, Reachable
from psplatform.core.workers.session import Activity

Fresh = Callable[..., Any]


@pytest.fixture
def waiting(fresh: Fresh) -> Any:
    """A worker that was released by the first coordinator, and got what the second has decided."""
    return fresh().welcome().release(5, 4).serve(decided_in=2)


def begun(worker: Any) -> list[int]:
    return [one.sequence for one in worker.effects if isinstance(one, Compute)]


def test_under_a_release_of_the_lost_coordinator_it_waits(waiting: Any) -> None:
    assert waiting.effects == []
    assert waiting.activity is Activity.PULLING
    assert waiting.session.waiting_for == "the coordinator"


@pytest.mark.parametrize("term", [2, 3])
def test_once_the_release_is_repeated_it_computes(waiting: Any, term: int) -> None:
    waiting.release(5, 4, term=term)
    assert begun(waiting) == [5]
    assert waiting.release(5, 4, term=term).effects == []


def test_a_repetition_by_one_that_was_replaced_before_that_was_decided_does_not_count(fresh: Fresh) -> None:
    worker = fresh().welcome().release(5, 4).serve(decided_in=3)
    assert worker.release(5, 4, term=2).effects == []
    assert begun(worker.release(5, 4, term=3)) == [5]


def test_a_coordinator_that_asks_meanwhile_hears_of_the_release(waiting: Any) -> None:
    waiting.handle(msg.StateRequest(3))
    assert waiting.sent[-1] == msg.WorkerState(3, "w", 5, 4, None)
    assert begun(waiting.release(5, 4, term=3)) == [5]


def test_one_that_waits_with_parameters_has_pulled_them_by_then(waiting: Any) -> None:
    waiting.now += 7.0
    waiting.release(5, 4, term=2).computed(5)
    waiting.handle(Reachable(5, (0, 1)))
    (announce,) = waiting.messages(msg.Announce)
    assert announce.pull_s == 0.0


def test_a_kept_release_that_is_repeated_keeps_what_it_asks_for(fresh: Fresh) -> None:
    """Its batch above all: the coordinator is told of that, and may have dealt another before."""
    worker = fresh().welcome().release(5, 4).serve()
    batch = msg.BatchAssignment(1, 7)
    worker.release(6, 5, assignment=batch)
    worker.release(6, 5, term=2, assignment=msg.BatchAssignment(1, 8))
    worker.handle(msg.Abort(2, 5))
    worker.handle(ComputeAborted(5))
    worker.serve(decided_in=2)
    assert [one.assignment for one in worker.effects if isinstance(one, Compute)] == [batch]


def test_a_release_of_a_coordinator_that_is_gone_is_not_kept_by_one_that_joins_again(fresh: Fresh) -> None:
    """It came before the welcome: the next coordinator knows neither, and grants its own."""
    worker = fresh()
    worker.handle(Begin())
    worker.release(1, 0)
    worker.handle(msg.StateRequest(2))
    worker.release(1, 1, term=2)
    worker.handle(msg.Welcome(2, 3, 1))
    assert begun(worker.serve(decided_in=2)) == [1]


def test_a_release_that_is_repeated_before_the_parameters_are_there_counts(fresh: Fresh) -> None:
    worker = fresh().welcome().release(5, 4)
    pulls = worker.pulls()
    assert worker.release(5, 4, term=2).effects == []
    for pull in pulls:
        worker.handle(msg.Pulled(pull.shard, pull.request, 4, 1, 2))
    assert begun(worker) == [5]


def test_a_release_for_another_version_is_no_repetition(waiting: Any) -> None:
    """It was released twice for one gradient, and the coordinator that has taken over knows only of the other one."""
    assert waiting.release(5, 3, term=2).effects == []
    assert begun(waiting.release(5, 4, term=2)) == [5]


def test_what_was_decided_in_the_term_of_its_release_or_before_is_computed_on(fresh: Fresh) -> None:
    for decided_in in (0, 1):
        assert begun(fresh().welcome().release(5, 4).serve(decided_in=decided_in)) == [5]


def test_the_newest_of_all_shards_counts(fresh: Fresh) -> None:
    worker = fresh().welcome().release(5, 4)
    first, second = worker.pulls()
    worker.handle(msg.Pulled(0, first.request, 4, 1, 2))
    worker.handle(msg.Pulled(1, second.request, 4, 1, 1))
    assert worker.effects == []


def test_an_abort_frees_one_that_waits(waiting: Any) -> None:
    waiting.handle(msg.Abort(2, 5))
    assert waiting.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.0)]
    assert begun(waiting.release(6, 5, term=2).serve(decided_in=2)) == [6]


def test_one_that_was_released_anew_gives_up_what_it_waits_with(waiting: Any) -> None:
    """The coordinator that has taken over knows nothing of the older gradient, and takes it for over."""
    waiting.release(6, 5, term=2)
    assert waiting.messages(msg.Aborted) == [msg.Aborted("w", 5, 0.0)]
    assert begun(waiting.serve(decided_in=2)) == [6]


def test_so_does_one_that_hears_of_it_before_the_parameters_are_there(fresh: Fresh) -> None:
    worker = fresh().welcome().release(5, 4)
    pulls = worker.pulls()
    worker.release(6, 5, term=2)
    for pull in pulls:
        worker.handle(msg.Pulled(pull.shard, pull.request, 4, 1, 2))
        assert begun(worker) == []
    assert [one.version for one in worker.pulls()] == [5, 5]


def test_a_new_server_is_waited_for_first(waiting: Any) -> None:
    waiting.handle(msg.Moved(2, 1, 2, "replica-1-0"))
    (pull,) = waiting.pulls()
    assert waiting.release(5, 4, term=2).effects == []
    assert begun(waiting) == []
    waiting.handle(msg.Pulled(1, pull.request, 4, 2, 2))
    assert begun(waiting) == [5]


def test_block_by_block_nothing_is_waited_for(fresh: Fresh) -> None:
    """Servers have copies of what was computed for a block: nothing can be written over."""
    worker = fresh(exact=False, scope=Scope.BLOCK)
    assert begun(worker.welcome().release(5, 4).serve(decided_in=2)) == [5]
