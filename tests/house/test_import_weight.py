"""What importing psplatform loads: little, so that a command answers at once and a reader of logs needs no torch.

Modules are counted, not seconds: each import runs in a fresh, isolated interpreter that reports what it loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = frozenset({"dask", "distributed", "torch", "streamlit", "plotly", "zarr", "pydantic", "sklearn", "scipy"})
# numpy comes with the random streams that the pure layers draw from; the others may load nothing heavy at all.
LIGHT_ENTRANCES = ("psplatform", "psplatform.errors", "psplatform.core", "psplatform.policies", "psplatform.cli.main")


def _loaded(statement: str) -> set[str]:
    """Name the top-level packages that a fresh interpreter holds after a statement."""
    report = "import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    command = [sys.executable, "-I", "-c", f"{statement}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", LIGHT_ENTRANCES)
def test_an_entrance_loads_nothing_heavy(module: str) -> None:
    assert _loaded(f"import {module}") & HEAVY == set()


def test_the_bare_import_loads_not_even_numpy() -> None:
    assert "numpy" not in _loaded("import psplatform")


def test_a_heavy_import_would_be_seen() -> None:
    """The report names what a statement loads, so that the tests above can fail."""
    assert "pydantic" in _loaded("import pydantic") & HEAVY
