"""Replication and checkpoints on the command line: which job the options stand for, and what people are told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.cli.commands.train import job_fields
from psplatform.cli.main import cli
from psplatform.cli.progress import ProgressLine
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.replication import Bounded, Chain, NoReplication
from psplatform.replication.stores.store import create_run
from psplatform.telemetry.log.writer import EventLog
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.words import one_line, protection_rows, survival_text

Command = Callable[..., Any]

LOST = "shard 0: server lost (closed connection), replica promoted in 0.08 s; 3 updates lost, distance <= 0.12 of 0.5"
KEPT = "bounded: 1 copy of each server, sent by the server, within a distance of 0.5 (at most 0.25 seen)"
COPY = {"kind": "copy", "at": 0.6, "shard": 0, "copy": "server-0-2", "process": "tcp://b:1", "event": "in sync"}
CHECKPOINTS = tuple(
    {"kind": "checkpoint", "at": 0.5 + 0.1 * number, "number": number, "version": 10 * number, "event": event}
    | {"seconds": 0.25, "bytes": 1_500_000, "reason": reason}
    for number, event, reason in [(1, "complete", ""), (2, "failed", "no space left"), (3, "abandoned", "failover")]
)


def job_of(*arguments: str) -> Job:
    """Return the job that a command line of ``train`` stands for."""
    command = cli.get_command(None, "train")  # type: ignore[arg-type]  # it needs no context
    assert command is not None
    given = command.make_context("train", list(arguments)).params
    return Job(**job_fields(given["what"], given))


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(f"workload: mlp\n{text}")
        return str(path)

    return write


@pytest.fixture
def protected(
    records: Any, promoted: Callable[..., dict[str, Any]], taken_over: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the log of a run in which much was lost and saved."""
    described, *others = records
    rules = {"replication": Bounded(max_divergence=0.5).to_plain(), "checkpoints": Checkpoints(200).to_plain()}
    events = (
        {**COPY, "reason": "caught up"},
        {"kind": "applied", "at": 0.6, "position": 1, "version": 1, "visible_s": 0.0, "divergence": 0.25, "lag": 2},
        promoted(at=0.7),
        {"kind": "resumed", "at": 0.8, "role": "server", "shard": 0, "epoch": 2, "first_commit_seconds": 0.15},
        taken_over(at=0.7),
        {"kind": "protection", "at": 0.8, "shards": [0]},
        *CHECKPOINTS,
    )
    return [{**described, **rules}, *others[:-1], *events, others[-1]]


def summary_of(records: Any) -> dict[str, Any]:
    view = RunView()
    for record in records:
        view.apply(record)
    return view.to_summary()


