"""A copy's part of checkpoints: its state copied between two steps, and written while training goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from psplatform.core.protocol.effects import Archive
from psplatform.core.protocol.events import Archived, ArchiveFailed
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.stores.guard import StoreGuard
from psplatform.runtime.comms.background import Background
from psplatform.runtime.program import Program
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.shares import copy
from psplatform.tensors.vectors import carve, size_bytes_of

_NICENESS: Final = 10
"""Of the thread that writes: where all cores are busy it gets a tenth of what gradients get."""


class Archiver:
    """Writes a copy's parts, one after the other.

    Parameters
    ----------
    program
        Names the store that they go to.
    """

    def __init__(self, program: Program, layout: Layout, shard: Shard, background: Background) -> None:
        self._store = program.store
        self._guard = StoreGuard(program.store, program.run, program.term)
        self._layout = layout
        self._shard = shard
        self._kept: dict[str, Tensor] = {}
        self._commits = 0
        self._background = background
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="psplatform-archive", initializer=_give_way)

    def prepare(self) -> None:
        """Get the memory that a part is copied to, before the first is due."""
        # At most one is under way at a time, so the memory is used again: fresh memory costs several times the copying.
        if not self._kept:
            sizes = self._shard.state_sizes()
            memory = torch.empty(size_bytes_of(sizes), dtype=torch.uint8).zero_()  # touches it, unlike `zeros`
            self._kept = carve(memory, sizes)

    def copy(self, effect: Archive) -> None:
        """Copy the newest state.  For the thread that computes."""
        self.prepare()
        state = self._shard.state()
        copy(list(state.values()), [self._kept[key] for key in state])
        self._commits = self._shard.commits

    def write(self, effect: Archive, feed: Callable[[Any], None]) -> None:
        """Write what was copied; `feed` gets what came of it."""
        self._background.do(self._write(effect, self._commits, feed))

    async def _write(self, effect: Archive, commits: int, feed: Callable[[Any], None]) -> None:
        writer = CheckpointWriter(self._store, effect.number, Contents(self._layout, tuple(self._shard.slot_names)))
        plain = {"applied": [list(pair) for pair in effect.applied], "commits": commits}
        try:
            write = partial(
                writer.write_shard,
                self._shard.index,
                self._kept,
                position=effect.position,
                version=effect.version,
                plain=plain,
            )
            part = await asyncio.get_running_loop().run_in_executor(self._writing, self._guard.within, write)
        except StoreError as error:
            feed(ArchiveFailed(effect.number, str(error)))
        else:
            feed(Archived(effect.number, effect.position, part.to_plain()))

    def close(self) -> None:
        """Write nothing more, and wait for what is being written: after the run's end nobody would remove it."""
        self._writing.shutdown(wait=True, cancel_futures=True)


def _give_way() -> None:
    """Let this thread run where nobody else would: nobody waits for a checkpoint."""
    if sys.platform == "linux":  # elsewhere only whole processes have a priority
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
