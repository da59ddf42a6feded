"""A copy's part of checkpoints: its state at one step, written while training goes on.

The state is copied before the next step writes over it.  Where steps are far apart, as those of a replica that may lag,
most of it, or all, has been written by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Kept:
    """A state as long as it is not `written`: where it lies, after how many commits."""

    vectors: Mapping[str, Tensor]
    commits: int
    written: bool = False


class Archiver:
    """Writes a copy's parts, one after the other.

    Parameters
    ----------
    program
        Names the store that they go to.
    """

    def __init__(self, program: Program, layout: Layout, shard: Shard, background: Background) -> None:
        protection = program.plan.protection
        self._lends = protection is not None and protection.sends_states
        self._store = program.store
        self._guard = StoreGuard(program.store, program.run, program.term)
        self._layout = layout
        self._shard = shard
        self._memory: dict[str, Tensor] = {}
        self._kept = _Kept({}, 0)
        self._background = background
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="psplatform-archive", initializer=_give_way)

    def prepare(self) -> None:
        """Get the memory that a part is copied to before the first is due, if each will be copied."""
        if not self._lends:
            self._memory = self._get_memory(touched=True)

    def _get_memory(self, *, touched: bool = False) -> dict[str, Tensor]:
        sizes = self._shard.state_sizes()
        memory = torch.empty(size_bytes_of(sizes), dtype=torch.uint8)
        return carve(memory.zero_() if touched else memory, sizes)  # `zeros` would not touch it

    def keep(self, effect: Archive) -> None:
        """Keep the newest state until it is written.  For the thread that computes."""
        kept = self._kept = _Kept(self._shard.state(), self._shard.commits)
        if self._lends:
            self._shard.before_next_step(partial(self._copy, kept))
        else:
            self._copy(kept)

    def _copy(self, kept: _Kept) -> None:
        """Copy what a step is about to write over, unless it is written; from then on, the copy is.

        For the thread that computes.
        """
        if not kept.written:
            memory = self._memory or self._get_memory()
            if not self._lends:
                # At most one is under way at a time.  Fresh memory costs several times the copying; where few are
                # copied, what is kept would lie idle, as large as the whole state.
                self._memory = memory
            copy(list(kept.vectors.values()), [memory[key] for key in kept.vectors])
            kept.vectors = memory

    def write(self, effect: Archive, feed: Callable[[Any], None]) -> None:
        """Write what is kept; `feed` gets what came of it."""
        self._background.do(self._write(effect, self._kept, feed))

    async def _write(self, effect: Archive, kept: _Kept, feed: Callable[[Any], None]) -> None:
        writer = CheckpointWriter(self._store, effect.number, Contents(self._layout, tuple(self._shard.slot_names)))
        plain = {"applied": [list(pair) for pair in effect.applied], "commits": kept.commits}
        try:
            write = partial(
                writer.write_shard,
                self._shard.index,
                lambda: kept.vectors,
                position=effect.position,
                version=effect.version,
                plain=plain,
            )
            part = await asyncio.get_running_loop().run_in_executor(self._writing, self._guard.within, write)
        except StoreError as error:
            feed(ArchiveFailed(effect.number, str(error)))
        else:
            feed(Archived(effect.number, effect.position, part.to_plain()))
        finally:
            kept.written, kept.vectors = True, {}

    def close(self) -> None:
        """Write nothing more, and wait for what is being written: after the run's end nobody would remove it."""
        self._writing.shutdown(wait=True, cancel_futures=True)


def _give_way() -> None:
    """Let this thread run where nobody else would: nobody waits for a checkpoint."""
    if sys.platform == "linux":  # elsewhere only whole processes have a priority
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
