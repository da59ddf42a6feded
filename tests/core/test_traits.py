"""Traits that contradict each other are refused where they are made, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.pulling import PullRule
from psplatform.core.traits import Scope, Traits
from psplatform.errors import ConfigurationError

HALF = PullRule(0.5)


@pytest.mark.parametrize(
    ("traits", "sentence"),
    [
        ({"exact": True, "pull": HALF}, "exact needs pull = 1"),
        ({"exact": True, "scope": Scope.BLOCK}, "scope BLOCK needs exact = False"),
        ({"exact": False, "scope": Scope.BLOCK, "interrupt": True}, "interrupt needs scope MODEL"),
        ({"exact": False, "pull": HALF}, "pull < 1 needs BLOCK"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_traits_that_contradict_each_other_are_refused(traits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Traits(**traits)


def test_blocks_go_with_partial_pulls() -> None:
    assert Traits(exact=False, scope=Scope.BLOCK, pull=HALF).pull is HALF
