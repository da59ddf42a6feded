"""Describing a job loads no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["psplatform.tasks.seam", "psplatform.tasks.data.sampling", "psplatform.tasks.cancellation"]
)
def test_the_seam_loads_no_torch(module: str) -> None:
    """Interfaces, sampling and cancellation serve processes that never compute."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
