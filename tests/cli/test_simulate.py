"""``psplatform simulate``: what it prints, what it draws, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from psplatform.core.policy import View
from psplatform.policies.asp import Asynchronous
from psplatform.policies.registry import policy_names
from psplatform.telemetry.read_model import RunView

pytestmark = pytest.mark.usefixtures("no_cluster")

Command = Callable[..., Result]
SMALL = ("mlp", "-w", "samples=100", "--workers", "3", "--batch-size", "8")
TIMES = (*SMALL, "--updates", "5", "--timing-only")


@pytest.fixture
def simulated(psplatform: Command, last_json: Callable[[Result], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Simulate with ``--json`` and return what is said."""

    def run(*arguments: str) -> dict[str, Any]:
        result = psplatform("simulate", *arguments, "--json")
        assert result.exit_code == 0, result.output
        return last_json(result)

    return run


ADDED = {"virtual_seconds", "reached_target", "events", "trace_sha256"}


def test_it_ends_with_the_object_of_train_and_what_only_a_simulation_knows(
    simulated: Callable[..., dict[str, Any]], records: tuple[dict[str, Any], ...]
) -> None:
    found = simulated(*SMALL, "--updates", "5", "--policy", "backup", "-o", "k=2")
    view = RunView()
    for record in records:
        view.apply(record)
    assert found.keys() >= view.to_summary().keys() | ADDED
    assert (found["policy"], found["policy_parameters"]["k"]) == ("backup", 2)
    assert (found["workers"], found["updates"], found["outcome"]) == (3, 5, "updates")
    assert found["virtual_seconds"] == pytest.approx(0.5)
    assert found["reached_target"] is None
    assert found["evaluation_loss"] > 0
    assert found["events"] > 5
    assert int(found["trace_sha256"], 16) > 0
    assert len(found["trace_sha256"]) == 64


