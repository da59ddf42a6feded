"""``psplatform train``: which job a command stands for, and how its end is told."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.errors import ConfigurationError, DivergedError, StoreError, UserCodeError
from psplatform.jobs.network import Fabric
from psplatform.jobs.optimizers import SGD, Adam, AdamW
from psplatform.replication.stores.store import create_run

Command = Callable[..., Any]

JOB = """
workload: mlp
options: {samples: 500}
policy: backup
policy_options: {k: 2}
workers: 3
optimizer: {name: sgd, lr: 0.5}
stop: {updates: 100, seconds: 60}
stragglers: "slow:chance=0.1,factor=4"
resources: {worker: {GPU: 1}}
scheduler: tcp://10.0.0.1:8786
"""


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the schedulers that are asked for instead of connecting to them."""
    schedulers: list[str] = []

    class FakeClient:
        def close(self) -> None:
            schedulers.append("closed")

    def connect(scheduler: str) -> FakeClient:
        schedulers.append(scheduler)
        return FakeClient()

    monkeypatch.setattr("psplatform.client.clusters.connecting.connect", connect)
    return schedulers


def test_a_workload_comes_with_settings_that_suit_it(psplatform: Command, launch: Any) -> None:
    """Learning rate, batch size and target are the workload's own; every run ends, reached or not."""
    assert psplatform("train", "digits").exit_code == 0
    (job,) = launch.jobs
    assert job.workload == "digits"
    assert job.policy == "bsp"
    assert job.optimizer == SGD(lr=0.02, momentum=0.8)
    assert job.batch_size == 32
    assert job.stop.target_accuracy == 0.97
    assert job.stop.epochs == 45
    assert launch.clients == [None]


def test_flags_of_the_optimiser_and_of_bad_batches_describe_the_job(psplatform: Command, launch: Any) -> None:
    flags = "--optimizer adamw --lr 0.01 --weight-decay 0.1 --bad-batches end"
    result = psplatform("train", "digits", *flags.split())
    assert result.exit_code == 0, result.output
    (job,) = launch.jobs
    assert job.optimizer == AdamW(lr=0.01, weight_decay=0.1)
    assert job.bad_batches == "end"


def test_flags_describe_the_job(psplatform: Command, launch: Any) -> None:
    flags = (
        "--policy ssp -o bound=5 --workers 4 --max-workers 6 --shards 3 --lr 0.1 --momentum 0.5 --batch-size 16 "
        "--sampling replacement --updates 50 --evaluate-every 10 --clip-norm 2 --schedule step --device cpu "
        "--transport comms --seed 9 --store somewhere --stragglers factors:1,2 "
        "--slow-servers shards=0,seconds=1,chance=1"
    )
    result = psplatform("train", "mlp", "-w", "samples=100", *flags.split())
    assert result.exit_code == 0, result.output
    (job,) = launch.jobs
    assert (job.policy, job.policy_options, job.options) == ("ssp", {"bound": "5"}, {"samples": "100"})
    assert (job.workers, job.max_workers, job.shards, job.batch_size) == (4, 6, 3, 16)
    assert job.optimizer == SGD(lr=0.1, momentum=0.5)
    assert (job.stop.updates, job.stop.epochs, job.stop.target_accuracy) == (50, None, None)
    assert (job.sampling, job.evaluate_every, job.clip_norm) == ("replacement", 10, 2.0)
    assert (job.device, job.transport, job.seed, job.store) == ("cpu", "comms", 9, "somewhere")
    assert job.stragglers.factors == (1.0, 2.0)
    assert job.slow_servers.seconds == 1.0


def test_a_flag_has_transfers_planned(psplatform: Command, launch: Any, tmp_path: Path) -> None:
    """A job file may say more of the plans, and the flag leaves that as it is."""
    file = tmp_path / "job.yaml"
    for network in ("{fabric: {tick_s: 0.5}}", "{}"):
        file.write_text(f"workload: digits\nnetwork: {network}\n")
        assert psplatform("train", str(file), "--fabric").exit_code == 0
    assert psplatform("train", "digits", "--fabric").exit_code == 0
    assert psplatform("train", "digits").exit_code == 0
    assert [job.network.fabric for job in launch.jobs] == [Fabric(0.5), Fabric(), Fabric(), None]


def test_a_job_file_describes_the_job(psplatform: Command, launch: Any, connected: list[str], job_file: str) -> None:
    """Where it runs included."""
    assert psplatform("train", job_file).exit_code == 0
    (job,) = launch.jobs
    assert (job.policy, job.policy_options, job.options) == ("backup", {"k": 2}, {"samples": 500})
    assert job.optimizer == SGD(lr=0.5)
    assert (job.stop.updates, job.stop.seconds) == (100, 60)
    assert job.stragglers.slow_factor == 4
    assert job.resources == {"worker": {"GPU": 1.0}}
    assert connected == ["tcp://10.0.0.1:8786", "closed"]


