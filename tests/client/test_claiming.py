"""Claiming a run in the name of this process: who comes too late leaves everything as it was."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from psplatform.client.runs.claiming import claim, is_gone, this_claimant
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.claims import claims_made
from psplatform.replication.stores.store import create_run, describe_run, update_run
from psplatform.runtime.program import Resume

RUN = {"run": "digits-bsp-1a2b3c", "term": 3}


@pytest.fixture
def store(tmp_path: object) -> str:
    place = f"{tmp_path}/run.zarr"
    create_run(place, RUN)
    return place


def test_a_claim_is_given_back_with_what_was_begun(store: str) -> None:
    with ExitStack() as undo:
        assert claim(store, Resume(1, 4, {}, succeeds=3), undo)["run"] == RUN["run"]
        assert claims_made(store, 3) == 1
    assert claims_made(store, 3) == 0


def test_a_run_that_another_program_has_gone_on_with_meanwhile_is_left_alone(store: str) -> None:
    """That program has ended since, as its run is on a cluster: its claim could be taken over, the run must not be."""
    update_run(store, term=4)
    with ExitStack() as undo, pytest.raises(ConfigurationError, match="another program has gone on with the run in"):
        claim(store, Resume(1, 4, {}, succeeds=3), undo)
    assert claims_made(store, 3) == 0
    assert describe_run(store)["term"] == 4


def test_a_process_is_gone_when_it_has_ended_on_this_host() -> None:
    me = this_claimant()
    assert me is not None
    assert not is_gone(me)
    assert is_gone(replace(me, began=me.began + 1)), "its number was given again"
    assert not is_gone(replace(me, host="another boot", began=0)), "of another host nobody can tell"
