"""A cancellation is raised once and seen everywhere."""

from __future__ import annotations

import threading

import pytest

from psplatform.tasks.cancellation import Cancellation, Cancelled


def test_check_passes_until_the_flag_is_raised() -> None:
    """A computation goes on unless cancelled; afterwards every check raises."""
    cancel = Cancellation()
    cancel.check()
    assert not cancel.cancelled
    cancel.cancel()
    cancel.cancel()
    assert cancel.cancelled
    for _ in range(2):
        with pytest.raises(Cancelled):
            cancel.check()


def test_user_code_cannot_swallow_a_cancellation() -> None:
    """An ``except Exception`` around the check lets it pass."""
    cancel = Cancellation()
    cancel.cancel()

    def user_code() -> None:
        try:
            cancel.check()
        except Exception:  # noqa: BLE001  # what careless user code does
            pytest.fail("swallowed")

    with pytest.raises(Cancelled):
        user_code()


def test_a_wait_ends_when_another_thread_cancels() -> None:
    """Waiting returns at once with True when cancelled, and with False when the time is over."""
    cancel = Cancellation()
    assert cancel.wait(0.0) is False
    results: list[bool] = []
    sleeper = threading.Thread(target=lambda: results.append(cancel.wait(60.0)))
    sleeper.start()
    cancel.cancel()
    sleeper.join()
    assert results == [True]
    assert cancel.wait(60.0) is True


def test_all_threads_that_wait_are_woken() -> None:
    cancel, results = Cancellation(), list[bool]()
    sleepers = [threading.Thread(target=lambda: results.append(cancel.wait(60.0))) for _ in range(3)]
    for sleeper in sleepers:
        sleeper.start()
    cancel.cancel()
    for sleeper in sleepers:
        sleeper.join()
    assert results == [True] * 3
