"""Cold replicas: the newest state that is whole is read, whatever a failed write or a server before has left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psplatform.core.protocol.messages import Commit, Contribution, Past
from psplatform.errors import StoreError
from psplatform.replication.cold import ColdCopy, ColdState
from psplatform.replication.stores.checksums import Data, fingerprint


def state(position: int, *, epoch: int = 1, size: int = 3) -> ColdState:
    vectors = {"w": np.full(size, position, np.float32), "momentum.w": np.full(size, -position, np.float32)}
    past = Past(Commit(1, epoch, position, position + 1, (Contribution("a", 0, position),), 0.5), (0.25,))
    return ColdState(epoch, position, position + 1, {0: position, 3: 1}, position, vectors, (past,))


def same(found: ColdState | None, wanted: ColdState) -> bool:
    def plain(one: ColdState) -> tuple[Any, ...]:
        vectors = {name: (str(vector.dtype), vector.tolist()) for name, vector in one.vectors.items()}
        return one.epoch, one.position, one.version, dict(one.applied), one.commits, vectors, one.past

    return found is not None and plain(found) == plain(wanted)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[..., ColdCopy]:
    """Open the cold replica of shard 0, as a process does that has not opened it before."""
    return lambda term=1: ColdCopy(str(tmp_path), 0, term)


def test_what_was_written_last_is_read(copy: Callable[..., ColdCopy]) -> None:
    writer = copy()
    assert copy().read() is None
    for position in (2, 5, 9):
        assert writer.write(state(position)) == 24
        assert same(copy().read(), state(position))


def test_checksums_of_before_they_named_their_kind_are_read_too(
    copy: Callable[..., ColdCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fingerprint(bytearray):
        def add(self, data: Data) -> None:
            self.extend(data)

        def __str__(self) -> str:
            return fingerprint(bytes(self))

    with monkeypatch.context() as earlier:
        earlier.setattr("psplatform.replication.stores.objects.Checksum", Fingerprint)
        copy().write(state(2))
    assert same(copy().read(), state(2))


def test_a_server_that_was_replaced_spoils_nothing(copy: Callable[..., ColdCopy]) -> None:
    before, after = copy(), copy()
    before.write(state(8))
    after.write(state(6, epoch=2))
    before.write(state(20))
    assert same(copy().read(), state(6, epoch=2))


def test_a_recovered_run_reads_nothing_of_what_it_had_kept_before(copy: Callable[..., ColdCopy]) -> None:
    """It begins at a checkpoint, further back, with epoch 1 and perhaps other shards."""
    copy(1).write(state(100, epoch=3, size=7))
    assert copy(4).read() is None
    copy(4).write(state(85))
    assert same(copy(4).read(), state(85))


def kept(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / "cold")) for path in folder.glob("cold/*/*/*"))


def test_what_nobody_reads_any_more_is_removed(copy: Callable[..., ColdCopy], tmp_path: Path) -> None:
    """Earlier epochs of the shard, and no other shard's; nothing of a server that has replaced this one."""
    other = ColdCopy(str(tmp_path), 1, 1)
    other.write(state(1))
    for epoch in (1, 2, 3):
        copy().write(state(10 * epoch, epoch=epoch))
    copy().prune(2)
    assert kept(tmp_path) == [
        f"00000001/shard-{place}" for place in ("00000/00000002", "00000/00000003", "00001/00000001")
    ]
    assert same(copy().read(), state(30, epoch=3))
    assert same(other.read(), state(1))


def test_with_a_state_of_the_recovered_run_the_first_shard_removes_what_was_kept_before(
    copy: Callable[..., ColdCopy], tmp_path: Path
) -> None:
    for shard in (0, 1):
        ColdCopy(str(tmp_path), shard, 1).write(state(100, epoch=3))
    second = ColdCopy(str(tmp_path), 1, 4)
    second.write(state(85))
    second.prune(1)
    assert len(kept(tmp_path)) == 3, "two that remove the same would stop half way"
    copy(4).write(state(85))
    copy(4).prune(1)
    assert kept(tmp_path) == ["00000004/shard-00000/00000001", "00000004/shard-00001/00000001"]


def test_a_server_that_wakes_up_leaves_what_its_successor_reads(copy: Callable[..., ColdCopy], tmp_path: Path) -> None:
    """What it writes is removed with the next epoch, and nobody reads it before."""
    before, after = copy(), copy()
    before.write(state(8))
    after.write(state(6, epoch=2))
    after.prune(2)
    before.write(state(20))
    before.prune(1)
    assert same(copy().read(), state(6, epoch=2))
    copy().write(state(7, epoch=3))
    copy().prune(3)
    assert kept(tmp_path) == ["00000001/shard-00000/00000003"]


@pytest.mark.parametrize("torn", ["1.msgpack", "1/w", "1/momentum.w"])
def test_a_state_that_is_torn_is_passed_over_for_the_one_before(
    copy: Callable[..., ColdCopy], tmp_path: Path, torn: str
) -> None:
    writer = copy()
    for position in (2, 5):
        writer.write(state(position))
    (path,) = tmp_path.glob(f"cold/*/*/*/{torn}")
    path.write_bytes(path.read_bytes()[:-1])
    assert same(copy().read(), state(2))


@pytest.mark.parametrize(("damaged", "flaw"), [("0/w", "checksum differs"), ("0.msgpack", "not as it was written")])
def test_where_all_is_damaged_the_error_names_the_remedy(
    copy: Callable[..., ColdCopy], tmp_path: Path, damaged: str, flaw: str
) -> None:
    """It is no state in which the run began: then more would be lost than the bound, and nobody would notice."""
    copy().write(state(2))
    (path,) = tmp_path.glob(f"cold/*/*/*/{damaged}")
    path.write_bytes(b"x" * len(path.read_bytes()))
    with pytest.raises(StoreError, match=f"shard 0 .* is damaged .*{flaw}.*; recover the run from a checkpoint"):
        copy().read()
