"""What rotted, was cut short or went missing is noticed, named, and gone round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fsspec
import pytest

from psplatform.errors import CheckpointError, from_plain, to_plain
from psplatform.replication.checkpoints.manifest import BrokenManifest, Manifest
from psplatform.replication.checkpoints.retention import checkpoints_of, held_checkpoints, load_checkpoint, newest_whole
from psplatform.replication.stores.objects import ObjectFolder

FILES = fsspec.filesystem("memory")


def _objects(store: str) -> list[str]:
    return sorted(FILES.find(f"{store}/checkpoints/00000002"))


def _flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x04
    return bytes(changed)


def _load_all(store: str) -> None:
    load_checkpoint(store).verify()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: _flipped(data, 0), id="first-byte-flipped"),
        pytest.param(lambda data: _flipped(data, len(data) // 2), id="middle-byte-flipped"),
        pytest.param(lambda data: _flipped(data, -1), id="last-byte-flipped"),
        pytest.param(lambda data: data[:-1], id="cut-short"),
        pytest.param(lambda data: data + b"\n", id="too-long"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_a_change_of_any_object_is_noticed(sample: Any, memory_run: str, change: Callable[[bytes], bytes]) -> None:
    """Of each object in turn; the error names it and the checkpoint before."""
    sample.save(memory_run, 1, 4)
    sample.save(memory_run, 2, 5, shards=2)
    for path in _objects(memory_run):
        whole = FILES.cat_file(path)
        FILES.pipe_file(path, change(whole))
        _expect_named(memory_run, path)
        assert sample.version_of(newest_whole(memory_run)) == 4
        FILES.pipe_file(path, whole)
    assert sample.version_of(newest_whole(memory_run)) == 5


def test_a_missing_object_is_noticed(sample: Any, memory_run: str) -> None:
    """Without its manifest a checkpoint is none, and no error."""
    sample.save(memory_run, 1, 4)
    sample.save(memory_run, 2, 5)
    for path in _objects(memory_run):
        whole = FILES.cat_file(path)
        FILES.rm(path)
        if not path.endswith("manifest.jsonl"):
            _expect_named(memory_run, path)
        assert sample.version_of(newest_whole(memory_run)) == 4
        assert [summary.number for summary in checkpoints_of(memory_run)] == [1]
        FILES.pipe_file(path, whole)


def _expect_named(store: str, path: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        _load_all(store)
    inside = path.partition("checkpoints/00000002/")[2]
    assert f"checkpoint 2 of {store} is damaged ({inside}: it " in f"{caught.value}".replace(": its ", ": it ")
    assert "; recover from checkpoint 1, the last complete one before it" in str(caught.value)
    assert (caught.value.number, caught.value.previous, caught.value.store) == (2, 1, store)


def test_damage_is_noticed_by_whoever_reads_the_object(sample: Any, memory_run: str) -> None:
    """Arrays are read when they are asked for, and verified then; shards that do not need the chunk go on."""
    sample.save(memory_run, 1, 4)
    path = f"{memory_run}/checkpoints/00000001/optimizer/exp_avg/fc.1.weight/c/0/0"
    FILES.pipe_file(path, _flipped(FILES.cat_file(path), 3))
    checkpoint, layout = load_checkpoint(memory_run), sample.layout(5)
    assert checkpoint.tensors().keys() == sample.tensors(4).keys()
    with pytest.raises(CheckpointError, match="start the run again in another store"):
        checkpoint.slots()
    with pytest.raises(CheckpointError):
        checkpoint.shard_state(layout, 0, sample.slots)
    assert checkpoint.shard_state(layout, 4, sample.slots).keys() == sample.state(4, layout, 4).keys()


def test_where_every_checkpoint_is_damaged_the_newest_is_named(sample: Any, memory_run: str) -> None:
    for number in (1, 2):
        sample.save(memory_run, number, 4)
        FILES.rm(f"{memory_run}/checkpoints/0000000{number}/state.msgpack")
    with pytest.raises(
        CheckpointError, match=r"checkpoint 2 of .* is damaged \(state\.msgpack: it is missing\)"
    ) as info:
        newest_whole(memory_run)
    assert info.value.previous is None


def test_what_a_store_holds_is_told_with_its_damage(
    sample: Any, memory_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was not sealed is none; one of a newer format hides no other."""
    assert held_checkpoints(memory_run) == []
    for number in (1, 2, 3, 4):
        sample.save(memory_run, number, 4)
    folder = f"{memory_run}/checkpoints/0000000"
    FILES.pipe_file(f"{folder}2/manifest.jsonl", b"{")
    FILES.pipe_file(f"{folder}3/state.msgpack", b"")
    FILES.rm(f"{folder}4/manifest.jsonl")
    with monkeypatch.context() as later:
        later.setattr("psplatform.replication.checkpoints.manifest.FORMAT", 4)
        sample.save(memory_run, 5, 4)
    held = held_checkpoints(memory_run)
    assert [(one.number, one.state) for one in held] == [
        (1, "complete"), (2, "damaged"), (3, "damaged"), (5, "unreadable"),
    ]  # fmt: skip
    assert [one.summary for one in held] == [load_checkpoint(memory_run, 1).summary, None, None, None]
    for one, words in zip(held[1:], ("manifest.jsonl: ", "state.msgpack: it has 0 bytes", "format 4"), strict=True):
        assert words in one.flaw


