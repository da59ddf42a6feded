"""`psplatform simulate --fuzz`, `--faults` and what does not go with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from psplatform.cli.main import cli
from psplatform.simulation.faults import ablations
from psplatform.simulation.faults.ablations import ABLATIONS, REDUNDANT, Ablation
from psplatform.simulation.faults.drawing import draw
from psplatform.simulation.faults.execution import Verdict


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["simulate", "digits", *arguments])
    return result.exit_code, result.stdout


def test_a_search_ends_with_its_figures() -> None:
    code, output = run("--fuzz", "3", "--seed", "5", "--json")
    found = json.loads(output.splitlines()[-1])
    assert (code, found["schedules"], found["violations"]) == (0, 3, [])
    assert {"coverage", "promotions", "takeovers", "zombie_attempts"} <= found.keys()


def test_a_trial_in_a_file_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(draw(4).to_plain()))
    code, output = run("--faults", str(file), "--json")
    assert (code, json.loads(output.splitlines()[-1])["invariant"]) == (0, None)


def test_what_a_trial_draws_itself_cannot_be_given() -> None:
    result = CliRunner().invoke(cli, ["simulate", "digits", "--fuzz", "3", "--workers", "2"])
    assert result.exit_code != 0


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Ablation]:
    """Say of every missing safeguard at once that its first trial shows it; return those that were asked for."""
    asked: list[Ablation] = []

    def caught(ablation: Ablation) -> Verdict:
        asked.append(ablation)
        return Verdict(draw(0), invariant="S1", found="applied twice")

    monkeypatch.setattr(ablations, "first_caught", caught)
    return asked


def test_the_table_of_ablations_lists_the_redundant_safeguards_with_their_reasons(tried: list[Ablation]) -> None:
    """Nobody looks for a trial that shows them: there is none, and that is no failure."""
    code, output = run("--ablations")
    assert (code, tried) == (0, list(ABLATIONS))
    told = " ".join(output.split())
    for one in REDUNDANT:
        assert f"{one.name} - redundant" in told
        assert f"{one.name} is redundant: {one.reason}" in told


@pytest.mark.usefixtures("tried")
def test_scripts_get_the_redundant_safeguards_under_a_key_of_their_own() -> None:
    code, output = run("--ablations", "--json")
    found = json.loads(output.splitlines()[-1])
    assert (code, [one["ablation"] for one in found["ablations"]]) == (0, [one.name for one in ABLATIONS])
    assert found["redundant"] == [{"ablation": one.name, "what": one.what, "reason": one.reason} for one in REDUNDANT]
