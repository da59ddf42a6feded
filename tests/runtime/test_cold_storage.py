"""A replica in the store that the store does not take: written again until it does, and told once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import STATE, Replicated, Transfer
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import Server
from psplatform.errors import StoreError
from psplatform.jobs.optimizers import SGD
from psplatform.replication.cold import ColdCopy, ColdState
from psplatform.replication.stores.store import create_run
from psplatform.runtime.comms.background import Background
from psplatform.runtime.dataplane.replicas.cold_storage import StoreCarrier, awaken
from psplatform.runtime.store.keeping import StoreKeeper
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, shard_vectors

Jump = Callable[[Any], Any]


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every write of a state take one of these away, and fail where it is not empty."""
    reasons: list[str] = []
    write = ColdCopy.write

    def refuse(cold: ColdCopy, state: Any) -> int:
        if reasons and (reason := reasons.pop(0)):
            raise StoreError(reason, store="somewhere")
        return write(cold, state)

    monkeypatch.setattr(ColdCopy, "write", refuse)
    return reasons


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["full", "full", "", "", "full again", "full again"], ["full", "full again"]),
        (["now", "", "and then", "", "it fails"], ["now"]),
    ],
)
def test_a_store_that_does_not_take_a_state_is_told_once_until_it_takes_one_at_once(
    layout: Layout, tmp_path: Path, jump: Jump, refusals: list[str], reasons: list[str], told: list[str]
) -> None:
    """Training stops at the bound meanwhile, and nothing else would say why."""
    refusals += reasons
    begun = shard_vectors(layout, 0, allocate(layout))
    shard = Shard(layout, 0, SGD(lr=1.0), begun, (allocate(layout, 0), allocate(layout, 0)))
    create_run(str(tmp_path), {"run": "run"})
    program: Any = SimpleNamespace(store=str(tmp_path), term=1, run="run")

    async def transmit() -> tuple[list[str], list[int]]:
        told: list[str] = []
        fed: list[Replicated] = []
        background = Background()
        carrier = StoreCarrier(program, "server", shard, background, told.append)
        for number in (1, 2, 3):
            transfer = Transfer("server", 0, 1, number, STATE, number, number, 1.0, ())
            effect = Transmit("replica", transfer)
            carrier.capture(effect)
            carrier.send(lambda address: None, effect, {}, fed.append)
            await asyncio.gather(*background._tasks)
        return told, [one.position for one in fed]

    waits = "shard 0: training waits for its replica in the store: "
    assert jump(transmit()) == ([f"{waits}{reason}" for reason in told], [1, 2, 3])


def test_what_a_server_begins_with_is_kept_and_nothing_else_takes_its_place(layout: Layout, tmp_path: Path) -> None:
    """Without it, a copy would begin again at the first version, and nobody would know."""
    begun = shard_vectors(layout, 0, allocate(layout))
    for vector in begun.values():
        vector.fill_(0.5)
    shard = Shard(layout, 0, SGD(lr=1.0), begun, (allocate(layout, 0), allocate(layout, 0)))
    program: Any = SimpleNamespace(store=str(tmp_path / "run.zarr"), term=1, run="run")
    create_run(program.store, {"run": "run"})
    part = Replica(0, "replica-0-0", 0)
    with pytest.raises(StoreError, match=r"the replica of shard 0 was removed from .*; recover the run"):
        awaken(program, part, shard)
    server = Server(0, name="server-0", position=7, version=9)
    StoreCarrier(program, "server-0", shard, Background()).keep(server)
    for vector in shard.state().values():
        vector.zero_()
    awaken(program, part, shard)
    assert (part.epoch, part.position, part.version, part.applied) == (1, 7, 9, {})
    assert all(bool((vector == 0.5).all()) for vector in shard.state().values())
    shutil.rmtree(program.store)
    StoreKeeper.of(program, {"run": "run"}).ensure()
    with pytest.raises(StoreError, match=r"the replica of shard 0 was removed with the store .*; recover the run"):
        awaken(program, part, shard)


def test_a_copy_that_is_made_of_what_the_store_keeps_stands_where_that_does(layout: Layout, tmp_path: Path) -> None:
    begun = shard_vectors(layout, 0, allocate(layout))
    shard = Shard(layout, 0, SGD(lr=1.0), begun, (allocate(layout, 0), allocate(layout, 0)))
    kept = {name: vector.numpy() + 1 for name, vector in shard.state().items()}
    ColdCopy(str(tmp_path), 0, 1).write(ColdState(2, 7, 9, {0: 4}, 7, kept))
    part = Replica(0, "replica-0-1", 0)
    program: Any = SimpleNamespace(store=str(tmp_path), term=1)
    awaken(program, part, shard)
    assert (part.epoch, part.position, part.version, part.applied) == (2, 7, 9, {0: 4})
    assert (shard.version, shard.commits) == (9, 7)
    assert all(bool((vector == 1).all()) for vector in shard.state().values())