def in_words(text: str) -> str:
    """Undo the breaks of a narrow table."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("flags", "replication"),
    [
        ("--replication none", NoReplication()),
        ("--replication chain --replicas 2 --on-replica-loss pause", Chain(replicas=2, on_replica_loss="pause")),
        ("--on-isolation continue", Bounded(on_isolation="continue")),
        ("--replication bounded --max-divergence 0.5", Bounded(max_divergence=0.5)),
        ("--max-divergence 4updates", Bounded(max_divergence=4, unit="updates")),
        ("--max-divergence 4u --replication-target store", Bounded(max_divergence=4, unit="updates", target="store")),
        ("--replication-source workers", Bounded(source="workers")),
    ],
)
def test_flags_describe_the_replication(flags: str, replication: Any) -> None:
    job = job_of("digits", *flags.split())
    assert (job.replication, job.replication_asked) == (replication, True)


@pytest.mark.parametrize(
    ("flags", "checkpoints"),
    [
        ("--checkpoint-every 200", Checkpoints(200)),
        ("--checkpoint-every 10s --keep-checkpoints 5", Checkpoints(every_seconds=10, keep=5)),
        ("--checkpoint-every none", Checkpoints.never()),
        ("--keep-checkpoints 1", Checkpoints(keep=1)),
    ],
)
def test_flags_describe_the_checkpoints(flags: str, checkpoints: Checkpoints) -> None:
    assert job_of("digits", *flags.split()).checkpoints == checkpoints


def test_without_a_word_a_run_is_protected_as_far_as_the_cluster_allows() -> None:
    job = job_of("digits")
    assert (job.replication, job.replication_asked, job.checkpoints) == (Bounded(), False, Checkpoints())


@pytest.mark.parametrize(
    ("text", "replication", "checkpoints"),
    [
        ("replication: chain\ncheckpoints: 200", Chain(), Checkpoints(200)),
        ("replication: none\ncheckpoints: none", NoReplication(), Checkpoints.never()),
        ("replication: {max_divergence: 8updates}\ncheckpoints: 10s", Bounded(), Checkpoints(every_seconds=10)),
        (
            "replication: {mode: bounded, max_divergence: 0.5}\ncheckpoints: {every: 50, keep: 1}",
            Bounded(max_divergence=0.5),
            Checkpoints(50, keep=1),
        ),
        ("replication:\ncheckpoints:", Bounded(), Checkpoints()),
    ],
)
def test_a_job_file_says_it_in_the_same_words(
    job_file: Callable[[str], str], text: str, replication: Any, checkpoints: Any
) -> None:
    job = job_of(job_file(text))
    assert (job.replication, job.checkpoints) == (replication, checkpoints)


def test_flags_override_a_job_file_option_by_option(job_file: Callable[[str], str]) -> None:
    path = job_file("replication: {unit: updates, max_divergence: 4, replicas: 2}\ncheckpoints: {every: 50, keep: 1}")
    assert job_of(path, "--max-divergence", "0.5").replication == Bounded(max_divergence=0.5, replicas=2)
    assert job_of(path, "--replicas", "3").replication == Bounded(max_divergence=4, unit="updates", replicas=3)
    assert job_of(path, "--checkpoint-every", "5s").checkpoints == Checkpoints(every_seconds=5, keep=1)
    assert job_of(path, "--checkpoint-every", "none").checkpoints == Checkpoints.never()
    assert job_of(path, "--keep-checkpoints", "2").checkpoints == Checkpoints(50, keep=2)


def test_another_mode_on_the_command_line_drops_the_files_settings(job_file: Callable[[str], str]) -> None:
    """They are settings of the mode that the file names."""
    path = job_file("replication: {mode: bounded, max_divergence: 0.5, replicas: 2}")
    assert job_of(path, "--replication", "chain").replication == Chain()
    assert job_of(path, "--replication", "bounded").replication == Bounded(max_divergence=0.5, replicas=2)
    assert job_of(job_file("replication: chain"), "--replicas", "2").replication == Chain(replicas=2)
    assert job_of(job_file("checkpoints: 50"), "--keep-checkpoints", "2").checkpoints == Checkpoints(50, keep=2)


@pytest.mark.parametrize("command", ["train", "simulate"])
def test_both_commands_know_the_options(psplatform: Command, command: str) -> None:
    told = psplatform(command, "--help").output
    for option in ("--replication", "--max-divergence", "--replicas", "--checkpoint-every", "--keep-checkpoints"):
        assert option in told


def test_a_failover_and_a_failed_checkpoint_get_a_line_each_and_once(
    capsys: pytest.CaptureFixture[str], protected: list[dict[str, Any]]
) -> None:
    with ProgressLine() as line:
        line.summary(summary_of(protected[:3]))
        line.summary(summary_of(protected))
        line.summary(summary_of(protected))
    told = [
        text.partition("into the run: ")[2] for text in capsys.readouterr().err.splitlines() if "into the run" in text
    ]
    assert told == [
        LOST,
        "coordinator lost (silent for 1.2 s), standby took over in 0.20 s (term 2)",
        "checkpoint 2 of version 20 failed: no space left",
    ]


def test_the_progress_line_names_unprotected_shards(protected: list[dict[str, Any]]) -> None:
    assert one_line(summary_of(protected)).endswith("unprotected shard 0")
    assert "unprotected" not in one_line(summary_of(protected[:3]))


SURVIVES = {"kind": "survives", "at": 9.0, "what": "any one process", "why": "shard 0 is on one host (a)"}


def test_the_progress_line_says_what_loss_is_survived(protected: list[dict[str, Any]]) -> None:
    assert one_line(summary_of([*protected[:3], SURVIVES])).endswith("survives any one process")
    assert "survives" not in one_line(summary_of([*protected, SURVIVES])), "unprotected shards are named instead"


@pytest.mark.parametrize(
    ("what", "why", "text"),
    [
        ("any one process", "shard 0 is on one host (a)", "the loss of any one process (shard 0 is on one host (a))"),
        ("any one host", "", "the loss of any one host"),
        ("nothing", "the coordinator has no standby", "no loss (the coordinator has no standby)"),
    ],
)
def test_a_run_that_goes_on_says_what_loss_it_survives_and_why_no_larger_one(what: str, why: str, text: str) -> None:
    summary = {"outcome": None, "survives": {"what": what, "why": why, "since": 1.0}}
    assert survival_text(summary) == survival_text({**summary, "state": "live"}) == text
    assert survival_text({**summary, "outcome": "stopped"}) == ""
    assert survival_text({**summary, "state": "recoverable"}) == "", "its cluster is gone"
    assert survival_text({"outcome": None, "survives": None}) == ""


def test_the_end_tells_what_was_protected_and_how(protected: list[dict[str, Any]]) -> None:
    assert protection_rows(summary_of(protected)) == [
        (
            "replication",
            f"{KEPT}; shard 0 without a copy in sync",
        ),
        ("failover", f"0.7 s: {LOST}; first commit after 0.15 s"),
        (
            "failover",
            "0.7 s: coordinator lost (silent for 1.2 s), standby took over in 0.20 s (term 2); no commit since",
        ),
        ("fencing", "term 2, shard 0 in epoch 2"),
        ("checkpoints", "1 complete, one every 200 updates; the newest at version 10; 1 failed; 1 abandoned"),
    ]


def test_a_bound_below_every_step_is_told_at_once_and_at_the_end(
    capsys: pytest.CaptureFixture[str], protected: list[dict[str, Any]]
) -> None:
    """In a row of its own, so that later incidents cannot hide it."""
    record = {"kind": "beyond bound", "at": 0.6, "shard": 0, "version": 1, "step": 0.75, "bound": 0.5}
    summary = summary_of([*protected[:3], record])
    with ProgressLine() as line:
        line.summary(summary)
    said = "the step to version 1 was 0.75 long on shard 0, more than its part of max_divergence, 0.5"
    assert f"0.6 s into the run: {said}" in capsys.readouterr().err
    assert [text.partition(": ")[0] for name, text in protection_rows(summary) if name == "replication"][1:] == [said]


def test_a_store_that_takes_no_replica_is_told_at_once(
    capsys: pytest.CaptureFixture[str], protected: list[dict[str, Any]]
) -> None:
    """Training waits for it, and nothing else would say why."""
    text = "shard 0: training waits for its replica in the store: the disk is full"
    with ProgressLine() as line:
        line.summary(summary_of([*protected[:3], {"kind": "cold replica", "at": 0.6, "text": text}]))
    assert f"0.6 s into the run: {text}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("replication", "checkpoints", "rows"),
    [
        (
            NoReplication(),
            Checkpoints.never(),
            ["none: what a server has learned since the last checkpoint is lost with it", "0 complete, none asked for"],
        ),
        (
            Chain(replicas=2, source="workers"),
            Checkpoints(200, 10),
            [
                "chain: 2 copies of each server, sent by the workers, no visible update lacking",
                "0 complete, one every 200 updates or 10 s",
            ],
        ),
        (
            Bounded(target="store"),
            Checkpoints(),
            ["bounded: 1 copy in the store, at most 8 updates behind", "0 complete, one every 30 s"],
        ),
    ],
)
def test_each_way_of_protection_is_told_in_words(
    records: Any, replication: Any, checkpoints: Checkpoints, rows: list[str]
) -> None:
    described = {**records[0], "replication": replication.to_plain(), "checkpoints": checkpoints.to_plain()}
    log = [described, {**COPY, "reason": "caught up"}, *records[1:]]
    assert [text for _, text in protection_rows(summary_of(log))] == rows


def test_copies_that_were_asked_for_and_never_made_are_not_boasted_of(records: Any) -> None:
    described = {**records[0], "replication": Chain().to_plain()}
    ((_, text),) = protection_rows(summary_of([described, *records[1:]]))
    assert text == "chain: 1 copy of each server, sent by the server, no visible update lacking; no copy was made"


def test_a_log_of_an_earlier_version_tells_nothing_of_protection(records: Any) -> None:
    assert protection_rows(summary_of(records)) == []


def test_runs_shows_failovers_terms_epochs_and_failed_checkpoints(
    psplatform: Command, tmp_path: Path, protected: list[dict[str, Any]]
) -> None:
    """Read from the log of a run, whether or not anything else is left of it."""
    create_run(str(tmp_path / "one.zarr"), {"run": "digits-bsp-1a2b3c"})
    with EventLog(str(tmp_path / "one.zarr"), 1) as log:
        for record in protected:
            log.buffer(record)
    result = psplatform("runs", str(tmp_path / "one.zarr"))
    assert result.exit_code == 0, result.output
    told = in_words(result.output)
    assert LOST in told
    assert "term 2, shard 0 in epoch 2" in told
    assert "checkpoint 2 of version 20 failed: no space left" in told
