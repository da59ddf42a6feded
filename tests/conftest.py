"""Dividing the suite between processes, where it runs in several."""

from __future__ import annotations

from pathlib import Path

import pytest

# Tests of these folders start clusters and real processes, or share what is dear to make: they stay together.
TOGETHER = ("chaos", "cluster", "docs")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a file, and those of some folders, in one process, so that their fixtures are made once."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        place = item.path.relative_to(HERE)
        group = place.parts[0] if place.parts[0] in TOGETHER else str(place)
        item.add_marker(pytest.mark.xdist_group(group))
