"""What tests of several packages use: records of the event log, and waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

MakeRecord = Callable[..., dict[str, Any]]

LIMIT_S: Final = 180.0


@pytest.fixture(scope="session", autouse=True)
def _records_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what programs note of their runs apart from what the user's own have noted."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PSPLATFORM_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def told_of_threads() -> None:
    """Skip where the kernel does not tell when threads end, by which the end of a process is seen at once."""
    try:
        os.close(os.pidfd_open(threading.get_native_id(), os.O_EXCL))
    except (OSError, AttributeError):
        pytest.skip("needs Linux 6.9, which tells when threads end")


@pytest.fixture(scope="session")
def promoted() -> MakeRecord:
    """Make the record of a replica of shard 0 that took over from its server, with some fields otherwise."""
    record = {
        "kind": "promoted",
        "at": 2.0,
        "role": "server",
        "shard": 0,
        "epoch": 2,
        "copy": "server-0-2",
        "process": "tcp://b:1",
        "signal": "closed connection",
        "detected_seconds": 0.01,
        "promoted_seconds": 0.08,
        "distance_lost": 0.12,
        "updates_lost": 3,
        "bound": 0.5,
        "unit": "norm",
    }
    return lambda **changes: record | changes


@pytest.fixture(scope="session")
def taken_over(promoted: MakeRecord) -> MakeRecord:
    """Make the record of a standby that took over from its coordinator, with some fields otherwise."""
    lost = {"distance_lost": None, "updates_lost": 0, "bound": None, "unit": None}
    when = {"signal": "silent for 1.2 s", "promoted_seconds": 0.2}
    return lambda **changes: promoted(role="coordinator", shard=-1, **lost | when | changes)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Wait until something holds; fail with words if it does not within the limit."""

    def wait(condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit_s:g} s: {what}")
            time.sleep(0.05)

    return wait
