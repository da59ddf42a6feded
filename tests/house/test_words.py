"""How files are named, and how long they are: a length that asks for a second look is a warning and not an error."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("psplatform", "policies", "replication", "dashboard", "examples", "tests")
VAGUE = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "manager"})
LONG_FILE_LINES = 400
LONG_FUNCTION_LINES = 40


def files() -> list[Path]:
    """Return every file of the project once, whichever links lead to it."""
    return sorted({file.resolve() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")})


def words(file: Path) -> set[str]:
    """Return the words that a file and its folders are named by."""
    names = (*file.parts[:-1], file.stem)
    return {word for name in names for word in name.split("_")}


def long_parts(text: str) -> Iterator[str]:
    """Yield the file itself and each function of it that is long, with its number of lines.

    A function counts from `def` to the last statement, without its docstring.
    """
    if (length := len(text.splitlines())) > LONG_FILE_LINES:
        yield f"{length} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            if lines > LONG_FUNCTION_LINES:
                yield f"{node.name}: {lines} lines"


def test_a_file_is_named_by_its_noun() -> None:
    vague = [str(file) for file in files() if words(file.relative_to(ROOT)) & VAGUE]
    assert vague == []


def test_long_files_and_functions_are_named_in_a_warning() -> None:
    long = [f"{file.relative_to(ROOT)}: {part}" for file in files() for part in long_parts(file.read_text("utf-8"))]
    if long:
        warnings.warn("too long:\n" + "\n".join(long), UserWarning, stacklevel=1)


def test_what_is_vague_or_long_is_found() -> None:
    assert words(Path("psplatform/core/string_utils.py")) & VAGUE == {"utils"}
    assert list(long_parts("def f():\n" + "    pass\n" * 40)) == ["f: 41 lines"]
    assert list(long_parts('def f():\n    """Text.\n' + "\n" * 40 + '    """\n    pass\n')) == []
    assert list(long_parts("pass\n" * 401)) == ["401 lines"]
