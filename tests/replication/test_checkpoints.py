"""Checkpoints: written in parts, sealed in one piece, read by name or for another number of shards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
import torch
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.errors import CheckpointError, ConfigurationError, InvariantViolation, StoreError
from psplatform.jobs.optimizers import Adam
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.retention import (
    checkpoints_of,
    discard,
    load_checkpoint,
    newest_whole,
    next_number,
    prune,
)
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.store import create_run
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate

SHARDS = (1, 2, 3, 5, 60)


def _seal(store: str, parts: Any, **changes: Any) -> int:
    words = {"positions": [4, 4, 4], "state": {}, "time_s": 0.0} | changes
    return seal(store, 1, parts, **words)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_checkpoint_comes_back_as_it_was_written(sample: Any, run: str, shards: int) -> None:
    """Scalars, empty tensors, counters, names with dots, and shards that own nothing of a region included."""
    size_bytes = sample.save(run, 1, 4, shards)
    checkpoint = newest_whole(run)
    assert sample.version_of(checkpoint) == 4
    assert checkpoints_of(run) == [checkpoint.summary]
    assert checkpoint.summary.size_bytes == size_bytes
    assert (checkpoint.number, checkpoint.summary.time_s, len(checkpoint.shards)) == (1, 4.0, shards)


@pytest.mark.parametrize("written", SHARDS)
@pytest.mark.parametrize("read", SHARDS)
def test_a_checkpoint_is_restored_on_any_number_of_shards(
    sample: Any, memory_run: str, written: int, read: int
) -> None:
    sample.save(memory_run, 1, 4, written)
    checkpoint, layout = load_checkpoint(memory_run), sample.layout(read)
    for shard in range(read):
        state = checkpoint.shard_state(layout, shard, sample.slots)
        expected = sample.state(4, layout, shard)
        assert state.keys() == expected.keys()
        for key, vector in expected.items():
            assert (state[key].dtype, state[key].tolist()) == (vector.dtype, vector.tolist())


@st.composite
def models(draw: st.DrawFn) -> tuple[TensorSpec, ...]:
    dtypes = {"parameter": ["float32", "float64"], "buffer": ["float32", "int64", "bool", "uint8", "float16"]}
    specs = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["parameter", "buffer"]))
        shape = draw(st.lists(st.integers(0, 6), max_size=3))
        dtype = draw(st.sampled_from(dtypes[kind]))
        specs.append(TensorSpec(f"layer.{number}", tuple(shape), dtype, kind, draw(st.integers(0, 1))))
    return tuple(specs)


@settings(max_examples=25)
@given(models(), st.integers(1, 7), st.integers(1, 7), st.integers(1, 200))
def test_any_model_comes_back_on_any_number_of_shards(
    sample_of: Any, specs: tuple[TensorSpec, ...], written: int, read: int, chunk_bytes: int
) -> None:
    """Whatever the shapes, the types, the groups and the size of chunks."""
    sample, store = sample_of(specs, ("momentum",), chunk_bytes), f"memory://{uuid4().hex}"
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    sample.save(store, 1, 4, written)
    checkpoint, layout = newest_whole(store), sample.layout(read)
    assert sample.version_of(checkpoint) == 4
    for shard in range(read):
        state, expected = checkpoint.shard_state(layout, shard, ("momentum",)), sample.state(4, layout, shard)
        assert {key: vector.tolist() for key, vector in state.items()} == {k: v.tolist() for k, v in expected.items()}
    fsspec.filesystem("memory").rm(store, recursive=True)


def test_a_shard_goes_on_from_a_checkpoint(memory_run: str, sample_of: Any) -> None:
    """What another number of shards wrote is what `Shard.restore` takes; half precision travels as its bits."""
    specs = (
        TensorSpec("w", (4, 3), "float32", "parameter"),
        TensorSpec("seen", (5,), "int64", "buffer"),
        TensorSpec("scale", (7,), "bfloat16", "buffer"),
    )
    sample = sample_of(specs)

    def shards(number: int) -> list[Shard]:
        layout = Layout.of(specs, shards=number)
        storage = [(allocate(layout, shard), allocate(layout, shard)) for shard in range(number)]
        return [Shard(layout, i, Adam(), allocate(layout, i), storage[i]) for i in range(number)]

    old, new = shards(2), shards(3)
    writer, parts = CheckpointWriter(memory_run, 1, sample.contents(2)), []
    for shard in old:
        for key, vector in shard.state().items():
            vector.copy_(torch.arange(len(vector)) + len(key))
        parts.append(writer.write_shard(shard.index, shard.state(), position=5, version=6, plain={"commits": 5}))
    seal(memory_run, 1, parts, positions=[5, 5], state={}, time_s=0.0)
    checkpoint = load_checkpoint(memory_run)
    for shard in new:
        arrays = checkpoint.shard_state(shard.layout, shard.index, ["exp_avg", "exp_avg_sq"])
        state = {key: torch.from_numpy(array) for key, array in arrays.items()}
        state["buffer.bfloat16"] = state["buffer.bfloat16"].view(torch.bfloat16)
        shard.restore(state, version=6, commits=5)
    for key in old[0].state():
        whole = [torch.cat([shard.state()[key] for shard in shards]) for shards in (old, new)]
        assert torch.equal(*whole)


def test_a_checkpoint_is_readable_with_plain_zarr(sample: Any, run: str) -> None:
    """Arrays of the model's shapes by name, in groups that can be listed, with the version as attribute."""
    sample.save(run, 12, 4)
    root = zarr.open_group(run, mode="r")
    assert root["checkpoints/00000012"].attrs["psplatform"] == {"number": 12, "version": 4, "positions": [4, 4, 4]}
    assert list(zarr.open_group(run, mode="r", path="checkpoints").group_keys()) == ["00000012"]
    for place, slot in {"model": None, "optimizer/exp_avg": "exp_avg", "optimizer/exp_avg_sq": "exp_avg_sq"}.items():
        group = zarr.open_group(run, mode="r", path=f"checkpoints/00000012/{place}")
        expected = sample.tensors(4, slot)
        assert sorted(name for name, _ in group.arrays()) == sorted(expected)
        for name, tensor in expected.items():
            array: Any = root[f"checkpoints/00000012/{place}/{name}"]
            assert (array.shape, array.dtype, array.attrs["psplatform"]) == (tensor.shape, tensor.dtype, {"name": name})
            assert np.asarray(array[...]).tobytes() == tensor.tobytes()


