"""Commits of gradients that were summed on their way: what a server applies of them, and what it tells its replicas."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Gather, Publish, Send, Skip, Stage, Transmit
from psplatform.core.protocol.events import GatherDone, StageDone
from psplatform.core.protocol.messages import Applied, Bundle, Commit, Contribution
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.shards.links import Links
from psplatform.core.shards.server import Server
from psplatform.replication.accounts import Account

FIRST, SECOND = Bundle("m0", 1, 1), Bundle("m3", 1, 2)


def gradient(slot: int, sequence: int, bundle: Bundle | None = None) -> Contribution:
    return Contribution(f"m{slot}", slot, sequence, None, bundle)


def commit(position: int, *contributions: Contribution, version: int = 0, **fields: Any) -> Commit:
    return Commit(1, 1, position, version or position, contributions, rate=0.5, **fields)


def summed(position: int, *slots: int, sequence: int = 5, bundle: Bundle = FIRST, **fields: Any) -> Commit:
    """Commit what was summed of the gradients `sequence` of these slots, each an update by itself."""
    found = tuple(gradient(slot, sequence, bundle) for slot in slots)
    return commit(position, *found, **{"updates": len(found), **fields})


def do(server: Server, event: Any) -> list[Effect]:
    return server.handle(event, 0.0)


def apply(server: Server, *commits: Commit) -> list[Effect]:
    """Bring these to where they are staged; return what comes of the last."""
    effects: list[Effect] = []
    for one in commits:
        do(server, one)
        do(server, GatherDone(one.position, ()))
        effects = do(server, StageDone(one.position, step=1.0))
    return effects


def gathers(effects: list[Effect]) -> list[Gather]:
    return [one for one in effects if isinstance(one, Gather)]


def unreachable(position: int) -> list[Effect]:
    return [Send(COORDINATOR, msg.Unreachable(0, 1, position))]


# --- what is gathered ---


def test_of_several_updates_the_sum_is_gathered_and_one_step_taken() -> None:
    server, told = Server(0), summed(1, 0, 1, 2, version=3)
    assert do(server, told) == [
        Gather(1, told.contributions, norms=False, careful=False, updates=3),
        Stage(1, 1.0, 0.5),
    ]
    do(server, GatherDone(1, ()))
    assert do(server, StageDone(1)) == [Publish(1, 3), Send(COORDINATOR, Applied(0, 1, 1, 3, ()))]
    assert server.applied == {0: 5, 1: 5, 2: 5}


def test_a_sum_in_a_commit_of_one_update_is_a_part_of_its_mean() -> None:
    told = commit(1, gradient(0, 5, FIRST), gradient(1, 5, FIRST), gradient(2, 9))
    (gather,) = gathers(do(Server(0), told))
    assert (gather.contributions, gather.updates) == (told.contributions, 1)


def test_under_clipping_the_sum_is_gathered_too_and_the_step_waits() -> None:
    server, told = Server(0), summed(1, 0, 1, clip=True)
    assert do(server, told) == [Gather(1, told.contributions, norms=True, careful=False, updates=2)]


def test_a_sum_that_workers_may_be_writing_over_is_gathered_with_care() -> None:
    (gather,) = gathers(do(Server(0), summed(1, 0, 1, again=True)))
    assert (gather.careful, gather.updates) == (True, 2)


# --- a part of a bundle that was applied before ---


def test_without_a_bundle_what_was_not_applied_yet_is_applied() -> None:
    server = Server(0)
    apply(server, commit(1, gradient(0, 5)))
    (gather,) = gathers(do(server, commit(2, gradient(0, 5), gradient(1, 5))))
    assert gather.contributions == (gradient(1, 5),)


@pytest.mark.parametrize("applied", [(0,), (1,), (2,), (0, 2)], ids=repr)
@pytest.mark.parametrize("fields", [{}, {"clip": True}, {"norms": True}, {"updates": 1}, {"again": True}], ids=repr)
def test_a_sum_of_which_a_part_was_applied_is_not_to_be_had(applied: tuple[int, ...], fields: dict[str, Any]) -> None:
    """The rest of it is nowhere by itself, and to apply the whole would apply that part twice."""
    server = Server(0)
    apply(server, commit(1, *(gradient(slot, 5) for slot in applied)))
    before = dict(server.applied)
    assert do(server, summed(2, 0, 1, 2, **fields)) == unreachable(2)
    assert (server.position, server.newest, server.applied) == (1, 1, before)
    assert server.under_way == frozenset()


def test_a_later_gradient_of_the_same_worker_has_been_applied_as_well() -> None:
    server = Server(0, applied={1: 6})
    assert do(server, summed(1, 0, 1)) == unreachable(1)


def test_earlier_gradients_of_its_workers_keep_nobody_from_applying_a_sum() -> None:
    server = Server(0, applied={0: 4, 1: 4})
    (gather,) = gathers(do(server, summed(1, 0, 1)))
    assert len(gather.contributions) == 2


def test_a_sum_that_was_applied_as_a_whole_is_skipped() -> None:
    server = Server(0)
    apply(server, summed(1, 0, 1, version=2))
    effects = do(server, summed(2, 0, 1, version=4))
    assert effects == [Skip(2, 4), Send(COORDINATOR, Applied(0, 1, 2, 4, ()))]


def test_what_came_alone_and_was_applied_is_left_out_beside_a_whole_sum() -> None:
    server = Server(0, applied={2: 9})
    whole = gradient(0, 5, FIRST), gradient(1, 5, FIRST)
    (gather,) = gathers(do(server, commit(1, *whole, gradient(2, 9))))
    assert gather.contributions == whole


def test_of_two_sums_the_one_that_was_not_applied_is_applied() -> None:
    server = Server(0, applied={0: 5, 1: 5})
    left = gradient(3, 5, SECOND), gradient(4, 5, SECOND)
    (gather,) = gathers(do(server, commit(1, gradient(0, 5, FIRST), gradient(1, 5, FIRST), *left)))
    assert gather.contributions == left


def test_of_two_sums_neither_is_applied_where_one_cannot_be() -> None:
    server = Server(0, applied={3: 5})
    first = gradient(0, 5, FIRST), gradient(1, 5, FIRST)
    told = commit(1, *first, gradient(3, 5, SECOND), gradient(4, 5, SECOND))
    assert do(server, told) == unreachable(1)


def test_what_is_missing_is_found_when_the_commit_has_its_turn() -> None:
    """It came early, when nothing of it had been applied."""
    server = Server(0)
    assert do(server, summed(2, 0, 1)) == []
    do(server, commit(1, gradient(1, 5)))
    do(server, GatherDone(1, ()))
    effects = do(server, StageDone(1))
    assert effects == [Publish(1, 1), Send(COORDINATOR, Applied(0, 1, 1, 1, ())), *unreachable(2)]


def test_the_position_of_a_sum_that_is_not_to_be_had_is_kept_until_it_is_given_up() -> None:
    server = Server(0, applied={0: 5})
    told = summed(1, 0, 1, version=2)
    do(server, told)
    assert do(server, commit(2, gradient(2, 7), version=3)) == [], "what follows waits"
    assert do(server, told) == []
    assert do(server, replace(told, again=True)) == unreachable(1), "who takes over is told again"
    effects = do(server, commit(1, version=2))
    assert effects[:2] == [Skip(1, 2), Send(COORDINATOR, Applied(0, 1, 1, 2, ()))]
    assert gathers(effects) == [Gather(2, (gradient(2, 7),), norms=False)]
    assert server.applied == {0: 5}
    do(server, GatherDone(2, ()))
    do(server, StageDone(2))
    (gather,) = gathers(do(server, commit(3, gradient(1, 5), version=4)))
    assert gather.contributions == (gradient(1, 5),), "alone, it can still be applied"


# --- replicas ---


@dataclass
class Witness:
    """An account that lets everything pass, and keeps what is added."""

    added: list[tuple[int, float, int]] = field(default_factory=list)
    distance: float = 0.0
    updates: int = 0
    within: bool = True
    due: bool = False

    def add(self, position: int, step: float, updates: int = 1) -> None:
        self.added.append((position, step, updates))

    def settle(self, position: int) -> None: ...


def test_every_account_is_told_of_how_many_updates_a_step_is_made() -> None:
    witnesses: list[Witness] = []

    def make() -> Witness:
        witnesses.append(Witness())
        return witnesses[-1]

    server = Server(0, name="s", make_account=make, replicas=("r", "q"))
    apply(server, summed(1, 0, 1, 2, version=3), commit(2, gradient(0, 6), gradient(1, 6), version=4))
    assert [one.added for one in witnesses] == [[(1, 1.0, 3), (2, 1.0, 1)]] * 2


def test_links_count_updates_and_one_a_step_where_nothing_else_is_said() -> None:
    links = Links(partial(Account, most_updates=4))
    links.begin("r", 0)
    links.add(1, 1.0, 3)
    assert (links.lag, links.within) == (3, True)
    links.add(2, 1.0)
    assert (links.lag, links.within) == (4, True)
    links.add(3, 1.0, 2)
    assert (links.lag, links.within) == (6, False)


def make_server(most_updates: int, *, from_workers: bool) -> Server:
    account = partial(Account, most_updates=most_updates)
    return Server(0, name="s", make_account=account, replicas=("r",), from_workers=from_workers)


def transfers(effects: list[Effect]) -> list[msg.Transfer]:
    return [one.transfer for one in effects if isinstance(one, Transmit)]


def published(effects: list[Effect]) -> list[int]:
    return [one.version for one in effects if isinstance(one, Publish)]


@pytest.mark.parametrize(("updates", "most", "visible"), [(3, 3, True), (3, 2, False), (1, 1, True)])
def test_a_version_is_held_back_by_how_many_updates_its_replica_lacks(updates: int, most: int, visible: bool) -> None:
    server = make_server(most, from_workers=True)
    effects = apply(server, summed(1, 0, 1, 2, version=3, updates=updates))
    assert published(effects) == ([3] if visible else [])
    if visible:
        (applied,) = [one.message for one in effects if isinstance(one, Send)]
        assert applied.lag == updates
    (transfer,) = transfers(effects)
    arrived = do(server, msg.Replicated(0, "r", 1, transfer.number, 1))
    assert published(arrived) == ([] if visible else [3])


def test_a_replica_that_takes_gradients_itself_is_told_of_how_many_updates_the_sum_is() -> None:
    server, told = make_server(4, from_workers=True), summed(1, 0, 1, 2, version=3)
    (transfer,) = transfers(apply(server, told))
    assert (transfer.kind, transfer.updates, transfer.version) == (msg.GRADIENTS, 3, 3)
    assert transfer.contributions == told.contributions, "with the names of their bundle"
    do(server, msg.Replicated(0, "r", 1, transfer.number, 1))
    (following,) = transfers(apply(server, commit(2, gradient(0, 6), gradient(1, 6), version=4)))
    assert (following.kind, following.updates) == (msg.GRADIENTS, 1)


def test_a_replica_is_told_of_what_the_server_applied_itself_beside_a_whole_sum() -> None:
    server, whole = make_server(4, from_workers=True), (gradient(0, 5, FIRST), gradient(1, 5, FIRST))
    server.applied[2] = 9
    (transfer,) = transfers(apply(server, commit(1, *whole, gradient(2, 9))))
    assert (transfer.contributions, transfer.applied) == (whole, ((0, 5), (1, 5)))


def test_what_was_gathered_is_sent_as_one_step_whatever_it_is_made_of() -> None:
    """The replica applies it as it is: it is summed already."""
    server = make_server(0, from_workers=False)
    (transfer,) = transfers(apply(server, summed(1, 0, 1, 2, version=3)))
    assert (transfer.kind, transfer.version, transfer.updates) == (msg.UPDATE, 3, 3)
    assert [one.commit.updates for one in transfer.past] == [3], "who is promoted knows the commit as it was"
