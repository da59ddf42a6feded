"""What a run is doing while it starts and ends is said in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.coordination.ending import Phase
from psplatform.runtime.actors.coordinator.steps import LOADING, assembling, in_words


def leading(phase: Phase) -> Any:
    return SimpleNamespace(coordinator=SimpleNamespace(ending=SimpleNamespace(phase=phase)))


def test_before_it_has_begun_the_step_is_said() -> None:
    assert in_words(None, LOADING) == LOADING
    assert "1 of 3 are ready" in in_words(None, assembling(1, 3))


def test_nothing_is_said_while_it_trains() -> None:
    assert in_words(leading(Phase.RUNNING), LOADING) == ""


@pytest.mark.parametrize("phase", [one for one in Phase if one is not Phase.RUNNING])
def test_every_phase_of_its_end_has_words(phase: Phase) -> None:
    assert in_words(leading(phase), "")
