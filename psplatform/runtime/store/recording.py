"""What the actors of a run did and saw, one file each, for a checker that knows nothing of how they decide.

`PSPLATFORM_HISTORY` names the folder; without it, nothing is recorded and nothing is computed for it.  A record is a
line of JSON, written at once: a process that is killed has recorded everything that it did before.  `at` is the host's
monotonic clock, of which the file's first record says whose it is.  `psplatform.bench.history` reads the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from psplatform.core.protocol.effects import Archive, Compute, Effect, Send, Serve
from psplatform.core.protocol.messages import Announce, Contribution, Pulled, Transfer
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import Server
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.program import Program
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import bytes_in

HISTORY: Final = "PSPLATFORM_HISTORY"
"""The environment variable that names the folder."""

_ALWAYS_DIGESTED_BYTES: Final = 1 << 20
_SAMPLED_EVERY: Final = 16
"""Of vectors larger than that, only every sixteenth position is digested: a digest costs a second per gigabyte."""

_CLOCK: Final = Path("/proc/sys/kernel/random/boot_id")

_NOTED: Final = frozenset(
    {"run", "commit", "promoted", "lost positions", "checkpoint", "joined", "left", "lost", "protection", "finished"}
)
"""Kinds of log records that say what the coordinator decided, or takes for lost."""


class Recorder:
    """One actor's file, from `begin` to `close`, where a folder is named."""

    def __init__(self) -> None:
        self._file = -1

    def begin(self, run: str, role: str, name: str, **began: Any) -> None:
        """Record from now on.

        Parameters
        ----------
        run
            The run's id.
        role
            ``copy``, ``worker`` or ``coordinator``.
        name
            Of the actor.
        began
            What the first record says beside that.
        """
        folder = os.environ.get(HISTORY, "")
        if not folder:
            return
        words = "-".join(re.sub(r"[^A-Za-z0-9._-]", "_", word) for word in (run, role, name))
        path = Path(folder) / f"{words}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        clock = _CLOCK.read_text(encoding="ascii").strip() if _CLOCK.exists() else socket.gethostname()
        where: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname(), "clock": clock}
        self.note("began", run=run, role=role, name=name, **where, **began)

    @property
    def records(self) -> bool:
        """Whether anything is recorded."""
        return self._file >= 0

    def note(self, kind: str, at: float | None = None, **fields: Any) -> None:
        """Append a record, of what happened at `at` on the monotonic clock, or now."""
        if self._file >= 0:
            when = {"at": time.monotonic() if at is None else at, "wall": time.time()}
            os.write(self._file, f"{json.dumps({'kind': kind, **when, **fields})}\n".encode())

    def close(self) -> None:
        """Record nothing more."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class CopyHistory:
    """What one copy of a shard applied, showed, loaded and answered."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._gathered: tuple[Contribution, ...] = ()

    def begin(self, program: Program, name: str, shard: Shard, part: Server | Replica) -> None:
        """Record from now on, beginning with what the copy is and where it stands."""
        self._shard = shard
        place = {"shard": shard.index, "shards": program.plan.shards, "serving": isinstance(part, Server)}
        self._recorder.begin(program.run, "copy", name, life=program.term, **place)
        self._note("stands", part.epoch, part.position, version=part.version)

    def gathered(self, contributions: tuple[Contribution, ...]) -> None:
        """Record what the next step is made of."""
        self._gathered = contributions

    def staged(self, epoch: int, position: int) -> None:
        """Record a step whose state is ready and not yet shown."""
        self._note("staged", epoch, position, applied=[(one.slot, one.sequence, one.member) for one in self._gathered])

    def shown(self, effect: Effect, part: Server | Replica) -> None:
        """Record what is about to be shown: a step, a position that is lost, or what a new server begins with."""
        if not self._recorder.records or not isinstance(part, Server):
            return
        if isinstance(effect, Serve):
            self._note("serves", part.epoch, part.position, version=effect.version)
            return
        links = {name: link.position for name in part.links.in_sync if (link := part.links.get(name)) is not None}
        account = {"distance": part.links.distance, "lag": part.links.lag, "in_sync": links}
        place: Any = effect
        kind = type(effect).__name__.lower()
        self._note(kind, part.epoch, place.position, version=place.version, term=part.term, **account)

    def loaded(self, transfer: Transfer) -> None:
        """Record the state that a transfer has brought a replica into, before the server hears of it."""
        place = {"server": transfer.server, "number": transfer.number, "by": transfer.kind}
        self._note("loaded", transfer.epoch, transfer.position, version=transfer.version, **place)

    def archived(self, effect: Archive, epoch: int) -> None:
        """Record the state that was copied for a checkpoint."""
        self._note("archived", epoch, effect.position, version=effect.version, number=effect.number)

    def answered(self, member: str, pulled: Pulled, decided_at: float) -> None:
        """Record that a pull is answered, and when that was decided."""
        fields = {"epoch": pulled.epoch, "version": pulled.version, "request": pulled.request}
        self._recorder.note("answered", decided_at, member=member, **fields)

    def close(self) -> None:
        """Record nothing more."""
        self._recorder.close()

    def _note(self, kind: str, epoch: int, position: int, **fields: Any) -> None:
        if self._recorder.records:
            state = self._shard.state()
            newest = {key: state[key] for key in self._shard.front}
            digests: dict[str, Any] = {"digest": digest(newest, position), "state": digest(state, position)}
            self._recorder.note(kind, epoch=epoch, position=position, **fields, **digests)


