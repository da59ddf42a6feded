"""What tests of several packages use: records of the event log, and waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from psplatform.errors import PsplatformError
from psplatform.telemetry.log.reader import LogReader

MakeRecord = Callable[..., dict[str, Any]]

LIMIT_S: Final = 180.0
SHOWN_OF_A_LOG: Final = 40
EVERY_UPDATE: Final = ("start", "gradient", "commit", "applied")

# How long an example takes depends on what else this machine does.  All else is as hypothesis has it, here or in CI.
settings.register_profile("suite", settings.default, deadline=None)
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed how the event log of each run in its folder ends."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        report.sections += [(f"the log in {each} ends with", _end_of_log(each)) for each in folder.glob("*.zarr")]
    return report


def _end_of_log(store: Path) -> str:
    try:
        records = [record for records, _ in LogReader(str(store)).iter_from() for record in records]
    except PsplatformError as error:
        return f"cannot be read: {error}"
    rare = [record for record in records if record["kind"] not in EVERY_UPDATE]
    return "\n".join(str(record)[:400] for record in [*rare[-SHOWN_OF_A_LOG:], *records[-3:]])


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
