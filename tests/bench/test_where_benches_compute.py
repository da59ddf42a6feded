"""A job computes on a GPU where there is one, unless it says otherwise: what measures hosts must say so."""

from __future__ import annotations

import ast
from pathlib import Path

import psplatform.bench

FOLDER = Path(psplatform.bench.__file__).parent


def test_every_bench_says_on_which_device_its_jobs_compute() -> None:
    found = {}
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Job":
                found[f"{path.relative_to(FOLDER)}:{node.lineno}"] = {one.arg for one in node.keywords}
    assert len(found) >= 12
    assert [place for place, fields in found.items() if "device" not in fields] == []
