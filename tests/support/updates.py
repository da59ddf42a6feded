"""What is applied in a commit, update by update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def means_of(commit: Mapping[str, Any]) -> tuple[float, float]:
    """Return the means over a commit's updates: of the version before each, and of the staleness."""
    updates = commit["versions"]
    return commit["version"] - (updates + 1) / 2, sum(commit["staleness"]) / updates
