"""The command line in this process, with nothing behind it that starts a cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from psplatform.cli.main import cli
from psplatform.errors import PsplatformError
from psplatform.jobs.job import Job
from psplatform.telemetry.read_model import RunView

Command = Callable[..., Result]

RECORDS: tuple[dict[str, Any], ...] = (
    {
        "kind": "run",
        "at": 0.0,
        "run": "digits-bsp-1a2b3c",
        "workload": "digits",
        "policy": "bsp",
        "policy_parameters": {},
        "workers": 1,
        "shards": 1,
        "seed": 0,
        "store": "somewhere",
    },
    {"kind": "joined", "at": 0.1, "slot": 0, "incarnation": 1, "process": "tcp://a:1 pid 7", "clock": 0},
    {
        "kind": "commit",
        "at": 0.5,
        "position": 1,
        "version": 1,
        "versions": 1,
        "slots": [0],
        "sequences": [1],
        "staleness": [0],
        "loss": 2.5,
        "rate": 1.0,
        "duration_s": 0.2,
        "reason": "all live workers are in",
    },
    {
        "kind": "finished",
        "at": 1.0,
        "outcome": "updates",
        "detail": "1 updates",
        "version": 1,
        "loss": 2.25,
        "accuracy": 0.5,
        "seconds": 0.9,
    },
)


@pytest.fixture
def records() -> tuple[dict[str, Any], ...]:
    """Return the log of a short run."""
    return RECORDS


@pytest.fixture
def psplatform() -> Command:
    """Run the command line with these arguments."""
    return lambda *arguments: CliRunner().invoke(cli, arguments)


@pytest.fixture
def refused(psplatform: Command) -> Callable[..., str]:
    """Run the command line with arguments that it must refuse; return the one sentence it says."""

    def run(*arguments: str) -> str:
        result = psplatform(*arguments)
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        said = result.output[result.output.index("Error: ") :].removeprefix("Error: ").rstrip("\n")
        assert "\n" not in said
        return said

    return run


@dataclass
class FakeRun:
    """A run that is over as soon as it is waited for, or fails, or is interrupted at the keyboard first.

    ``records`` is its log, and ``trouble`` what its store refuses.
    """

    store: ClassVar[str] = "run.zarr"

    failure: PsplatformError | None = None
    trouble: str = ""
    records: tuple[dict[str, Any], ...] = RECORDS
    interrupts: int = 0
    signal: signal.Signals | None = None  # which interrupts it instead of the keyboard
    stopped: list[str] = field(default_factory=list)
    closed: bool = False
    stop_within_s: float = 0.0
    steps: tuple[str, ...] = ()

    def wait(
        self,
        timeout_s: float | None = None,
        progress: Callable[[Any], None] = lambda summary: None,
        step: Callable[[str], None] = lambda text: None,
    ) -> Any:
        for text in self.steps:
            step(text)
        progress(self.metrics())
        if self.interrupts:
            self.interrupts -= 1
            if self.signal is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.signal)
            time.sleep(0.01)  # heeded at the latest then
        if self.failure is not None:
            raise self.failure
        return self.metrics()

    def metrics(self) -> dict[str, Any]:
        view = RunView()
        for record in self.records:
            view.apply(record)
        return view.to_summary()

    def status(self) -> dict[str, Any]:
        return {
            "phase": "over",
            "step": "",
            "summary": self.metrics(),
            "failure": self.failure,
            "trouble": self.trouble,
        }

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)

    def close(self, *, stop_within_s: float = 60.0) -> None:
        if not self.closed:
            self.stop_within_s = stop_within_s
        self.closed = True


@dataclass
class FakeLaunch:
    """Takes jobs instead of starting them."""

    run: FakeRun = field(default_factory=FakeRun)
    jobs: list[Job] = field(default_factory=list)
    clients: list[Any] = field(default_factory=list)

    def train(self, job: Job, client: Any = None, *, report: Callable[[str], None]) -> FakeRun:
        report("starting servers")
        self.jobs.append(job)
        self.clients.append(client)
        return self.run


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    """Let no job start; keep it to look at."""
    fake = FakeLaunch()
    monkeypatch.setattr("psplatform.client.launch.train", fake.train)
    return fake


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if anything is started."""
    started: list[object] = []
    monkeypatch.setattr("distributed.LocalCluster.__init__", lambda self, **options: started.append(options))
    yield
    assert started == []


@pytest.fixture
def last_json() -> Callable[[Result], dict[str, Any]]:
    """Read the one JSON object that a command ends with."""

    def read(result: Result) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return found

    return read