class WorkerHistory:
    """What one gradient worker pulled, computed and announced."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._slot = -1

    def begin(self, program: Program, member: str, shards: int, parameters: Parameters) -> None:
        """Record from now on; `parameters` take what is pulled."""
        self._recorder.begin(program.run, "worker", member, life=program.term)
        self._shards, self._parameters = range(shards), parameters

    def pulled(self, answer: Pulled) -> None:
        """Record an answer whose content is in place."""
        if self._recorder.records:
            place = {"shard": answer.shard, "epoch": answer.epoch, "version": answer.version}
            self._recorder.note("pulled", **place, digest=self._digest(answer.shard))

    def took(self, pulled: Pulled, at: float) -> None:
        """Record that what a server shows was taken without asking it, and when."""
        place = {"shard": pulled.shard, "epoch": pulled.epoch, "version": pulled.version}
        self._recorder.note("took", at, **place)

    def does(self, effect: Effect) -> None:
        """Record what a gradient is computed on, with its batch, and what is said of it."""
        if not self._recorder.records:
            return
        if isinstance(effect, Compute):
            self._slot, assignment = effect.slot, effect.assignment
            place: dict[str, Any] = {"slot": effect.slot, "sequence": effect.sequence}
            batch = None if assignment is None else (assignment.epoch, assignment.number)
            self._recorder.note("computes", **place, ticket=batch, digests=[self._digest(one) for one in self._shards])
        elif isinstance(effect, Send) and isinstance(effect.message, Announce):
            said, label = effect.message, effect.message.label
            place = {"slot": self._slot, "sequence": said.sequence, "shards": said.shards}
            self._recorder.note("announced", **place, versions=label.versions, epochs=label.epochs)

    def _digest(self, shard: int) -> str | None:
        found = digest({key: vector.cpu() for key, vector in self._parameters.piece(shard).items()})
        return None if self._parameters.has_changed() else found  # of what is computed on again, nothing is to be said

    def close(self) -> None:
        """Record nothing more."""
        self._recorder.close()


class LogHistory:
    """What the coordinator of a term put down of its decisions, and of what is lost."""

    def __init__(self, term: int) -> None:
        self._recorder = Recorder()
        self._is_wanted = bool(os.environ.get(HISTORY))
        self._term = term

    def note(self, run: str, record: Mapping[str, Any]) -> None:
        """Copy a record of the event log."""
        if self._is_wanted and record["kind"] in _NOTED:
            if not self._recorder.records:
                self._recorder.begin(run, "coordinator", f"coordinator-{self._term}", term=self._term)
            self._recorder.note("said", record=dict(record))


def recording_settings() -> dict[str, str]:
    """Return what a process is to be started with, so that it records where this one does."""
    folder = os.environ.get(HISTORY)
    return {HISTORY: str(Path(folder).resolve())} if folder else {}


def digest(vectors: Mapping[str, Tensor], position: int | None = None) -> str | None:
    """Return a digest of the content, by name; or none of much content, unless its position is one that is sampled."""
    size = bytes_in(vectors)
    if size > _ALWAYS_DIGESTED_BYTES and (position is None or position % _SAMPLED_EVERY):
        return None
    found = hashlib.blake2b(digest_size=8)
    for key in sorted(vectors):
        found.update(key.encode())
        found.update(vectors[key].detach().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()
