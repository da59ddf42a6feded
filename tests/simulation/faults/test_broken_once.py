"""Trials that once broke the protocol, made as small as they would go, and what was wrong, role by role."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import Tick
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.supervision.leases import Grants
from psplatform.replication.accounts import Account
from psplatform.simulation.faults.execution import run_trial
from psplatform.simulation.faults.schedules.trial import Trial
from psplatform.simulation.threads import one_thread

BROKEN = json.loads(Path(__file__).with_name("broken_once.json").read_text())


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case["name"])
def test_what_broke_it_once_does_not_any_more(case: dict[str, Any]) -> None:
    verdict = run_trial(Trial.from_plain(case["trial"]))
    assert not verdict.invariant, f"{verdict.invariant} is violated: {verdict.found}"


def test_a_promoted_copy_is_entitled_by_the_leases_it_got_and_not_for_ever() -> None:
    copy = ShardCopy(Replica(0, "r"), Account)
    copy.handle(Tick(), 0.0)
    copy.handle(msg.Lease(1, 0.0, 2.0), 0.1)
    copy.handle(msg.Promote(1, 2), 0.2)
    assert isinstance(copy.part, Server)
    assert copy.part.entitled_until == pytest.approx(1.8)


def test_a_promoted_copy_that_never_got_a_lease_waits_for_its_first() -> None:
    copy = ShardCopy(Replica(0, "r"), Account)
    copy.handle(Tick(), 0.0)
    copy.handle(msg.Promote(1, 2), 0.2)
    assert isinstance(copy.part, Server)
    assert copy.part.entitled_until == -math.inf


def test_a_promoted_copy_refuses_the_transfers_of_the_server_before_it() -> None:
    server = Server(0, epoch=2, name="r")
    outdated = Send(Role.copy("s"), msg.Outdated(0, 2))
    assert server.handle(msg.Transfer("s", 0, 1, 4, msg.STATE, 3, 3, 1.0, ()), 0.0) == [outdated]


def test_a_server_that_gets_a_transfer_of_a_higher_epoch_is_fenced() -> None:
    server = Server(0, epoch=2, name="r")
    assert server.handle(msg.Transfer("s", 0, 3, 1, msg.STATE, 3, 3, 1.0, ()), 0.0) == []
    assert server.fenced


def test_a_server_forgets_what_a_lost_coordinator_ordered_beyond_a_gap() -> None:
    """It has said that it knows of it; what its successor decides there may be something else."""
    server = Server(0, name="s")
    one = msg.Commit(1, 1, 2, 2, (msg.Contribution("w", 0, 2),), 1.0)
    server.handle(one, 0.0)
    (said,) = server.handle(msg.StateRequest(2, 0), 0.0)
    assert isinstance(said, Send)
    assert (said.to, said.message.commits) == (COORDINATOR, (one,))
    again = msg.Commit(2, 1, 1, 1, (msg.Contribution("w", 0, 1),), 1.0)
    server.handle(again, 0.0)
    (said,) = server.handle(msg.StateRequest(3, 0), 0.0)
    assert isinstance(said, Send)
    assert said.message.commits == (again,)


def test_whoever_takes_over_waits_for_the_longest_lease_that_another_may_have_given() -> None:
    grants = Grants(1.0, 10.0)
    grants.succeed()
    grants.watch("s", 0.0)
    assert grants.expire(9.9) == []
    assert grants.expire(10.0) == [("s", 10.0)]


def test_a_version_above_what_was_known_at_a_promotion_counts_as_older() -> None:
    shard = ShardState.first(0, 1)
    shard.known.append((2, 5))
    assert [shard.rebased(version, 1) for version in (4, 5, 6, 9)] == [4, 5, 4, 4]
    assert shard.rebased(9, 2) == 9