def test_the_example_reads_a_checkpoint_without_psplatform(sample: Any, tmp_path: Path) -> None:
    """The newest one; it prints names, shapes and the version."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    for number in (1, 2):
        sample.save(store, number, 10 * number)
    program = Path(__file__).resolve().parents[2] / "examples" / "read_checkpoint.py"
    assert "import psplatform" not in program.read_text()
    done = subprocess.run([sys.executable, str(program), store], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == f"checkpoint 2 of {store}, version 20"
    largest = sample.tensors(20)["fc.1.weight"].max()
    assert f"  fc.1.weight: float32[5, 7], largest {largest:.6g}" in lines
    assert len(lines) == 1 + len(sample.specs)
    assert done.stderr == ""


def test_who_writes_a_part_needs_neither_zarr_nor_torch() -> None:
    """A shard's process is small, and the first part is not late for an import."""
    program = "import sys, psplatform.replication.checkpoints.parts; print({'zarr', 'torch'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", ["a/b", "..", "", "zarr.json", "__init__", "größe", "100%", "c", "x y#z?"])
def test_any_name_of_a_tensor_can_be_stored(run: str, sample_of: Any, name: str) -> None:
    """Where no path can hold the name, the array's attribute says it."""
    sample = sample_of((TensorSpec(name, (3,), "float32", "parameter"), TensorSpec("a", (2,), "float32", "parameter")))
    sample.save(run, 1, 4, 2)
    assert sample.version_of(newest_whole(run)) == 4
    group = zarr.open_group(run, mode="r", path="checkpoints/00000001/model")
    found: dict[str, Any] = {array.attrs["psplatform"]["name"]: array for _, array in group.arrays()}
    assert np.asarray(found[name][...]).tolist() == sample.tensors(4)[name].tolist()


def test_no_two_shards_write_the_same_object(sample: Any, memory_run: str) -> None:
    parts = sample.write(memory_run, 1, 4)
    paths = [[o.path for o in part.objects] + [f.stored.path for f in part.fragments] for part in parts]
    assert all(paths)
    assert len({path for part in paths for path in part}) == sum(len(part) for part in paths)


