"""Random runs of policies in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from psplatform.core.policy import Policy
from psplatform.testing import FinishedRun, check_runs


@pytest.fixture
def through_trouble() -> Callable[..., None]:
    """Check runs of many seeds; a failure names the seed and the smallest run that still fails."""

    def check_all(
        make: Callable[[], Policy], check: Callable[[FinishedRun], None], *, seeds: int, calm: bool = False
    ) -> None:
        check_runs(make, check, range(seeds), calm=calm)

    return check_all
