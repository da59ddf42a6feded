"""Each safeguard of the protocol is taken away, and the checks notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psplatform.simulation.faults.ablations import ABLATIONS, SEEDS, Ablation, first_caught, without
from psplatform.simulation.threads import one_thread

# Where the search of `psplatform simulate digits --ablations` finds it first: looked at before the others.
KNOWN = {
    "no lease": 1,
    "lease without margin": 45,
    "no fencing by epoch": 6,
    "no adoption": 2,
    "promotion of a replica out of sync": 19,
    "in sync too early": 27,
    "promotion while loading": 26,
    "no dedupe": 27,
    "steps before the cut is captured": 16,
    "manifest not atomic": 2,
}


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.name)
def test_a_missing_safeguard_shows(ablation: Ablation) -> None:
    caught = first_caught(ablation, seeds=[KNOWN.get(ablation.name, 0), *range(SEEDS)])
    assert caught is not None, f"without {ablation.name!r}, {ablation.what}: nothing noticed in {SEEDS} trials"


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.name)
def test_a_safeguard_is_back_afterwards(ablation: Ablation) -> None:
    before = [vars(owner)[name] for owner, name, _ in ablation.patches]
    with without(ablation):
        pass
    assert [vars(owner)[name] for owner, name, _ in ablation.patches] == before