def test_the_shards_may_be_written_at_once_and_in_any_order(sample: Any, run: str) -> None:
    contents = sample.contents(5)
    writer = CheckpointWriter(run, 1, contents)

    def write(shard: int) -> Any:
        state = sample.state(4, contents.layout, shard)
        return writer.write_shard(shard, state, position=4, version=4, plain=sample.plain(4, shard))

    with ThreadPoolExecutor(5) as pool:
        parts = list(pool.map(write, [3, 0, 4, 1, 2]))
    seal(run, 1, parts, positions=[4] * 5, state={"clocks": {1: 4}}, time_s=0.0)
    assert sample.version_of(newest_whole(run)) == 4


def test_nothing_but_the_checkpoint_is_left(sample: Any, run: str) -> None:
    """Fragments are gone, and every object there is named in the manifest."""
    sample.save(run, 1, 4)
    files, root = fsspec.url_to_fs(run)
    folder = f"{root}/checkpoints/00000001/"
    found = {path.removeprefix(folder) for path in files.find(folder)}
    manifest = json.loads(files.cat_file(f"{folder}manifest.jsonl").splitlines()[1])
    assert found == {*manifest["objects"], "manifest.jsonl"}


def test_a_checkpoint_that_was_not_sealed_is_never_read(sample: Any, run: str) -> None:
    sample.save(run, 1, 4)
    sample.write(run, 2, 5)
    assert sample.version_of(newest_whole(run)) == 4
    assert sample.version_of(load_checkpoint(run)) == 4
    assert [summary.number for summary in checkpoints_of(run)] == [1]
    with pytest.raises(
        CheckpointError, match="holds no complete checkpoint 2; choose one of those it holds: 1"
    ) as info:
        load_checkpoint(run, 2)
    assert (info.value.number, info.value.previous) == (2, 1)


def test_numbers_grow_past_what_was_only_begun(sample: Any, run: str) -> None:
    assert next_number(run) == 1
    sample.save(run, 1, 4)
    sample.write(run, 2, 5)
    assert next_number(run) == 3


def test_an_older_checkpoint_can_be_asked_for(sample: Any, run: str) -> None:
    for number in (1, 2, 3):
        sample.save(run, number, 10 * number, shards=number)
    assert sample.version_of(load_checkpoint(run, 2)) == 20
    assert [(s.number, s.version) for s in checkpoints_of(run)] == [(1, 10), (2, 20), (3, 30)]


def test_sealing_again_changes_nothing(sample: Any, run: str) -> None:
    """Whoever does not know whether the first attempt went through may try again."""
    parts = sample.write(run, 1, 4)
    assert _seal(run, parts) == _seal(run, parts)
    assert load_checkpoint(run).summary.version == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda parts: parts[:2], r"parts of shards \[0, 1\] where it needs \[0, 1, 2\]"),
        (lambda parts: parts[1:], "it has no part of shard 0"),
        (lambda parts: [], "it has no part of shard 0"),
        (lambda parts: [*parts, parts[0]], r"parts of shards \[0, 0, 1, 2\]"),
        (lambda parts: [*parts[:2], replace(parts[2], position=5)], r"cut at \[4, 4, 5\] and not at \[4, 4, 4\]"),
        (lambda parts: [*parts[:2], replace(parts[2], number=7)], "belongs to checkpoint 7"),
        (lambda parts: [*parts[:2], replace(parts[2], objects=())], "its parts lack "),
        (lambda parts: [*parts[:2], replace(parts[2], fragments=())], "its parts lack elements of "),
        (lambda parts: [*parts[:2], replace(parts[2], plain={"x": object()})], "not made of plain values"),
        (lambda parts: [*parts[:2], replace(parts[2], plain={"x": 1 << 70})], "not made of plain values"),
    ],
)
def test_parts_that_do_not_fit_are_not_sealed(
    sample: Any, memory_run: str, change: Callable[[Any], Any], reason: str
) -> None:
    parts = sample.write(memory_run, 1, 4)
    with pytest.raises(StoreError, match=f"checkpoint 1 of .* cannot be completed because .*{reason}"):
        _seal(memory_run, change(parts))
    assert checkpoints_of(memory_run) == []


def test_a_number_is_not_taken_twice(sample: Any, memory_run: str) -> None:
    sample.save(memory_run, 1, 4)
    parts = [replace(part, version=9) for part in sample.write(memory_run, 1, 4)]
    with pytest.raises(StoreError, match="there is one already"):
        _seal(memory_run, parts)


