"""How files are named and how long they may grow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("psplatform", "policies", "replication", "dashboard", "examples", "tests")
VAGUE = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "manager"})
LONGEST_FILE_LINES = 500
LONGEST_FUNCTION_LINES = 40


def _files() -> list[Path]:
    return sorted({file.resolve() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")})


FILES = [pytest.param(file, id=file.relative_to(ROOT).as_posix()) for file in _files()]


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_named_by_its_noun(file: Path) -> None:
    names = {*file.relative_to(ROOT).parts[:-1], file.stem}
    words = {word for name in names for word in name.split("_")}
    assert words & VAGUE == set()


@pytest.mark.parametrize("file", FILES)
def test_a_file_can_be_read_in_one_sitting(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE_LINES


@pytest.mark.parametrize("file", FILES)
def test_a_function_fits_on_a_screen(file: Path) -> None:
    """Counted from `def` to the last statement, without the docstring, which is for reading and not for following."""
    long = [
        f"{node.name} ({length} lines)"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := _code_lines(node)) > LONGEST_FUNCTION_LINES
    ]
    assert long == []


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines
