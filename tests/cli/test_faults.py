"""`psplatform simulate --fuzz`, `--faults` and what does not go with them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from psplatform.cli.main import cli
from psplatform.simulation.faults.schedules.drawing import draw


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
