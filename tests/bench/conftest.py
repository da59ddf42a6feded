"""Benches of a size of no consequence, on real clusters."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder that starts a cluster."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "units" not in item.path.stem:
            item.add_marker(pytest.mark.cluster)
