"""A copy's part of a checkpoint is the state at its cut, whenever the next steps come while it is written."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import psplatform as ps
from psplatform.core.plan import Protection
from psplatform.core.protocol.effects import Archive
from psplatform.core.protocol.events import Archived, ArchiveFailed
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.checkpoint import Checkpoint
from psplatform.replication.checkpoints.parts import Part
from psplatform.replication.checkpoints.retention import load_checkpoint
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.objects import ObjectFolder
from psplatform.replication.stores.store import create_run
from psplatform.runtime.comms.background import Background
from psplatform.runtime.store import archiving
from psplatform.runtime.store.archiving import Archiver
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate

ROWS, COLUMNS = 1100, 2000
LAYOUT = Layout.of([TensorSpec("w", (ROWS, COLUMNS), "float32", "parameter")], shards=1)
OBJECTS = 6
"""Of one part: three chunks of the weights, three of their momentum."""

PROTECTIONS = {"copied at once": Protection(1, bound=0.0), "copied if need be": Protection(1, bound=20.0)}


class Scene:
    """One copy whose steps are all different, and what writes its part of a checkpoint."""

    def __init__(self, store: str, protection: Protection) -> None:
        self.store, self.failures, self.events = store, list[str](), list[Any]()
        self.shard = made_shard()
        program = SimpleNamespace(store=store, run="r", term=1, plan=SimpleNamespace(protection=protection))
        self.archiver = Archiver(cast(Any, program), LAYOUT, self.shard, Background(self.failures.append))
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        (key,) = self.shard.front
        self.shard.gather([{key: torch.full((ROWS * COLUMNS,), float(self.steps))}])
        self.shard.stage(0.1)
        self.shard.publish(self.steps)

    def state(self) -> dict[str, torch.Tensor]:
        return {key: vector.clone() for key, vector in self.shard.state().items()}

    async def archive(self, number: int, before_writing: Callable[[], None] = lambda: None) -> Any:
        effect = Archive(number, self.steps, self.steps, ())
        self.archiver.keep(effect)
        before_writing()
        done = asyncio.get_running_loop().create_future()
        self.archiver.write(effect, done.set_result)
        return await asyncio.wait_for(done, 60)


def made_shard() -> Shard:
    initial, first, second = (allocate(LAYOUT, 0) for _ in range(3))
    return Shard(LAYOUT, 0, ps.SGD(lr=0.1, momentum=0.9), initial, (first, second))


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "r"})
    made = Scene(store, PROTECTIONS[request.param])
    made.step()
    return made


def checkpoint_of(scene: Scene, event: Any) -> Checkpoint:
    assert isinstance(event, Archived)
    part = Part.from_plain(event.part)
    assert len(part.objects) == OBJECTS
    seal(scene.store, event.number, [part], positions=[event.position], state={}, time_s=0.0)
    return load_checkpoint(scene.store, event.number)


def assert_is(found: Checkpoint, expected: dict[str, torch.Tensor]) -> None:
    for name, tensors in (("w", found.tensors()), ("momentum", found.slots()["momentum"])):
        (key,) = (key for key in expected if key.startswith("momentum") == (name == "momentum"))
        assert torch.equal(torch.from_numpy(tensors["w"]).reshape(-1), expected[key]), name


@pytest.mark.parametrize("scene", PROTECTIONS, indirect=True)
@pytest.mark.parametrize("at", range(OBJECTS))
def test_steps_while_it_is_written_change_nothing(scene: Scene, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them, the second of which writes over the parameters that were visible at the cut."""
    expected, real, put = scene.state(), ObjectFolder.put, list[str]()

    def slow(self: ObjectFolder, path: str, data: Any) -> Any:
        put.append(path)
        if len(put) == at + 1:  # what is to be written was looked up, and not read yet
            scene.step()
            scene.step()
        return real(self, path, data)

    monkeypatch.setattr(ObjectFolder, "put", slow)
    event = asyncio.run(scene.archive(1))
    monkeypatch.undo()
    assert_is(checkpoint_of(scene, event), expected)
    assert not scene.failures


@pytest.mark.parametrize("scene", PROTECTIONS, indirect=True)
def test_steps_before_it_is_written_change_nothing(scene: Scene) -> None:
    expected = scene.state()

    def two_steps() -> None:
        scene.step()
        scene.step()

    event = asyncio.run(scene.archive(1, two_steps))
    assert_is(checkpoint_of(scene, event), expected)


@pytest.mark.parametrize("scene", ["copied if need be"], indirect=True)
def test_what_is_written_by_the_next_step_is_not_copied(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = list[Any]()
    monkeypatch.setattr(archiving, "copy", lambda *both: copies.append(both))
    for number in (1, 2):
        expected = scene.state()
        assert_is(checkpoint_of(scene, asyncio.run(scene.archive(number))), expected)
        scene.step()
    assert copies == []


@pytest.mark.parametrize("scene", ["copied if need be"], indirect=True)
def test_the_memory_of_a_copy_is_given_up_when_it_is_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as the whole state, and mostly not needed for long."""
    copies, real = list[weakref.ref[torch.Tensor]](), archiving.copy

    def noted(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
        copies.extend(map(weakref.ref, targets))
        real(sources, targets)

    monkeypatch.setattr(archiving, "copy", noted)
    expected = scene.state()
    assert_is(checkpoint_of(scene, asyncio.run(scene.archive(1, scene.step))), expected)
    gc.collect()
    assert [one() for one in copies] == [None, None]


@pytest.mark.parametrize("scene", ["copied if need be"], indirect=True)
def test_what_could_not_be_written_is_kept_no_longer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = list[Any]()
    monkeypatch.setattr(archiving, "copy", lambda *both: copies.append(both))

    def full(self: ObjectFolder, path: str, data: Any) -> Any:
        raise StoreError("no room left", store=scene.store)

    monkeypatch.setattr(ObjectFolder, "put", full)
    assert isinstance(asyncio.run(scene.archive(1)), ArchiveFailed)
    scene.step()
    assert copies == []
