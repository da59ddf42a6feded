"""The description of the architecture names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_files_that_the_description_names_exist() -> None:
    """A step of a walk that leads nowhere is worse than none."""
    text = (ROOT / "psplatform" / "README.md").read_text()
    folders = ("psplatform", "policies", "replication", "dashboard", "tests", "examples")
    there = [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 40
    assert sorted(name for name in named if not any(path.endswith(f"/{name}") for path in there)) == []


def test_the_modules_that_the_description_names_exist() -> None:
    """Names with dots in the text are those of modules, or of what is in one."""
    text = (ROOT / "psplatform" / "README.md").read_text()
    packages = {path.name for path in (ROOT / "psplatform").iterdir() if path.is_dir()}
    named = {
        name for name in re.findall(r"`(?:psplatform\.)?(\w+(?:\.[a-z_]+)+)`", text) if name.split(".")[0] in packages
    }
    assert len(named) > 20
    assert sorted(name for name in named if not _exists(name)) == []


def _exists(name: str) -> bool:
    path = ROOT / "psplatform" / Path(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module, attribute = path.parent, path.name
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return source.is_file() and re.search(rf"\b{attribute}\b", source.read_text()) is not None
