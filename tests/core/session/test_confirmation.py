"""What a coordinator that has taken over decided is computed on only when it has repeated the release it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.policy import Scope
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Compute
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
