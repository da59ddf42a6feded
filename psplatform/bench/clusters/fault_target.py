"""A run on a cluster of this machine whose processes are hurt, and that is looked at from beside."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import torch

from psplatform.bench.faults.segment_reader import SegmentReader, Vectors
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.launch import train
from psplatform.core.protocol.messages import Pull
from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.survival import NOTHING
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job
from psplatform.runtime.comms.calls import Peer, PeerLost, call
from psplatform.runtime.dataplane.pulls.content import Answer
from psplatform.runtime.program import open_task, pickle_task
from psplatform.tensors.vectors import allocate

Record = dict[str, Any]

LIMIT_S: Final = 120.0
"""Whatever is waited for: a lease of a busy machine, a process that starts, a copy of a large shard."""

_POLL_S: Final = 0.002
_ASK_S: Final = 0.1
_CALL_S: Final = 15.0


class FaultTarget:
    """A run of `job` with so many processes; a context that leaves nothing behind."""

    def __init__(self, job: Job, processes: int) -> None:
        settings = {"seed": job.seed, "shards": job.shards, "block_elements": job.block_elements}
        _, self.layout = open_task(pickle_task(job.task, {}), job.optimizer, settings, torch.device("cpu"))
        self._folder = tempfile.TemporaryDirectory()
        self._processes = processes
        self._cluster, self._client = start_cluster(processes)
        self._stopped: set[int] = set()
        store = str(Path(self._folder.name) / "run.zarr")
        try:
            self.run = train(job.model_copy(update={"store": store}), self._client)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, stopped processes too."""
        for pid in self._stopped:
            os.kill(pid, signal.SIGCONT)
        end_cluster(self._client, self._cluster)
        self._folder.cleanup()

    def standing(self) -> Record:
        """Return how the run stands, from the coordinator in charge."""
        give_up_at = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.run.standing()
            except PeerLost:
                self._require_going()
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(_ASK_S)

    def _require_going(self) -> None:
        status = self.run.status()
        if status["failure"] is not None:
            raise status["failure"]
        if status["phase"] == "over":
            raise ClusterError("the run is over before it was hurt as often as wanted")

    def whole(self) -> Record:
        """Return how the run stands once it is as it was before it was hurt.

        Every shard has a replica in sync, the coordinator a standby, and each process that was killed is there again:
        while it starts, it takes a core for seconds.
        """
        give_up_at = time.monotonic() + LIMIT_S
        scheduler: Any = self._cluster.scheduler
        while True:
            standing = self.standing()
            covered = all(one["in_sync"] and not one["promoting"] for one in standing["shards"])
            if covered and standing["stands_by"] and len(scheduler.workers) == self._processes:
                return standing
            if time.monotonic() > give_up_at:
                raise ClusterError(f"not within {LIMIT_S:g} s: the run is whole again; it is {standing}")
            time.sleep(_ASK_S)

    def look(self, peer: Peer, shard: int) -> SegmentReader:
        """Map a copy's segment."""
        _, name = self._call(peer, "attach", "bench", None)
        return SegmentReader(self.layout, shard, name)

    def room(self, shard: int) -> Vectors:
        """Return memory for a shard's content, touched already."""
        vectors = allocate(self.layout, shard)
        for vector in vectors.values():
            vector.fill_(1)
        return vectors

    def pid_at(self, address: str) -> int:
        """Return the process id of a Dask worker."""
        found: dict[str, int] = self._client.run(os.getpid, workers=[address])
        return found[address]

    def send(self, pid: int, sent: signal.Signals) -> None:
        """Send a signal to a process; one that is stopped is woken at the end."""
        if sent is signal.SIGSTOP:
            self._stopped.add(pid)
        self._stopped -= {pid} if sent is signal.SIGCONT else set()
        os.kill(pid, sent)

    def answers(self, peer: Peer, shard: int) -> bool:
        """Whether a copy answers pulls."""
        pull = encode(Pull("bench", shard, request=1, version=0))
        try:
            answer: Answer = self._call(peer, "pull", pull, False)
        except PeerLost:
            return False
        return answer.pulled is not None

    def failover(self, shard: int, epoch: int) -> Record:
        """Return what the log tells of a shard's promotion, once its first commit was made."""
        give_up_at = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up_at:
            for record in self.run.metrics().get("failovers", []):
                same = (record["role"], record["shard"], record["epoch"]) == ("server", shard, epoch)
                if same and record["first_commit_seconds"] is not None:
                    return dict(record)
            self._require_going()
            time.sleep(_ASK_S)
        raise ClusterError(f"not within {LIMIT_S:g} s: the log tells of the failover of shard {shard}")

    def protected_since(self, lost_at: float) -> float:
        """Return since when, in seconds of the run, it survives the loss of any one process, after one at `lost_at`."""
        give_up_at = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up_at:
            found = self.run.metrics().get("survives") or {"what": NOTHING, "since": 0.0}
            if found["what"] != NOTHING and found["since"] > lost_at:
                return float(found["since"])
            self._require_going()
            time.sleep(_ASK_S)
        raise ClusterError(f"not within {LIMIT_S:g} s: the run is protected again; it survives {found}")

    def _call(self, peer: Peer, method: str, *arguments: Any) -> Any:
        return self._client.sync(call, self._client.rpc, peer, method, *arguments, deadline_s=_CALL_S)


class Watch:
    """Sees in a thread of its own when a replica is promoted, and when it shows its first commit.

    Attributes
    ----------
    place, version
        Where the newest version was when the replica was promoted, and which it was.
    resumed
        The version of its first commit.
    promoted_at, resumed_at
        Monotonic times; 0 before.
    """

    def __init__(self, replica: SegmentReader) -> None:
        self._replica = replica
        self.epoch = replica.epoch
        self.place, self.version, self.resumed = replica.place, replica.version, 0
        self.promoted_at = self.resumed_at = 0.0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._promoted = threading.Event()
        self._thread.start()

    def _look(self) -> None:
        replica = self._replica
        self.promoted_at = _when(self._is_promoted)
        self._promoted.set()
        self.resumed_at = _when(lambda: replica.place != self.place)
        self.resumed = replica.version

    def _is_promoted(self) -> bool:
        place, version = self._replica.place, self._replica.version
        promoted = self._replica.epoch > self.epoch
        # The first thing it does may be to pass over lost versions: what it had before is what counts.
        if not promoted or place != self.place:
            self.place, self.version = place, version
        return promoted

    def wait_promoted(self, standing: Callable[[], Record]) -> None:
        """Wait until the replica is the server; an error says how the run stands."""
        if not self._promoted.wait(LIMIT_S):
            raise ClusterError(f"not within {LIMIT_S:g} s: a replica is promoted; the run is {standing()}")

    def wait_resumed(self, standing: Callable[[], Record]) -> None:
        """Wait until the new server has shown a commit of its own; an error says how the run stands."""
        self._thread.join(LIMIT_S)
        if not self.resumed_at:
            what = "makes a commit" if self.promoted_at else "is the server"
            raise ClusterError(f"not within {LIMIT_S:g} s: the promoted replica {what}; the run is {standing()}")


def _when(holds: Callable[[], bool]) -> float:
    give_up_at = time.monotonic() + LIMIT_S
    while not holds() and time.monotonic() < give_up_at:
        time.sleep(_POLL_S)
    return time.monotonic() if holds() else 0.0