def test_a_job_that_is_refused_leaves_no_connection(
    psplatform: Command, connected: list[str], job_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would close it, and Dask would complain about it when the cluster ends."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise ConfigurationError("too few", field="workers")

    monkeypatch.setattr("psplatform.client.launch.train", refuse)
    monkeypatch.setattr("psplatform.client.runs.recovery.recover", refuse)
    store = str(tmp_path / "my.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    assert psplatform("train", job_file).exit_code == 2
    assert psplatform("recover", store, "--scheduler", "tcp://b:1").exit_code == 2
    assert connected == ["tcp://10.0.0.1:8786", "closed", "tcp://b:1", "closed"]


def test_flags_override_a_job_file(psplatform: Command, launch: Any, connected: list[str], job_file: str) -> None:
    """Field by field: what no flag speaks of stays as the file says."""
    result = psplatform(
        *("train", job_file, "--workers", "5", "--lr", "0.25", "--updates", "7", "-o", "busy=abort"),
        *("-w", "classes=4", "--scheduler", "tcp://10.0.0.2:1"),
    )
    assert result.exit_code == 0, result.output
    (job,) = launch.jobs
    assert job.workers == 5
    assert job.optimizer == SGD(lr=0.25)
    assert (job.stop.updates, job.stop.seconds) == (7, 60)
    assert job.policy_options == {"k": 2, "busy": "abort"}
    assert job.options == {"samples": 500, "classes": "4"}
    assert connected[0] == "tcp://10.0.0.2:1"


@pytest.mark.usefixtures("connected")
def test_another_policy_on_the_command_line_drops_the_files_options(
    psplatform: Command, launch: Any, job_file: str
) -> None:
    """They are parameters of the policy that the file names."""
    assert psplatform("train", job_file, "--policy", "ssp").exit_code == 0
    assert (launch.jobs[0].policy, launch.jobs[0].policy_options) == ("ssp", {})


def test_another_optimizer_on_the_command_line_can_be_named_alone(psplatform: Command, launch: Any) -> None:
    assert psplatform("train", "digits", "--optimizer", "adam").exit_code == 0
    assert launch.jobs[0].optimizer == Adam()


def test_another_optimizer_on_the_command_line_drops_the_files_settings(
    psplatform: Command, launch: Any, tmp_path: Path
) -> None:
    """They are parameters of the optimiser that the file names."""
    path = tmp_path / "job.yaml"
    path.write_text("workload: digits\noptimizer: {name: sgd, lr: 0.5, momentum: 0.9}")
    result = psplatform("train", str(path), "--optimizer", "adam")
    assert result.exit_code == 0, result.output
    assert launch.jobs[0].optimizer == Adam()


def test_the_end_is_told_to_people_as_a_table(psplatform: Command, launch: Any) -> None:
    result = psplatform("train", "digits")
    assert "updates (1 updates)" in result.stdout
    assert "0.5000 on held-out data" in result.stdout
    assert launch.run.closed


@pytest.mark.usefixtures("launch")
def test_the_end_is_told_to_scripts_as_one_json_object(
    psplatform: Command, last_json: Callable[[Any], dict[str, Any]]
) -> None:
    """On the last line of standard output; progress goes to standard error."""
    result = psplatform("train", "digits", "--json")
    summary = last_json(result)
    assert (summary["outcome"], summary["updates"], summary["accuracy"]) == ("updates", 1, 0.5)
    assert len(result.stdout.splitlines()) == 1
    assert "starting servers" in result.stderr


def test_each_step_of_starting_and_ending_is_told_once(psplatform: Command, launch: Any) -> None:
    launch.run.steps = ("placing servers", "placing servers", "loading the model", "saving the model")
    said = psplatform("train", "digits").stderr.splitlines()
    steps = [line.split("s  ", 1)[1] for line in said if line.endswith(" ...")]
    assert steps[-3:] == ["placing servers ...", "loading the model ...", "saving the model ..."]
    assert steps.count("placing servers ...") == 1


FULL = "cannot write log/1/0 to the store somewhere (No space left on device); free or mend it"


def test_what_the_store_refuses_is_told_at_the_end(psplatform: Command, launch: Any) -> None:
    """Who trusts the store afterwards must know what it lacks; without trouble there is no such row."""
    assert "trouble" not in psplatform("train", "digits").stdout
    launch.run.trouble = FULL
    told = " ".join(psplatform("train", "digits").stdout.split())
    assert told.endswith(f"trouble the store lacks the last records of the log, or how the run ended: {FULL}")


def test_what_waits_in_memory_is_told_to_whoever_leaves_a_run(
    psplatform: Command, launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.run.trouble, launch.run.records, launch.run.interrupts = FULL, launch.run.records[:-1], 1
    monkeypatch.setattr("psplatform.client.runs.attaching.attach", lambda run, client: launch.run)
    told = " ".join(psplatform("attach", "digits-bsp-1a2b3c").stdout.split())
    assert told.endswith(f"trouble the store lacks the latest records of the log, which wait in memory: {FULL}")


def test_scripts_are_told_what_the_store_refuses(
    psplatform: Command, launch: Any, last_json: Callable[[Any], dict[str, Any]]
) -> None:
    assert "trouble" not in last_json(psplatform("train", "digits", "--json"))
    launch.run.trouble = FULL
    assert last_json(psplatform("train", "digits", "--json"))["trouble"] == FULL


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (DivergedError("not finite", slot=0, version=3, loss=float("nan")), 1),
        (UserCodeError("boom", kind="ValueError", user_traceback="Traceback\n  in model"), 1),
        (ConfigurationError("the task cannot be trained there", field="model"), 2),
        (StoreError("its store was removed", store="run.zarr"), 1),
    ],
)
def test_a_run_that_fails_is_told_with_what_it_reached(
    psplatform: Command, launch: Any, last_json: Callable[[Any], dict[str, Any]], failure: Any, code: int
) -> None:
    """Why on standard error, and in the JSON object beside the summary; the exit code says whose fault it is."""
    launch.run.failure = failure
    result = psplatform("train", "digits", "--json")
    assert result.exit_code == code
    assert last_json(result)["error"] == str(failure)
    assert last_json(result)["updates"] == 1
    assert f"Error: {failure}" in result.stderr
    assert launch.run.closed


def test_the_first_interrupt_stops_the_run_in_good_order(psplatform: Command, launch: Any) -> None:
    """Ctrl-C keeps what was reached: the run is stopped and waited for, and its summary is shown."""
    launch.run.interrupts = 1
    result = psplatform("train", "digits")
    assert launch.run.stopped == ["interrupted at the keyboard"]
    assert "updates (1 updates)" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [("train", "digits"), ("demo",)])
