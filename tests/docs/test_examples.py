"""The examples run as they stand, on the cluster that the README's commands start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_every_example_is_described_and_no_other() -> None:
    described = set(re.findall(r"^\| `([^`]+)` \|", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE))
    assert described == {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yaml")}


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_starts_nothing_when_it_is_imported(program: Path) -> None:
    """The processes of an embedded cluster import it."""
    assert program.read_text().rstrip().endswith("main()")
    assert 'if __name__ == "__main__":' in program.read_text()


@pytest.mark.cluster
def test_own_model_reaches_its_target(cluster: Any) -> None:
    printed = cluster.shell.run("python", str(EXAMPLES / "own_model.py"), cluster.address)
    assert float(_found(r"accuracy ([\d.]+)", printed)) > 0.9


@pytest.mark.cluster
def test_ragged_text_reaches_its_target(cluster: Any) -> None:
    printed = cluster.shell.run("python", str(EXAMPLES / "ragged_text.py"), cluster.address)
    assert float(_found(r"held-out loss ([\d.]+)", printed)) <= 0.1
    assert float(_found(r"([\d.]+)% of other texts", printed)) > 90


@pytest.mark.cluster
def test_own_policy_applies_gradients_of_every_worker(cluster: Any) -> None:
    printed = cluster.shell.run("python", str(EXAMPLES / "own_policy.py"), cluster.address)
    applied = re.findall(r"worker \d: (\d+) gradients applied", printed)
    assert len(applied) == 3
    assert all(int(count) > 0 for count in applied)


@pytest.mark.cluster
def test_own_optimizer_reaches_its_target(cluster: Any) -> None:
    printed = cluster.shell.run("python", str(EXAMPLES / "own_optimizer.py"), cluster.address)
    assert float(_found(r"lion: accuracy ([\d.]+)", printed)) >= 0.95


@pytest.mark.cluster
def test_additive_task_counts_every_applied_point_once(cluster: Any) -> None:
    printed = cluster.shell.run("python", str(EXAMPLES / "additive_task.py"), cluster.address)
    counted, applied = re.findall(r"(\d+) points counted, (\d+) in the updates applied", printed)[0]
    assert counted == applied
    assert int(counted) >= 2 * 8000


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]
