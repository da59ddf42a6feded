"""A disk that fills up under a run: training goes on, what could not be written is said, nothing that was is lost."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.parts import folder_of
from psplatform.replication.checkpoints.retention import checkpoints_of, newest_whole

Start = Callable[..., ps.Run]
Until = Callable[..., None]
Log = Callable[..., list[dict[str, Any]]]
LIMIT_S = 180.0
_KIB = 1024
_REFILL_S = 0.005


class SmallDisk:
    """A file system of 6 MiB: enough for some checkpoints of digits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self._cleared = threading.Event()
        self._filler = threading.Thread(target=self._keep_full)

    def fill(self) -> None:
        """Leave not a byte, and take what is removed as well, as others on the disk would, until it is cleared."""
        self._take_all()
        self._filler.start()

    def clear(self) -> None:
        """Make room again."""
        self.leave()
        self._ballast.unlink()

    def leave(self) -> None:
        """Take nothing more."""
        self._cleared.set()
        if self._filler.ident is not None:
            self._filler.join(LIMIT_S)

    def _keep_full(self) -> None:
        while not self._cleared.wait(_REFILL_S):
            self._take_all()

    def _take_all(self) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * _KIB)
            except OSError:
                return


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount a small disk, where this user may."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no file system can be mounted here ({error})")
    small = SmallDisk(folder)
    yield small
    small.leave()
    # Lazily: whatever becomes of the test, no process may keep the folder.
    unmount = ["umount", "-l", str(folder)]
    subprocess.run(unmount, check=True, timeout=LIMIT_S)


@pytest.fixture
def filled(start: Start, until: Until, disk: SmallDisk) -> Callable[[], tuple[ps.Run, int]]:
    """Fill the disk under a run that has two checkpoints; return it and the newer one's number when two more failed."""

    def begin() -> tuple[ps.Run, int]:
        run = start(
            workload="digits",
            optimizer=ps.SGD(lr=0.05, momentum=0.9),
            workers=2,
            shards=2,
            stragglers="constant:seconds=0.01",
            checkpoints=ps.Checkpoints(every_updates=10),
            stop=ps.Stop(updates=10**9),
            evaluate_every=None,
            torch_threads=1,
            store=str(disk.folder / "run.zarr"),
        )
        until(lambda: len(checkpoints_of(run.store)) >= 2, "two checkpoints")
        disk.fill()
        until(lambda: run.metrics()["checkpoint_failures"] >= 2, "two checkpoints that failed")
        return run, checkpoints_of(run.store)[-1].number

    return begin


def assert_visible(run: ps.Run, number: int) -> None:
    """Who looks at a run is told that checkpoints fail, why, and which one is the newest."""
    summary = run.metrics()
    failed = [one["text"] for one in summary["incidents"] if one["kind"] == "checkpoint"]
    assert len(failed) >= 2
    assert all("No space left on device" in text and "free or mend it" in text for text in failed)
    assert summary["checkpoints"][-1]["number"] == number == newest_whole(run.store).number


def test_training_goes_on_while_the_disk_is_full(
    filled: Callable[[], tuple[ps.Run, int]], disk: SmallDisk, until: Until, log: Log
) -> None:
    """What failed takes no room; with room again, there are new checkpoints, and no record is missing."""
    run, number = filled()
    assert_visible(run, number)
    reached = run.metrics()["updates"]
    until(lambda: run.metrics()["updates"] >= reached + 10, "training goes on")
    until(lambda: run.status()["trouble"], "the log waits in memory")
    left = Path(run.store) / "checkpoints" / folder_of(number + 1)
    until(lambda: not left.exists(), "the room that the first one that failed took is free again")
    disk.clear()
    until(lambda: checkpoints_of(run.store)[-1].number > number, "a new checkpoint")
    run.stop("seen enough")
    summary = run.wait(LIMIT_S)
    assert summary["outcome"] == "stopped"
    assert len([one for one in log(run, "checkpoint") if one["event"] == "failed"]) == summary["checkpoint_failures"]
    assert [one["version"] for one in log(run, "commit")] == list(range(1, summary["updates"] + 1))


def test_a_replica_that_waits_for_room_in_the_store_says_so(start: Start, disk: SmallDisk, until: Until) -> None:
    """Training stops at the bound with it, and goes on with it.

    One shard: of several, one whose replica is level has nothing to send while another one waits for room.
    """
    run = start(
        workload="digits",
        optimizer=ps.SGD(lr=0.05, momentum=0.9),
        workers=2,
        shards=1,
        replication=ps.Bounded(target="store"),
        checkpoints=ps.Checkpoints.never(),
        stop=ps.Stop(updates=10**9),
        evaluate_every=None,
        torch_threads=1,
        store=str(disk.folder / "run.zarr"),
    )
    until(lambda: run.metrics()["updates"] >= 20, "training begins")
    disk.fill()

    def told() -> list[str]:
        return [one["text"] for one in run.metrics()["incidents"] if one["kind"] == "cold replica"]

    until(lambda: len(told()) == 1, "what the shard waits for")
    assert all("No space left on device" in text and "training waits for its replica" in text for text in told())
    reached = run.metrics()["updates"]
    disk.clear()
    until(lambda: run.metrics()["updates"] >= reached + 20, "training goes on")
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"


def test_a_disk_that_stays_full_costs_the_model_and_not_the_checkpoint(
    filled: Callable[[], tuple[ps.Run, int]], disk: SmallDisk, client: Client
) -> None:
    """The run says at its end that it could not save; with room again, it goes on from the newest checkpoint."""
    run, number = filled()
    run.stop("seen enough")
    with pytest.raises(StoreError, match=r"cannot write the model to .*No space left on device\); make room there"):
        run.wait(LIMIT_S)
    assert_visible(run, number)
    assert "No space left on device" in run.status()["trouble"], "what the store lacks of the log"
    disk.clear()
    cut = newest_whole(run.store).summary.version
    again = recover(run.store, client, stop=ps.Stop(updates=cut + 5))
    summary = again.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"]) == ("updates", cut + 5)
    assert again.parameters()[1] == cut + 5
