"""What is recorded of a run, and that nothing is where nobody has asked for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from psplatform.core.protocol.effects import Compute, Publish, Send, Serve
from psplatform.core.protocol.messages import Announce, BatchAssignment, Contribution, Label, Pulled
from psplatform.core.shards.server import Server
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.store import recording as module
from psplatform.runtime.store.recording import (
    HISTORY,
    CopyHistory,
    LogHistory,
    Recorder,
    WorkerHistory,
    digest,
    recording_settings,
)
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, shard_vectors

Records = Callable[[], list[dict[str, Any]]]

KILLED = """
import os, signal
from psplatform.runtime.store.recording import Recorder
recorder = Recorder()
recorder.begin("run", "copy", "server-0")
recorder.note("publish", position=1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Record in a folder; return what reads everything there."""
    monkeypatch.setenv(HISTORY, str(tmp_path))

    def read() -> list[dict[str, Any]]:
        texts = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    return read


@pytest.fixture
def program() -> Any:
    return cast(Any, SimpleNamespace(run="run", term=1, plan=SimpleNamespace(shards=2)))


@pytest.fixture
def shard(layout: Layout) -> Any:
    """Stands for a shard's arithmetic: what it shows is its whole state."""
    vectors = shard_vectors(layout, 0, allocate(layout))
    return SimpleNamespace(index=0, front=vectors, state=lambda: vectors)


def test_without_a_folder_nothing_is_recorded_or_computed(
    program: Any, shard: Any, layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(HISTORY, raising=False)
    monkeypatch.setattr(module, "digest", pytest.fail)
    monkeypatch.chdir(tmp_path)
    copy, worker = CopyHistory(), WorkerHistory()
    copy.begin(program, "server-0", shard, Server(0))
    copy.staged(1, 1)
    copy.shown(Publish(1, 1), Server(0))
    worker.begin(program, "w", layout.shards, Parameters(layout))
    worker.pulled(Pulled(0, 1, 1, 1))
    worker.does(Compute(0, 1, None))
    LogHistory(1).note("run", {"kind": "commit"})
    assert list(tmp_path.iterdir()) == []
    assert recording_settings() == {}


def test_what_a_killed_process_has_recorded_is_there(records: Records) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=240)
    assert done.returncode == -signal.SIGKILL
    assert [one["kind"] for one in records()] == ["began", "publish"]


def test_a_record_says_when_and_the_first_one_who_and_on_whose_clock(records: Records) -> None:
    recorder = Recorder()
    recorder.begin("a/run", "copy", "server-0", shard=3)
    recorder.note("publish", at=12.5, position=1)
    recorder.close()
    recorder.note("publish", position=2)
    began, publish = records()
    assert (began["run"], began["role"], began["name"], began["shard"]) == ("a/run", "copy", "server-0", 3)
    assert began["pid"] == os.getpid()
    assert began["clock"]
    assert (publish["at"], publish["position"]) == (12.5, 1)


def test_a_copy_tells_what_it_staged_and_showed_with_its_content(program: Any, shard: Any, records: Records) -> None:
    copy, server = CopyHistory(), Server(0, name="server-0")
    copy.begin(program, "server-0", shard, server)
    copy.gathered((Contribution("w", 2, 7),))
    next(iter(shard.front.values())).fill_(1.0)
    copy.staged(1, 1)
    copy.shown(Publish(1, 1), server)
    copy.shown(Serve(2, 1), server)
    copy.answered("w", Pulled(0, 4, 1, 1), 5.0)
    copy.close()
    _, stands, staged, publish, serves, answered = records()
    assert (stands["kind"], stands["position"], stands["version"]) == ("stands", 0, 0)
    assert (staged["kind"], staged["applied"], staged["epoch"]) == ("staged", [[2, 7, "w"]], 1)
    assert (publish["kind"], publish["in_sync"], publish["lag"]) == ("publish", {}, 0)
    assert stands["digest"] != staged["digest"] == publish["digest"] == serves["digest"]
    assert (answered["member"], answered["version"], answered["at"]) == ("w", 1, 5.0)


def test_a_worker_tells_what_it_pulled_computed_and_announced(program: Any, layout: Layout, records: Records) -> None:
    values = allocate(layout)
    worker = WorkerHistory()
    worker.begin(program, "w", layout.shards, Parameters(layout, values))
    worker.pulled(Pulled(1, 1, 4, 2))
    worker.does(Compute(3, 8, BatchAssignment(1, 5)))
    announce = Announce("w", 8, Label((4, 4), (1, 2)), 4, 0.5, 1.0, 0.1, 0.1, 0.1, 0.1)
    worker.does(Send(cast(Any, None), announce))
    worker.close()
    _, pulled, computes, announced = records()
    assert (pulled["shard"], pulled["version"], pulled["epoch"]) == (1, 4, 2)
    assert pulled["digest"] == computes["digests"][1] == digest(shard_vectors(layout, 1, values))
    assert (computes["slot"], computes["sequence"], computes["ticket"]) == (3, 8, [1, 5])
    assert (announced["slot"], announced["versions"], announced["epochs"]) == (3, [4, 4], [1, 2])


def test_of_the_log_it_is_told_what_was_decided_or_is_lost(records: Records) -> None:
    log = LogHistory(4)
    log.note("run", {"kind": "gradient", "slot": 0})
    log.note("run", {"kind": "lost positions", "shard": 0})
    began, said = records()
    assert (began["role"], began["term"]) == ("coordinator", 4)
    assert said["record"] == {"kind": "lost positions", "shard": 0}


def test_any_bit_changes_a_digest_and_much_content_is_digested_now_and_then() -> None:
    small = {"a": torch.zeros(4), "b": torch.zeros(3, dtype=torch.bfloat16)}
    before = digest(small)
    small["b"][2] = 1.0
    assert before != digest(small)
    large = {"a": torch.zeros(1 << 19)}
    assert [digest(large, position) is None for position in (15, 16)] == [True, False]
    assert digest(large) is None


def test_processes_of_an_embedded_cluster_record_in_the_same_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HISTORY, "history")
    assert recording_settings() == {HISTORY: str(tmp_path / "history")}