def test_one_that_is_pruned_while_it_is_looked_at_is_not_damaged(
    sample: Any, memory_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest was read just before, and its objects are gone."""
    sample.save(memory_run, 1, 4)
    sizes = ObjectFolder.sizes

    def pruned_before(folder: ObjectFolder, path: str) -> dict[str, int]:
        folder.remove(path)
        return sizes(folder, path)

    monkeypatch.setattr(ObjectFolder, "sizes", pruned_before)
    assert held_checkpoints(memory_run) == []


def test_the_one_before_is_a_complete_one(sample: Any, memory_run: str) -> None:
    for number in (1, 2, 3):
        sample.save(memory_run, number, 4)
    for number in (2, 3):
        FILES.rm(f"{memory_run}/checkpoints/0000000{number}/state.msgpack")
    with pytest.raises(CheckpointError, match="recover from checkpoint 1,"):
        load_checkpoint(memory_run)


def test_a_manifest_in_the_wrong_folder_is_none(sample: Any, memory_run: str) -> None:
    sample.save(memory_run, 1, 4)
    FILES.cp_file(
        f"{memory_run}/checkpoints/00000001/manifest.jsonl", f"{memory_run}/checkpoints/00000002/manifest.jsonl"
    )
    with pytest.raises(CheckpointError, match="it is that of checkpoint 1"):
        load_checkpoint(memory_run)


def test_no_part_of_a_manifest_is_a_manifest(sample: Any, memory_run: str) -> None:
    """Wherever a write was cut off, and whatever single byte changed."""
    sample.save(memory_run, 1, 4)
    data = FILES.cat_file(f"{memory_run}/checkpoints/00000001/manifest.jsonl")
    for length in range(0, len(data), 7):
        with pytest.raises(BrokenManifest):
            Manifest.from_bytes(data[:length], memory_run)
    for place in range(0, len(data), 7):
        with pytest.raises(BrokenManifest):
            Manifest.from_bytes(_flipped(data, place), memory_run)
    assert Manifest.from_bytes(data, memory_run).to_bytes() == data


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[]\n{}\n", b"7\n\n", b'{"psplatform_checkpoint": "1", "blake2b": 3}\n{}\n']
)
def test_something_else_is_no_manifest(data: bytes) -> None:
    with pytest.raises(BrokenManifest):
        Manifest.from_bytes(data, "store")


def test_the_error_survives_a_journey_as_plain_values() -> None:
    error = CheckpointError("checkpoint 2 is damaged", store="s", number=2, previous=None)
    back = from_plain(to_plain(error))
    assert isinstance(back, CheckpointError)
    assert (back.number, back.previous, back.store, str(back)) == (2, None, "s", "checkpoint 2 is damaged")