def test_a_state_that_is_not_the_shards_is_our_bug(sample: Any, memory_run: str) -> None:
    writer = CheckpointWriter(memory_run, 1, sample.contents(3))
    with pytest.raises(InvariantViolation):
        writer.write_shard(0, sample.state(4, sample.layout(2), 0), position=4, version=4, plain={})


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"w": ("float32", (32, 64))}, r"model parameter 'w' is float32\[32, 64\] in the job and float32\[16, 64\] in"),
        ({"w": ("float64", (16, 64))}, r"'w' is float64\[16, 64\] in the job and float32\[16, 64\] in the checkpoint;"),
        ({}, r"model parameter 'w' is float32\[16, 64\] in the checkpoint and missing in the job"),
        (
            {"w": ("float32", (16, 64)), "v": ("float32", (1,))},
            r"'v' is float32\[1\] in the job and missing in the checkpoint; recover with the model",
        ),
    ],
)
def test_the_first_tensor_that_differs_is_named(
    memory_run: str, sample_of: Any, specs: dict[str, Any], message: str
) -> None:
    sample_of((TensorSpec("w", (16, 64), "float32", "parameter"), TensorSpec("b", (2,), "float32", "buffer"))).save(
        memory_run, 1, 4
    )
    named = [TensorSpec(name, shape, dtype, "parameter") for name, (dtype, shape) in specs.items()]
    job = Layout.of([*named, TensorSpec("b", (2,), "float32", "buffer")], shards=1)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_checkpoint(memory_run).shard_state(job, 0, ["exp_avg", "exp_avg_sq"])
    assert caught.value.field == "model"


def test_a_buffer_is_no_parameter(memory_run: str, sample_of: Any) -> None:
    sample_of((TensorSpec("w", (2,), "float32", "parameter"),)).save(memory_run, 1, 4)
    job = Layout.of([TensorSpec("w", (2,), "float32", "buffer")], shards=1)
    with pytest.raises(ConfigurationError, match="'w' is a buffer in the job and a parameter in the checkpoint"):
        load_checkpoint(memory_run).shard_state(job, 0, ["exp_avg", "exp_avg_sq"])


@pytest.mark.parametrize(("slots", "words"), [((), "no state"), (("momentum",), "momentum")])
def test_an_optimizer_that_differs_is_named(sample: Any, memory_run: str, slots: Any, words: str) -> None:
    sample.save(memory_run, 1, 4)
    message = f"the optimizer keeps {words} in the job and exp_avg and exp_avg_sq in the checkpoint; recover with"
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_checkpoint(memory_run).shard_state(sample.layout(2), 0, slots)
    assert caught.value.field == "optimizer"


@pytest.mark.parametrize("read", [load_checkpoint, newest_whole])
def test_a_run_without_a_checkpoint_says_so(run: str, read: Callable[[str], Any]) -> None:
    assert checkpoints_of(run) == []
    with pytest.raises(StoreError, match="holds no complete checkpoint; start the run again"):
        read(run)


@pytest.mark.parametrize("read", [load_checkpoint, newest_whole, checkpoints_of])
def test_a_place_without_a_run_says_so(tmp_path: Path, read: Callable[[str], Any]) -> None:
    with pytest.raises(StoreError, match="there is no run in .*; check the path"):
        read(str(tmp_path / "nothing"))
    zarr.open_group(str(tmp_path / "foreign"), mode="w")
    with pytest.raises(StoreError, match="holds no run of psplatform"):
        read(str(tmp_path / "foreign"))
    with pytest.raises(StoreError, match="carrier-pigeon"):
        read("carrier-pigeon://coop/run.zarr")


def test_the_newest_complete_ones_are_kept(sample: Any, run: str) -> None:
    for number in (1, 2, 3, 4):
        sample.save(run, number, 10 * number)
    assert prune(run, 2, writing=None) == [1, 2]
    assert [summary.number for summary in checkpoints_of(run)] == [3, 4]
    assert next_number(run) == 5
    assert sample.version_of(load_checkpoint(run, 3)) == 30