def test_the_same_words_give_the_same_log_and_another_seed_another(simulated: Callable[..., dict[str, Any]]) -> None:
    words = (*SMALL, "--updates", "5", "--compute", "uniform:low=0.1,high=0.3")
    first, again, other = (simulated(*words, "--seed", seed)["trace_sha256"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_it_says_whether_a_target_was_reached(simulated: Callable[..., dict[str, Any]]) -> None:
    assert simulated(*SMALL, "--target-loss", "99")["reached_target"] is True
    assert simulated(*SMALL, "--target-loss", "0", "--updates", "3")["reached_target"] is False


def test_conditions_are_those_of_the_command_line(simulated: Callable[..., dict[str, Any]]) -> None:
    seconds = [
        simulated(*TIMES, *more)["virtual_seconds"]
        for more in (
            ("--compute", "constant:seconds=2"),
            ("--round-trip", "constant:seconds=3"),
            ("--network", "server:update=0.5"),
            ("--stragglers", "constant:seconds=4"),
        )
    ]
    assert seconds == [10, 15, pytest.approx(5 * (0.1 + 3 * 0.5)), 20]


def test_all_policies_are_compared(simulated: Callable[..., dict[str, Any]]) -> None:
    results = simulated(*TIMES, "--policy", "all")["results"]
    assert [one["policy"] for one in results] == policy_names()
    for one in results:
        assert one.keys() >= ADDED
        assert "error" not in one


def test_a_list_of_policies_is_compared(simulated: Callable[..., dict[str, Any]]) -> None:
    results = simulated(*TIMES, "--policy", "bsp, asp")["results"]
    assert [one["policy"] for one in results] == ["bsp", "asp"]


@pytest.fixture
def broken_asp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the policy `asp` raise when it learns."""

    def on_commit(self: Asynchronous, commit: object, view: View) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(Asynchronous, "on_commit", on_commit)


SENTENCE = "the policy Asynchronous raised ZeroDivisionError in on_commit while the coordinator was handling Announce"


@pytest.mark.usefixtures("broken_asp")
def test_a_policy_that_was_named_and_fails_is_shown_beside_the_others_and_fails_the_command(
    psplatform: Command,
) -> None:
    failed = psplatform("simulate", *TIMES, "--policy", "asp,bsp", "--json")
    assert failed.exit_code == 1
    results = json.loads(failed.stdout.splitlines()[-1])["results"]
    assert [one["policy"] for one in results] == ["bsp", "asp"]
    assert results[0]["updates"] == 5
    assert results[1] == {"policy": "asp", "error": f"{SENTENCE}: by nought"}
    assert f"asp: {SENTENCE}" in " ".join(psplatform("simulate", *TIMES, "--policy", "asp,bsp").stdout.split())


@pytest.mark.usefixtures("broken_asp")
def test_a_policy_that_fails_alone_fails_the_command(psplatform: Command) -> None:
    result = psplatform("simulate", *TIMES, "--policy", "asp")
    assert result.exit_code == 1
    assert SENTENCE in result.output


def test_people_get_a_table(psplatform: Command) -> None:
    one = psplatform("simulate", *SMALL, "--updates", "5")
    assert one.exit_code == 0
    assert "5 in 5 commits" in one.stdout
    assert "events, log " in one.stdout
    several = psplatform("simulate", *SMALL, "--updates", "5", "--policy", "bsp,delay-bounded,psp")
    assert several.exit_code == 0
    rows = [line.split()[0] for line in several.stdout.splitlines() if line]
    assert rows[0] == "policy"
    assert sorted(rows[1:]) == ["bsp", "delay-bounded", "psp"]
    assert "…" not in several.stdout


def test_the_plot_names_every_policy(psplatform: Command, tmp_path: Path) -> None:
    file = tmp_path / "loss.html"
    result = psplatform("simulate", *SMALL, "--updates", "5", "--policy", "bsp,ssp,dbw", "--plot", str(file))
    assert result.exit_code == 0, result.output
    drawn = file.read_text()
    for name in ("bsp", "ssp", "dbw"):
        assert f'"name":"{name}"' in drawn
    assert "<html>" in drawn
    assert 'src="http' not in drawn


@pytest.mark.parametrize("policies", ["bsp", "bsp,asp"])
def test_a_plot_that_cannot_be_written_in_the_end_costs_no_summary(
    psplatform: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policies: str
) -> None:
    """As where the disk has become full meanwhile: exit code 1, for something was started."""

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    words = (
        "simulate",
        *SMALL,
        "--updates",
        "5",
        "--policy",
        policies,
        "--plot",
        str(tmp_path / "loss.html"),
        "--json",
    )
    result = psplatform(*words)
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert {one["updates"] for one in found.get("results", [found])} == {5}
    assert list(tmp_path.iterdir()) == []


def test_each_result_has_the_curve_of_its_evaluations(simulated: Callable[..., dict[str, Any]]) -> None:
    """Seconds, updates and loss, the last of which is the summary's; only where it was asked for."""
    results = simulated(*SMALL, "--updates", "6", "--policy", "bsp,asp", "--curves")["results"]
    assert [one["policy"] for one in results] == ["bsp", "asp"]
    for one in results:
        assert [updates for _, updates, _ in one["curve"]] == [2, 4, 6]
        seconds = [at for at, _, _ in one["curve"]]
        assert seconds == sorted(seconds)
        assert one["curve"][-1][2] == one["evaluation_loss"]
    assert "curve" not in simulated(*SMALL, "--updates", "6")


def test_a_curve_without_evaluations_is_that_of_the_commits(
    simulated: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """A job file can do without them, but for that of the end."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB + "evaluate_every: null\n")
    found = simulated(str(file), "--curves")
    assert [one[:2] for one in found["curve"]] == [[2.0, 1], [4.0, 2], [6.0, 3], [8.0, 4]]
    assert found["curve"][-1][2] == found["loss"]


def test_a_long_curve_is_thinned(simulated: Callable[..., dict[str, Any]]) -> None:
    curve = simulated(*SMALL, "--updates", "1100", "--evaluate-every", "2", "--curves")["curve"]
    assert len(curve) == 500
    updates = [one[1] for one in curve]
    assert (updates[0], updates[-1]) == (2, 1100)
    assert {later - sooner for sooner, later in pairwise(updates)} == {2, 4}, "evenly"


JOB = """
workload: mlp
options: {samples: 100}
workers: 3
batch_size: 8
policy: backup
policy_options: {k: 2}
stop: {updates: 4}
scheduler: tcp://nowhere:1
stragglers: "constant:seconds=2"
"""


def test_a_job_file_is_simulated_without_its_scheduler(
    simulated: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    found = simulated(str(file))
    assert (found["policy"], found["policy_parameters"]["k"]) == ("backup", 2)
    assert (found["updates"], found["virtual_seconds"]) == (4, 8.0)


def test_the_files_parameters_are_those_of_the_files_policy_only(
    simulated: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert simulated(str(file), "--policy", "asp")["policy"] == "asp"
    results = simulated(str(file), "--policy", "bsp,asp")["results"]
    assert [one["policy"] for one in results] == ["bsp", "asp"]


@pytest.mark.parametrize("policy", ["3", "[bsp]", "null"])
def test_a_file_whose_policy_is_no_name_is_refused(refused: Callable[..., str], tmp_path: Path, policy: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("policy: backup", f"policy: {policy}"))
    assert "policy must be a name or a Policy, not" in refused("simulate", str(file))


def test_a_files_target_gives_way_where_only_times_are_simulated(
    simulated: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("{updates: 4}", "{target_loss: 0.1}"))
    found = simulated(str(file), "--timing-only")
    assert (found["outcome"], found["reached_target"]) == ("epochs", None)


TRACE = "slot,sequence,seconds\n0,0,0.1\n1,0,0.2\n"
BAD = [
    ("--policy nosuch", "unknown policy 'nosuch'"),
    ("--policy bsp,nosuch", "unknown policy 'nosuch'"),
    ("--policy bsp,", "unknown policy ''"),
    ("--policy all -o k=2", "-o sets parameters of one policy; simulate that policy alone"),
    ("--policy bsp,asp -o k=2", "-o sets parameters of one policy"),
    ("--policy backup -o k=4", "k must be at most the number of workers: k = 4, workers = 3"),
    ("--policy psp -o push=4", "push must be at most the number of workers: push = 4, workers = 3"),
    ("--policy psp -o pull=0", "pull must be above 0"),
    ("--policy psp -o pull=1.5", "pull"),
    ("--policy elastic-bsp -o lookahead=0", "lookahead"),
    ("--policy cutoff -o predictor=static -o c=4", "c must be at most the number of workers: c = 4, workers = 3"),
    ("--compute 5", 'compute: "5" says nothing about run times'),
    ("--compute constant:seconds=-1", "compute: constant: seconds must be a finite number of at least 0, not -1.0"),
    ("--compute constant:seconds=nan", "compute: constant: seconds must be a finite number of at least 0, not nan"),
    ("--compute trace:nowhere.csv", "compute: trace nowhere.csv cannot be read"),
    ("--compute trace:bad.csv", 'compute: trace bad.csv, line 3: row: seconds="x" is not a number; write it like'),
    ("--compute trace:two.csv", "compute: the trace is of 2 workers and the job has 3; give the job 2 workers"),
    ("--stragglers trace:two.csv", "stragglers: the trace is of 2 workers and the job has 3"),
    ("--round-trip unform:low=1,high=2", 'round_trip: "unform" says nothing about run times; did you mean "uniform"?'),
    ("--round-trip constant:seconds=1 --network nic:gbps=1,latency=0", "a round_trip includes the network's time"),
    ("--round-trip constant:seconds=1 --compute constant:seconds=1", "give one of them"),
    ("--network nic:gbps=0,latency=0", "network: nic: gbps must be a finite number above 0, not 0.0"),
    ("--network nic:gbps=1,latency=0;change:every=1,gbps=1+2,chance=0.5+0.4", "one chance for each rate of gbps"),
    ("--timing-only --target-loss 0.5", "no loss to reach a target with; stop it by updates, epochs or seconds"),
    ("--timing-only --target-accuracy 0.5", "no loss to reach a target with"),
    ("--timing-only --plot loss.html", "no loss to draw"),
    ("--timing-only --curves --json", "no loss to draw"),
    ("--curves", "curves are for programs; give --json as well, or --plot FILE.html"),
    ("--plot nowhere/loss.html", "there is no folder nowhere to write loss.html into; make it"),
    ("--plot loss.png", "the picture is an HTML file; call it loss.html"),
    ("--plot folder.html", "folder.html is a folder; name a file in it"),
    ("--plot /proc/loss.html", "/proc cannot be written to"),
    ("--workers 0", "workers"),
    ("--batch-size 1000", "batch_size must be at most the number of samples"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD)
def test_what_makes_no_sense_is_refused_before_anything_is_simulated(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("psplatform.simulation.simulate.run_world", lambda *_, **__: pytest.fail("simulated"))
    (tmp_path / "two.csv").write_text(TRACE)
    (tmp_path / "bad.csv").write_text(TRACE.replace("0.2", "x"))
    (tmp_path / "folder.html").mkdir()
    assert sentence in refused("simulate", *SMALL, *arguments.split())
    assert {one.name for one in tmp_path.iterdir()} == {"two.csv", "bad.csv", "folder.html"}


def test_fault_simulations_have_no_curves(refused: Callable[..., str]) -> None:
    assert "--curves does not go with --fuzz" in refused("simulate", "mlp", "--curves", "--fuzz", "1", "--json")


def test_of_policies_that_nobody_named_one_may_not_fit_the_job(
    simulated: Callable[..., dict[str, Any]], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from psplatform.errors import ConfigurationError
    from psplatform.policies.dssp import DynamicStaleSynchronous

    def check(self: object, workers: int) -> None:
        raise ConfigurationError("not with three", field="workers")

    monkeypatch.setattr(DynamicStaleSynchronous, "check", check)
    results = simulated(*TIMES, "--policy", "all")["results"]
    assert results[-1] == {"policy": "dssp", "error": "not with three"}
    assert len(results) == len(policy_names())
    assert refused("simulate", *TIMES, "--policy", "bsp,dssp") == "not with three"
    # What is wrong for all is refused, whatever the policies.
    assert "gbps must be a finite number above 0, not 0.0" in refused(
        "simulate", *TIMES, "--policy", "all", "--network", "nic:gbps=0,latency=0"
    )


def test_the_object_is_json_for_every_reader(psplatform: Command) -> None:
    """No NaN and no infinity, which JSON has not."""
    last = psplatform("simulate", *TIMES, "--json").stdout.splitlines()[-1]
    json.loads(last, parse_constant=pytest.fail)
