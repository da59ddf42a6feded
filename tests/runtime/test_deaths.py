"""What is known of how a process ended: what its nanny's log says, and what nothing tells."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.client.clusters.ports import free_port
from psplatform.errors import ClusterError, ProcessDied
from psplatform.runtime.pools.deaths import Death, death_of, died, read_log
from psplatform.runtime.timeouts import TIMEOUTS

ADDRESS, NANNY, PID = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", 123
EXITED = "distributed.nanny - INFO - Worker process 123 exited with status 3"
KILLED = "distributed.nanny - INFO - Worker process 123 was killed by signal 11"
UNKNOWN = "distributed.nanny - INFO - Worker process 123 was killed by unknown signal"
ORDERED = "distributed.nanny - INFO - Worker process 123 was killed by signal 15"
TOO_LARGE = (
    "distributed.nanny.memory - WARNING - Worker tcp://127.0.0.1:1 (pid=123) exceeded 95% memory budget. Restarting..."
)
OTHER = "distributed.nanny - INFO - Worker process 1234 exited with status 1"


@pytest.mark.parametrize(
    ("entries", "said", "kind"),
    [
        ([EXITED], "ended with exit code 3", "exit code 3"),
        ([KILLED], r"was killed by SIGSEGV \(segmentation fault\)", "SIGSEGV"),
        ([ORDERED, TOO_LARGE], "was ended by its nanny for using more than 95 % of its memory limit", "memory limit"),
        ([OTHER, KILLED.replace("11", "9")], r"was killed by SIGKILL \(most likely by the kernel", "SIGKILL"),
        ([KILLED.replace("11", "99")], "was killed by signal 99", "signal 99"),
        ([UNKNOWN], "ended with exit code 255", "exit code 255"),
    ],
)
def test_a_nannys_log_tells_how_its_process_ended(entries: list[str], said: str, kind: str) -> None:
    death = read_log(entries, ADDRESS, PID)
    assert death is not None
    error = died(death, "a first gradient was tried")
    assert isinstance(error, ProcessDied)
    with pytest.raises(ProcessDied, match=rf"^{ADDRESS} \(process 123\) {said}.* while a first gradient was tried; "):
        raise error
    assert (error.kind, error.peer, error.pid, error.code) == (kind, ADDRESS, PID, death.code)


def test_a_process_that_was_asked_to_end_is_not_the_users_mistake() -> None:
    death = read_log([ORDERED], ADDRESS, PID)
    assert death is not None
    assert death.is_ordered
    error = died(death, "a first gradient was tried")
    assert isinstance(error, ClusterError)
    assert "SIGTERM" in str(error)


def test_the_end_of_another_process_says_nothing() -> None:
    """Nannies of one program share a log."""
    assert read_log([OTHER, TOO_LARGE], ADDRESS, PID) is None


CAME: dict[str, Any] = {"action": "add-worker"}
CLOSES: dict[str, Any] = {"action": "closing-worker", "reason": "scheduler-restart"}
LEFT: dict[str, Any] = {"action": "remove-worker", "expected": False}


def asked(address: str, nanny: str, answers: list[Any], events: Any = (CAME, CLOSES, LEFT)) -> Any:
    async def get_logs(n: int) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [("INFO", text) for text in answer]

    async def told(topic: str) -> Any:
        if isinstance(events, Exception):
            raise events
        return [(0.0, event) for event in events]

    scheduler = SimpleNamespace(events=told)
    client: Any = SimpleNamespace(rpc=lambda _: SimpleNamespace(get_logs=get_logs), scheduler=scheduler)
    return death_of(client, address, nanny, PID)


@pytest.fixture
def gone() -> str:
    """Return an address at which no process listens."""
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def there() -> Iterator[str]:
    """Return an address at which a process listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield f"tcp://127.0.0.1:{one.getsockname()[1]}"


def test_a_nanny_is_asked_until_it_has_seen_the_end(gone: str) -> None:
    death = asyncio.run(asked(gone, NANNY, [[OTHER], [OTHER], [KILLED]]))
    assert death == Death(gone, PID, -signal.SIGSEGV, has_nanny=True)


def test_an_end_without_a_nanny_may_have_been_asked_for(gone: str) -> None:
    """A SIGTERM to `dask worker --no-nanny` and a crash look the same from outside."""
    death = asyncio.run(asked(gone, "", [OSError("not asked")], [CAME, LEFT]))
    assert death == Death(gone, PID)
    said = "ended while a first gradient was tried; it was asked to end or it crashed, and it has no nanny that could"
    with pytest.raises(ClusterError, match=said) as caught:
        raise died(death, "a first gradient was tried")
    assert not isinstance(caught.value, ProcessDied)


@pytest.mark.parametrize(
    "events",
    [[CAME, LEFT], [CAME, CLOSES, LEFT, CAME, LEFT], [LEFT, "a text of a plugin"]],
    ids=["once", "after one that closed", "among foreign events"],
)
def test_a_process_that_left_unannounced_died_by_itself_though_its_nanny_says_nothing(
    gone: str, monkeypatch: pytest.MonkeyPatch, events: list[Any]
) -> None:
    """A nanny says nothing of exit code 0, nor of any end where the log level is above INFO."""
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.2))
    death = asyncio.run(asked(gone, NANNY, [[OTHER]], events))
    assert death == Death(gone, PID, has_nanny=True, unannounced=True)
    said = r"ended without a word \(exit code 0, or a log level above INFO hides how\) while it trained; look for what"
    with pytest.raises(ProcessDied, match=said) as caught:
        raise died(death, "it trained")
    assert (caught.value.kind, caught.value.code) == ("unknown", None)


def test_a_memory_limit_is_told_where_the_log_level_hides_the_end(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning of the limit is a level above what says that the process ended."""
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.2))
    death = asyncio.run(asked(gone, NANNY, [[TOO_LARGE]], [CAME, LEFT]))
    assert death == Death(gone, PID, over_percent=95, has_nanny=True)
    with pytest.raises(ProcessDied, match="was ended by its nanny for using more than 95 % of its memory limit while"):
        raise died(death, "it trained")


@pytest.mark.parametrize(
    "events",
    [[CAME, CLOSES, LEFT], [CAME, {**LEFT, "expected": True}], [CAME, LEFT, CAME], [], OSError("gone")],
    ids=["it closed", "it was retired", "it is there", "nothing is known", "the scheduler is gone"],
)
def test_a_process_that_was_not_seen_to_leave_unannounced_is_not_the_users_mistake(
    gone: str, monkeypatch: pytest.MonkeyPatch, events: Any
) -> None:
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.2))
    death = asyncio.run(asked(gone, NANNY, [[OTHER]], events))
    assert death == Death(gone, PID, has_nanny=True)


@pytest.mark.parametrize("answer", [OSError("gone as well"), [OTHER]])
def test_a_process_whose_nanny_says_nothing_of_its_end_may_have_been_asked_to(
    gone: str, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """A nanny says nothing of a process that closes in good order, nor if it has ended as well."""
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.2))
    death = asyncio.run(asked(gone, NANNY, [answer]))
    assert death == Death(gone, PID, has_nanny=True)
    with pytest.raises(ClusterError, match="ended while a first gradient was tried; start the run again; if it"):
        raise died(death, "a first gradient was tried")


def test_a_process_that_is_there_has_not_died(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.2))
    assert asyncio.run(asked(there, NANNY, [[OTHER]])) is None