def test_a_checkpoint_loses_its_manifest_first(sample: Any, memory_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists the store meanwhile is not offered half of it."""
    for number in (1, 2, 3):
        sample.save(memory_run, number, 10 * number)
    removed: list[str] = []
    remove = MemoryFileSystem.rm_file

    def recorded(files: MemoryFileSystem, path: str) -> None:
        removed.append(path.partition("/checkpoints/")[2])
        remove(files, path)

    with monkeypatch.context() as watched:
        watched.setattr(MemoryFileSystem, "rm_file", recorded)
        prune(memory_run, 1, writing=None)
    for folder in ("00000001", "00000002"):
        first, *others = [path for path in removed if path.startswith(folder)]
        assert first == f"{folder}/manifest.jsonl"
        assert others


def test_what_is_being_written_is_left_alone(sample: Any, run: str) -> None:
    """And what others left unfinished is removed, but does not count as kept."""
    sample.save(run, 1, 10)
    sample.write(run, 2, 20)
    sample.save(run, 3, 30)
    parts = sample.write(run, 4, 40)
    assert prune(run, 2, writing=4) == [2]
    seal(run, 4, parts, positions=[40] * 3, state={"clocks": {1: 40}}, time_s=0.0)
    assert sample.version_of(newest_whole(run)) == 40
    assert prune(run, 1, writing=5) == [1, 3]


def test_a_damaged_checkpoint_takes_no_place_of_a_whole_one(sample: Any, memory_run: str) -> None:
    for number in (1, 2, 3):
        sample.save(memory_run, number, number)
    files = fsspec.filesystem("memory")
    files.rm(f"{memory_run}/checkpoints/00000003/state.msgpack")
    assert prune(memory_run, 1, writing=None) == [1]
    assert sample.version_of(newest_whole(memory_run)) == 2


def test_fragments_that_were_not_removed_are_removed_later(sample: Any, memory_run: str) -> None:
    sample.save(memory_run, 1, 4)
    sample.write(memory_run, 1, 4)
    files = fsspec.filesystem("memory")
    assert files.exists(f"{memory_run}/checkpoints/00000001/fragments")
    assert prune(memory_run, 1, writing=None) == []
    assert not files.exists(f"{memory_run}/checkpoints/00000001/fragments")
    assert sample.version_of(newest_whole(memory_run)) == 4


def _held(store: str) -> set[int]:
    files, root = fsspec.url_to_fs(store)
    files.invalidate_cache()
    return {int(path.split("/checkpoints/")[1][:8]) for path in files.find(root) if "/checkpoints/0" in path}


def test_of_one_that_is_given_up_everything_is_removed(sample: Any, run: str) -> None:
    """And nothing of the one before, nor of the one that is being written."""
    sample.save(run, 1, 10)
    sample.write(run, 2, 20)
    parts = sample.write(run, 3, 30)
    discard(run, 2)
    discard(run, 2)  # it is gone already
    assert _held(run) == {1, 3}
    seal(run, 3, parts, positions=[30] * 3, state={"clocks": {1: 30}}, time_s=0.0)
    assert [sample.version_of(load_checkpoint(run, number)) for number in (1, 3)] == [10, 30]


def test_one_that_was_sealed_all_the_same_is_not_removed(sample: Any, memory_run: str) -> None:
    sample.save(memory_run, 1, 10)
    discard(memory_run, 1)
    assert sample.version_of(newest_whole(memory_run)) == 10


def test_one_that_is_damaged_is_not_removed(sample: Any, memory_run: str) -> None:
    """It stays for inspection."""
    sample.save(memory_run, 1, 10)
    fsspec.filesystem("memory").pipe_file(f"{memory_run}/checkpoints/00000001/manifest.jsonl", b"half")
    discard(memory_run, 1)
    assert _held(memory_run) == {1}


def test_what_is_written_after_it_was_removed_goes_with_the_next_seal(sample: Any, run: str) -> None:
    sample.write(run, 1, 10)
    discard(run, 1)
    sample.write(run, 1, 10)  # by a copy that was given up and woke later
    sample.save(run, 2, 20)
    assert prune(run, 1, writing=3) == [1]
    assert _held(run) == {2}
    assert sample.version_of(newest_whole(run)) == 20


def test_at_least_one_checkpoint_is_kept(run: str) -> None:
    with pytest.raises(ValueError, match="at least one"):
        prune(run, 0, writing=None)


def test_two_runs_do_not_see_each_other(sample: Any, tmp_path: Path) -> None:
    stores = [str(tmp_path / name) for name in ("a", "b")]
    for version, store in enumerate(stores, start=1):
        create_run(store, {"run": store})
        sample.save(store, 1, version)
    assert [sample.version_of(newest_whole(store)) for store in stores] == [1, 2]
