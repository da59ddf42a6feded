"""``psplatform fit-cutoff``: a model out of a trace, and simulations and trainings that use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psplatform.policies.run_times.fitted_model import FittedModel

Command = Callable[..., Any]
Json = Callable[[Any], dict[str, Any]]
Refused = Callable[..., str]

HEADING = "slot,sequence,seconds,version,censored"
STEPS = ("--steps", "2")
POLICY = ("--policy", "cutoff", "-o", "predictor=generative")


def trace_text(rounds: int, *, workers: int = 3, censored: tuple[int, ...] = ()) -> str:
    """Return a trace in which the last worker is slow, and was cut off in some rounds."""
    times = np.random.default_rng(2).gamma(9.0, 0.1, (rounds, workers)) + np.eye(workers)[-1]
    lines = [
        f"{slot},{number},{times[number, slot]:.4f},{number},{int(slot == workers - 1 and number in censored)}"
        for slot in range(workers)
        for number in range(rounds)
    ]
    return "\n".join([HEADING, *lines]) + "\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "times.csv"
    file.write_text(trace_text(60, censored=(3, 17)))
    return str(file)


@pytest.fixture
def here(trace: str, psplatform: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a trace and a model of three workers, ``times.csv`` and ``times.npz``."""
    assert psplatform("fit-cutoff", trace, *STEPS).exit_code == 0
    monkeypatch.chdir(Path(trace).parent)
    return Path(trace).parent


def test_the_model_lies_beside_the_trace(psplatform: Command, trace: str) -> None:
    result = psplatform("fit-cutoff", trace, *STEPS)
    assert result.exit_code == 0, result.output
    file = Path(trace).with_suffix(".npz")
    assert FittedModel.from_bytes(file.read_bytes()).shape.workers == 3
    assert f"{file}: 3 workers, 58 rounds (2 others left out), 2 steps" in result.stdout
    assert f"--workers 3 --policy cutoff -o predictor=generative -o model={file}" in result.stdout


def test_scripts_get_an_object(psplatform: Command, trace: str, tmp_path: Path, last_json: Json) -> None:
    file = str(tmp_path / "own.npz")
    found = last_json(psplatform("fit-cutoff", trace, "--output", file, *STEPS, "--json"))
    assert found.pop("seconds") > 0
    assert isinstance(found.pop("loss"), float)
    assert found == {"file": file, "workers": 3, "rounds": 58, "left_out": 2, "steps": 2}


def test_a_seed_gives_the_same_model_every_time(psplatform: Command, trace: str, tmp_path: Path) -> None:
    def fit(name: str, seed: str) -> bytes:
        file = tmp_path / name
        assert psplatform("fit-cutoff", trace, "--output", str(file), *STEPS, "--seed", seed).exit_code == 0
        return file.read_bytes()

    first = fit("a.npz", "1")
    assert first == fit("b.npz", "1")
    assert first != fit("c.npz", "2")


def test_what_cannot_be_fitted_is_refused(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    assert "cannot read the trace" in refused("fit-cutoff", str(file))
    assert "cannot read the trace" in refused("fit-cutoff", str(tmp_path))
    file.write_text("slot,sequence,seconds\n0,0,1.0\n0,1,1.0\n1,0,1.0\n")
    assert "rounds cannot be told apart" in refused("fit-cutoff", str(file))
    file.write_text(trace_text(45, censored=tuple(range(10))))
    said = refused("fit-cutoff", str(file))
    assert "has 35 rounds in which the times of all 3 workers are known (10 others were left out)" in said
    assert "a fit needs 40; record more rounds, of a policy that waits for all workers, such as bsp" in said


def test_a_place_for_the_model_is_looked_for_before_it_is_fitted(
    refused: Refused, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.policies.run_times.training.fit", lambda *times, **options: pytest.fail("fitted"))
    missing = str(tmp_path / "none" / "model.npz")
    assert "there is no folder" in refused("fit-cutoff", trace, "--output", missing)
    assert "is a folder; name a file in it" in refused("fit-cutoff", trace, "--output", str(tmp_path))
    assert "would take the place of the trace" in refused("fit-cutoff", trace, "--output", trace)


def test_a_simulation_replays_the_trace_under_the_model(psplatform: Command, here: Path, last_json: Json) -> None:
    """By relative paths; the slow worker is cut off as soon as the model's first window is full."""
    words = ("simulate", "digits", "--timing-only", "--workers", "3", "--updates", "40", "--compute", "trace:times.csv")
    found = last_json(psplatform(*words, *POLICY, "-o", "model=times.npz", "--json"))
    assert (found["policy"], found["updates"]) == ("cutoff", 40)
    assert found["virtual_seconds"] < last_json(psplatform(*words, "--json"))["virtual_seconds"]


def test_a_simulation_with_real_gradients_uses_the_model_as_well(
    psplatform: Command, here: Path, last_json: Json
) -> None:
    words = ("simulate", "digits", "--workers", "3", "--updates", "3", "--compute", "trace:times.csv")
    found = last_json(psplatform(*words, *POLICY, "-o", "model=times.npz", "--json"))
    assert found["updates"] == 3
    assert found["evaluation_loss"] > 0


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("command", ["simulate", "train"])
def test_a_model_of_another_number_of_workers_is_refused_before_anything_starts(
    refused: Refused, here: Path, command: str
) -> None:
    said = refused(command, "digits", "--workers", "4", *POLICY, "-o", "model=times.npz")
    assert "model times.npz was fitted for 3 workers and the job has 4; fit one for 4 workers, or run 3" in said
    assert not (here / "runs").exists()


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("command", ["simulate", "train"])
def test_a_model_that_is_not_there_is_refused_before_anything_starts(
    refused: Refused, here: Path, command: str
) -> None:
    assert "none.npz" in refused(command, "digits", "--workers", "3", *POLICY, "-o", "model=none.npz")
    assert "no file of a run-time model" in refused(
        command, "digits", "--workers", "3", *POLICY, "-o", "model=times.csv"
    )
    assert not (here / "runs").exists()


@pytest.mark.usefixtures("no_cluster")
def test_a_training_knows_no_times_to_come(refused: Refused) -> None:
    said = refused("train", "digits", "--workers", "2", "--policy", "cutoff", "-o", "predictor=oracle")
    assert "which only a simulator knows: use psplatform simulate, or choose predictor=forgetting" in said


def test_a_simulation_does(psplatform: Command, last_json: Json) -> None:
    words = (
        "simulate",
        "digits",
        "--timing-only",
        "--workers",
        "3",
        "--updates",
        "3",
        "--compute",
        "uniform:low=1,high=2",
    )
    found = last_json(psplatform(*words, "--policy", "cutoff", "-o", "predictor=oracle", "--json"))
    assert found["policy_parameters"]["predictor"] == "oracle"
    assert found["updates"] == 3
