"""The architectures on a cluster of real processes: their programs, and a server that is killed under `chain`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client

import psplatform as ps
from psplatform.telemetry.log.reader import LogReader

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]

ARCHITECTURES = ["gpt2", "bert_classifier", "resnet18", "lstm_text"]
UPDATES = 50
KILL_AT = 15
LIMIT_S = 180.0


@pytest.fixture
def printed(
    architecture: Callable[[str], Any],
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Run a program's `main` with the address of the cluster; return what it printed."""

    def run(name: str) -> str:
        example = architecture(name).example
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", [f"{name}.py", client.scheduler.address])
        monkeypatch.setattr(example, "Client", lambda address: client if address == client.scheduler.address else None)
        example.main()
        return capsys.readouterr().out

    return run


def test_gpt2_writes_a_sentence(printed: Callable[[str], str]) -> None:
    said = printed("gpt2")
    assert float(_found(r"held-out loss ([\d.]+)", said)) <= 0.4
    assert re.search(r"it writes: every (cat|dog|bird) (sees|likes|follows) (the|a) (fish|mouse)\.", said), said


def test_bert_classifies_texts(printed: Callable[[str], str]) -> None:
    assert float(_found(r"([\d.]+)% of other texts", printed("bert_classifier"))) > 90


def test_resnet18_reads_digits(printed: Callable[[str], str]) -> None:
    assert float(_found(r"accuracy ([\d.]+)", printed("resnet18"))) >= 0.95


def test_lstm_tells_whether_brackets_are_balanced(printed: Callable[[str], str]) -> None:
    assert float(_found(r"([\d.]+)% of other texts", printed("lstm_text"))) > 90


def log(run: ps.Run, kind: str) -> list[dict[str, Any]]:
    records = [record for records, _ in LogReader(run.store).iter_from() for record in records]
    return [record for record in records if record["kind"] == kind]


def finish_with_a_killed_server(run: ps.Run) -> dict[str, Any]:
    """Kill the process of the second server after 15 updates, once it has a replica; return the run's summary."""
    killed: list[int] = []

    def kill_once(summary: dict[str, Any]) -> None:
        if not killed and summary["updates"] >= KILL_AT and not summary["unprotected"]:
            killed.append(run.process_of("server-1"))
            os.kill(killed[0], signal.SIGKILL)

    return run.wait(LIMIT_S, progress=kill_once)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_killed_server_is_not_to_be_seen_in_what_is_learned(
    architecture: Callable[[str], Any],
    assert_alike: Callable[[Any, Any], None],
    client: Client,
    tmp_path: Path,
    name: str,
) -> None:
    """Each tensor, each loss of 50 updates and the held-out loss are those of a plain loop of PyTorch."""
    one = architecture(name)
    client.wait_for_workers(5, timeout=LIMIT_S)  # one may have been killed by the test before
    job = one.job_of(
        replication=ps.Chain(), stragglers="constant:seconds=0.06", store=str(tmp_path / "run.zarr"), server_lease_s=2
    )
    with ps.train(job, client) as run:
        summary = finish_with_a_killed_server(run)
        (promoted,) = log(run, "promoted")
        assert (promoted["role"], promoted["shard"], promoted["updates_lost"]) == ("server", 1, 0)
        commits = log(run, "commit")
        at = max(each["version"] for each in commits if each["at"] <= promoted["at"])
        assert KILL_AT <= at < UPDATES, "it was killed in the middle"
        pairs = [list(zip(each["slots"], each["sequences"], strict=True)) for each in commits]
        assert [sorted(slot for slot, _ in pair) for pair in pairs] == [[0, 1]] * UPDATES
        expected = one.plain(job, pairs)
        state = run.model().state_dict()
        saved, _ = run.parameters()
    losses = [each["loss"] for each in commits]
    assert_alike(type(expected)(state, losses, summary["evaluation_loss"]), expected)
    assert all(torch.equal(state[key], torch.from_numpy(array)) for key, array in saved.items())


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]