def test_a_signal_that_asks_the_program_to_end_stops_the_run_in_good_order(
    psplatform: Command, launch: Any, number: signal.Signals, command: tuple[str, ...]
) -> None:
    """As batch systems, containers and `timeout` end programs; afterwards it ends the program as usual again."""
    launch.run.interrupts, launch.run.signal = 1, number
    before = signal.signal(number, signal.SIG_DFL)  # under nohup one of them is ignored
    try:
        result = psplatform(*command)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert launch.run.stopped == [f"interrupted by {number.name}"]
    assert "updates (1 updates)" in result.stdout


def test_a_signal_that_is_to_be_ignored_is_ignored(psplatform: Command, launch: Any) -> None:
    """As `nohup` has it."""
    launch.run.interrupts, launch.run.signal = 1, signal.SIGHUP
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert psplatform("train", "digits").exit_code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert launch.run.stopped == []


@pytest.mark.parametrize(
    ("options", "advice", "remedy"),
    [
        ((), "end it without saving", "ended with its cluster: psplatform recover run.zarr"),
        (("--scheduler", "tcp://10.0.0.1:8786"), "leave the run alone", "is left alone: psplatform attach run.zarr"),
    ],
)
@pytest.mark.usefixtures("connected")
def test_the_second_interrupt_leaves(
    psplatform: Command, launch: Any, options: tuple[str, ...], advice: str, remedy: str
) -> None:
    """What becomes of the run is said before, and what to do with it after."""
    launch.run.interrupts = 2
    result = psplatform("train", "digits", *options)
    assert result.exit_code == 1
    assert f"press Ctrl-C again to {advice}" in result.stderr
    assert remedy in result.stderr
    assert launch.run.closed
    assert launch.run.stop_within_s == 0.0, "closing it does not wait for it again"


def test_the_demo_needs_no_argument(psplatform: Command, launch: Any) -> None:
    """Three workers, two shards, one backup worker, and stragglers."""
    assert psplatform("demo").exit_code == 0
    (job,) = launch.jobs
    assert (job.workload, job.policy, job.workers, job.shards) == ("digits", "backup", 3, 2)
    assert job.stragglers is not None


def test_the_demo_ends_with_checkpoints_to_go_on_from(psplatform: Command, launch: Any) -> None:
    """It takes some ten seconds: every 30 s, as usual, would be never."""
    assert psplatform("demo").exit_code == 0
    assert launch.jobs[0].checkpoints.every_seconds == 3
