"""Traits that contradict each other are refused where they are made, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.traits import Scope, Traits
from psplatform.core.workers.pulling import PullRule
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


@pytest.mark.parametrize(
    ("traits", "sentence"),
    [
        ({"scope": "block"}, "the policy's traits have scope='block'; give Scope.MODEL or Scope.BLOCK"),
        ({"scope": None}, "the policy's traits have scope=None; give Scope"),
        ({"exact": "yes"}, "the policy's traits have exact='yes'; give True or False"),
        ({"pull": 0.5}, r"the policy's traits have pull=0.5; give a PullRule, such as PullRule\(0.5\)"),
        ({"interrupt": "abort"}, "the policy's traits have interrupt='abort'; give True or False"),
        ({"wakes": "commit"}, "the policy's traits have wakes='commit'; give a set of Change"),
        ({"wakes": {"commit"}}, "the policy's traits have wakes={'commit'}; give a set of Change"),
        ({"mean_norm": 1}, "the policy's traits have mean_norm=1; give True or False"),
    ],
    ids=lambda one: "" if isinstance(one, str) else str(one),
)
def test_a_trait_that_is_not_of_its_kind_is_named_with_what_to_give(traits: dict[str, Any], sentence: str) -> None:
    """The words of the documentation for example, taken for those of the program."""
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Traits(**{"exact": False} | traits)
    assert caught.value.field == "policy"


def test_blocks_go_with_partial_pulls() -> None:
    assert Traits(exact=False, scope=Scope.BLOCK, pull=HALF).pull is HALF
