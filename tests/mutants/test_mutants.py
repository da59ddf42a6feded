"""Every planted bug is noticed by a test: what no test notices is not tested.

`mutants.toml` lists the bugs.  By default its texts are looked up, so that the table cannot rot, and a few bugs are
tried; `PSPLATFORM_MUTANTS=all` tries them all, and `-s` prints which test has noticed each.

The search for faults alone, without any test, notices those that name a trial (`seen`): a scenario and a seed, or what
the trial is called that once broke the protocol, and `once`.  `PSPLATFORM_MUTANTS=search` tries them all, and looks for
trials for the others in the code that the search runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
MUTANTS: Final[list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8")
)["mutant"]
ALL: Final = os.environ.get("PSPLATFORM_MUTANTS") == "all"
SEARCH: Final = os.environ.get("PSPLATFORM_MUTANTS") == "search"
SEEDS: Final = 6
"""Trials of each scenario, and of none, in which the search looks for a bug of which no trial is known."""
MOST_QUICK: Final = 8
LIMIT_S: Final = 240.0
SEARCH_LIMIT_S: Final = 3600.0
FAILED: Final = 1
"""pytest's exit status where tests have failed; others say that it could not try them."""

_COPIED: Final = ("psplatform", "policies", "replication", "dashboard", "tests", "examples", "pyproject.toml")
# `quick` bugs are in pure code: to notice them takes no process and no shared memory.
_NAMED: Final = [pytest.param(one, id=one["name"]) for one in MUTANTS]
_SEARCHED: Final = ("psplatform/core/", "psplatform/nodes/", "replication/accounts.py")
_SEEN: Final = [
    pytest.param(one, id=one["name"])
    for one in MUTANTS
    if one["file"].startswith(_SEARCHED) and (SEARCH or (one.get("quick") and "seen" in one))
]
_TRIED: Final = [pytest.param(one, id=one["name"]) for one in MUTANTS if ALL or one.get("quick")]


def test_there_are_many_and_the_quick_ones_are_few() -> None:
    names = [one["name"] for one in MUTANTS]
    assert len(names) == len(set(names)) >= 60
    assert 0 < sum(bool(one.get("quick")) for one in MUTANTS) <= MOST_QUICK


def test_nine_of_ten_in_what_the_search_runs_name_the_trial_in_which_it_alone_notices_them() -> None:
    reached = [one for one in MUTANTS if one["file"].startswith(_SEARCHED)]
    assert sum("seen" in one for one in reached) >= 0.9 * len(reached) > 100


@pytest.mark.parametrize("mutant", _NAMED)
def test_a_bug_can_still_be_planted(mutant: dict[str, Any]) -> None:
    """Its text occurs once, its replacement is other code that can be compiled, and its tests are there."""
    text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    assert text.count(mutant["text"]) == 1
    compile(planted(mutant, text), mutant["file"], "exec")
    assert mutant["text"] != mutant["becomes"]
    assert mutant["tests"]
    assert [one for one in mutant["tests"] if not (ROOT / one).exists()] == []


def planted(mutant: dict[str, Any], text: str) -> str:
    return text.replace(mutant["text"], mutant["becomes"])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what tests need, so that no bug is ever planted in the checkout itself."""
    folder = tmp_path_factory.mktemp("checkout")
    left = shutil.ignore_patterns("__pycache__", "*.png")
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=left)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_without_a_bug_the_tests_pass(checkout: Path) -> None:
    """In the copy as it is: else they would notice anything."""
    done = tried(checkout, sorted({one for mutant in MUTANTS if ALL or mutant.get("quick") for one in mutant["tests"]}))
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.fixture
def bug(checkout: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Plant one bug in the copy, for as long as a test takes."""
    mutant: dict[str, Any] = request.param
    path = checkout / mutant["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(planted(mutant, text), encoding="utf-8")
    yield mutant
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("bug", _TRIED, indirect=True)
def test_a_planted_bug_is_noticed(bug: dict[str, Any], checkout: Path) -> None:
    done = tried(checkout, bug["tests"])
    assert done.returncode == FAILED, f"{bug['name']}: {bug['breaks']}, and nobody noticed\n{done.stdout[-2000:]}"
    noticed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    assert noticed is not None, done.stdout[-2000:]
    print(f"\n{bug['name']} | {bug['breaks']} | {noticed[1]}")


@pytest.mark.parametrize("bug", _SEEN, indirect=True)
def test_the_search_alone_notices_a_planted_bug(bug: dict[str, Any], checkout: Path) -> None:
    found = searched(checkout, bug)
    if "seen" not in bug and not found:
        pytest.skip(f"nothing has noticed it in {SEEDS} trials of each scenario")
    assert found, f"{bug['name']}: {bug['breaks']}, and trial {bug['seen']} does not notice"
    print(f"\n{bug['name']} | {found['scenario']} {found['seed']} | {found['found']}")


def searched(checkout: Path, bug: dict[str, Any]) -> dict[str, Any]:
    """Return the first trial that notices the bug in the copy, and what it has found; nothing where none does."""
    known = [str(one) for one in bug.get("seen", ())]
    done = subprocess.run(
        [sys.executable, str(checkout / "tests/mutants/searching.py"), "0" if known else str(SEEDS), *known],
        cwd=checkout,
        env=environment(checkout),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S if known else SEARCH_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(checkout: Path) -> dict[str, str]:
    """Return what makes a program import the copy."""
    return {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}


def tried(checkout: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in the copy until one fails."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=checkout,
        env=environment(checkout),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
