"""Programs and a scheduler that only take what pages tell them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from psplatform.client import chaos
from psplatform.client.runs import programs
from psplatform.client.runs.listing import Listed, goes_on
from psplatform.client.runs.programs import Program
from psplatform.dashboard.cluster import FAULT, ClusterNews, Deed, Watched
from psplatform.runtime.comms.processes import ProcessId

SUMMARY = {
    "policy": "bsp",
    "virtual_seconds": 12.5,
    "reached_target": True,
    "updates": 40,
    "gradients": 90,
    "blocks": 1,
    "staleness": {"mean": 0.5, "max": 3},
    "dropped": {"total": 9},
    "waiting_fraction": 0.25,
    "evaluation_loss": 0.125,
    "accuracy": 0.97,
    "curve": [[1.0, 5, 0.9], [12.5, 40, 0.125]],
}


@dataclass
class FakePrograms:
    """Takes commands instead of starting them; each has ended at once, with what is prepared."""

    output: str = json.dumps(SUMMARY)
    errors: str = ""
    code: int = 0
    commands: list[list[str]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def start(self, arguments: Sequence[str], folder: str) -> Program:
        self.commands.append(list(arguments))
        self.jobs += [yaml.safe_load(Path(one).read_text()) for one in arguments if one.endswith(".yaml")]
        record = Path(folder) / f"{len(self.commands):020d}-fake.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        process = {"pid": 0, "began": 0, "host": "another boot"}
        command = ["python", "-m", "psplatform", *arguments]
        plain = {"command": command, "started": time.time(), "process": process, "returncode": self.code}
        record.write_text(json.dumps(plain))
        record.with_suffix(".out").write_text(self.output + "\n")
        record.with_suffix(".err").write_text(self.errors)
        return Program(record, tuple(command), time.time(), ProcessId(**process))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    found = FakePrograms()
    monkeypatch.setattr(programs, "start", found.start)
    return found


TARGETS = (
    chaos.Target("server-0", "server", "tcp://a:1"),
    chaos.Target("server-1", "server", "tcp://a:3"),
    chaos.Target("worker-0", "worker", "tcp://a:2"),
)


@dataclass
class FakeRun:
    stopped: list[str] = field(default_factory=list)

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)


@dataclass
class FakeCluster:
    """A scheduler that knows some runs."""

    live: Mapping[str, str] = field(default_factory=dict)
    run: FakeRun = field(default_factory=FakeRun)

    news: ClusterNews = field(default_factory=lambda: ClusterNews(None, "", None))
    deeds: list[Deed] = field(default_factory=list)
    trouble: str = ""
    slow: bool = False
    fault: Exception | None = None

    def await_answer(self, seconds: float) -> None:
        pass

    def knows(self, listed: Listed) -> bool:
        return goes_on(listed.run, listed.store, self.live)

    def watched(self, run: str) -> Watched:
        assert run in self.live
        return Watched(TARGETS, self.trouble)

    def begin(self, run: str, what: str, act: Callable[[Any], str], *, kind: str = FAULT) -> Deed:
        outcome: Future[str] = Future()
        if self.fault is not None:
            outcome.set_exception(self.fault)
        elif not self.slow:
            outcome.set_result(act(self.run))
        self.deeds.append(Deed(what, outcome))
        return self.deeds[-1]

    def deed(self, run: str) -> Deed | None:
        return self.deeds[-1] if self.deeds else None


@pytest.fixture
def scheduler(bench: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A scheduler that knows the run digits-a."""
    stores = {"digits-a": f"{bench.settings.folder}/digits-a.zarr", "elsewhere": "/far/away.zarr"}
    found = FakeCluster(stores)
    bench.settings = replace(bench.settings, scheduler="tcp://127.0.0.1:1")
    monkeypatch.setattr("psplatform.dashboard.pages.frame.cluster_at", lambda address: found)
    return found
