"""A small model whose shards are cut in awkward places, and its checkpoints in a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from psplatform.replication.checkpoints.arrays import Contents, numpy_dtype
from psplatform.replication.checkpoints.checkpoint import Checkpoint
from psplatform.replication.checkpoints.parts import CheckpointWriter, Part
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.store import create_run
from psplatform.tensors.layout import Layout, TensorSpec

SPECS = (
    TensorSpec("fc.1.weight", (5, 7), "float32", "parameter"),
    TensorSpec("fc.1.bias", (5,), "float32", "parameter"),
    TensorSpec("temperature", (), "float64", "parameter"),
    TensorSpec("nothing", (0, 4), "float32", "parameter"),
    TensorSpec("norm.running_mean", (3,), "float32", "buffer"),
    TensorSpec("norm.num_batches_tracked", (), "int64", "buffer"),
    TensorSpec("mask", (3, 5), "bool", "buffer"),
)


@dataclass(frozen=True)
class Sample:
    """A model in a given version: everything that a checkpoint of it holds follows from the version."""

    specs: tuple[TensorSpec, ...] = SPECS
    slots: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    chunk_bytes: int = 56

    def layout(self, shards: int) -> Layout:
        return Layout.of(self.specs, shards=shards)

    def contents(self, shards: int) -> Contents:
        return Contents(self.layout(shards), self.slots, self.chunk_bytes)

    def vectors(self, version: int) -> dict[str, Any]:
        """Every whole region and slot; no two elements of a region, and no two versions, are alike."""
        layout, rng = self.layout(1), np.random.default_rng(version)
        sizes = Contents(layout, self.slots).vectors(0)
        return {
            key: rng.permutation(size + 100)[:size].astype(numpy_dtype(dtype)) for key, (dtype, size) in sizes.items()
        }

    def state(self, version: int, layout: Layout, shard: int) -> dict[str, Any]:
        """What a shard's copy would hand to the writer."""
        regions = {region.key for region in layout.regions}
        return {
            key: vector[layout.piece(shard, key if key in regions else key.partition(".")[2])]
            for key, vector in self.vectors(version).items()
        }

    def tensors(self, version: int, slot: str | None = None) -> dict[str, Any]:
        vectors = self.vectors(version)
        return {
            entry.name: vectors[region.key if slot is None else f"{slot}.{region.key}"][
                entry.start : entry.start + entry.size
            ].reshape(entry.shape)
            for region in self.layout(1).regions
            for entry in region.entries
            if slot is None or region.kind == "parameter"
        }

    def plain(self, version: int, shard: int) -> dict[str, Any]:
        return {"applied": {0: version, 7: shard}, "commits": 10 * version}

    def write(self, store: str, number: int, version: int, shards: int = 3) -> list[Part]:
        contents = self.contents(shards)
        writer = CheckpointWriter(store, number, contents)
        parts = [
            writer.write_shard(
                shard,
                self.state(version, contents.layout, shard),
                position=version,
                version=version,
                plain=self.plain(version, shard),
            )
            for shard in range(shards)
        ]
        return [Part.from_plain(part.to_plain()) for part in parts]

    def save(self, store: str, number: int, version: int, shards: int = 3) -> int:
        parts = self.write(store, number, version, shards)
        return seal(
            store,
            number,
            parts,
            positions=[version] * shards,
            state={"clocks": {1: version}},
            time_s=float(version),
        )

    def version_of(self, checkpoint: Checkpoint) -> int:
        """The one version that all of a checkpoint is; fails if any of it is not."""
        version: int = checkpoint.state["clocks"][1]
        assert checkpoint.summary.version == version
        assert checkpoint.summary.positions == (version,) * len(checkpoint.shards)
        for number, shard in enumerate(checkpoint.shards):
            assert (shard.position, shard.version) == (version, version)
            assert shard.plain == self.plain(version, number)
        assert_same(checkpoint.tensors(), self.tensors(version))
        assert checkpoint.slots().keys() == set(self.slots)
        for slot, tensors in checkpoint.slots().items():
            assert_same(tensors, self.tensors(version, slot))
        return version


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture
def sample() -> Sample:
    return Sample()


@pytest.fixture(scope="session")
def sample_of() -> type[Sample]:
    """To make a sample of other tensors."""
    return Sample


@pytest.fixture(params=["folder", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that holds a run, in every kind of place."""
    store = str(tmp_path / "run.zarr") if request.param == "folder" else f"memory://{uuid4().hex}/run.zarr"
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    yield store
    if request.param == "memory":
        MemoryFileSystem().rm(store, recursive=True)


@pytest.fixture
def memory_run() -> Iterator[str]:
    """A store that holds a run, in memory."""
    store = f"memory://{uuid4().hex}/run.zarr"
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    yield store
    MemoryFileSystem().rm(store, recursive=True)
