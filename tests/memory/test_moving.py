"""A replica moves while a run goes on: nothing is lost by it, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from psplatform.core.plan import Protection, Stop
from psplatform.core.protocol.events import CopyMisplaced
from psplatform.memory.processes.losses import Supervision
from psplatform.replication.accounts import Account

MOVED_AT = 3.0


@pytest.fixture
def moving(train: Any, convolutional: Any) -> Callable[..., Any]:
    """Prepare a training of twelve updates whose replica is told to move at a certain time."""

    def prepare(*, spares: int = 4) -> Any:
        supervision = Supervision(standby=True, spares=spares, beat_s=0.25)
        fields = {"protection": Protection(), "supervision": supervision, "stop": Stop(updates=12), "shards": 2}
        account = partial(Account, 0.0, 0)
        trained = train(convolutional(), **fields, latency_s=0.01, make_account=account, measures_steps=True)
        move = CopyMisplaced("replica-0-0", "moved away from the host of another copy of shard 0")
        trained.memory.agenda.enter_at(MOVED_AT, trained.memory.tell_lead, move)
        return trained

    return prepare


def test_another_replica_takes_its_place_and_the_run_is_as_it_would_be(
    moving: Any, train: Any, assert_equal: Any
) -> None:
    trained = moving().run()
    copies = [(one["copy"], one["event"]) for one in trained.of_kind("copy") if one["shard"] == 0]
    assert copies[-1] == ("replica-0-0", "moved")
    assert [event for copy, event in copies if copy not in ("replica-0-0", "server-0")] == ["ready", "in sync"]
    assert trained.of_kind("protection") == [], "the shard had a replica in sync all the time"
    assert_equal(trained.result, moving(spares=0).run().result)


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.015, 0.025, 0.035, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("lost", ["server-0", "replica-0-0", "coordinator-1"])
def test_whoever_dies_meanwhile_the_run_ends_as_it_would(
    moving: Any, assert_equal: Any, lost: str, delay_s: float
) -> None:
    trained = moving().kill(lost, at=MOVED_AT + delay_s).run()
    assert trained.finish.outcome == "updates"
    assert_equal(trained.result, moving(spares=0).run().result)
    assert all(len(one.in_sync) == 1 for one in trained.memory.coordinator.state.shards if one.shard == 1)
