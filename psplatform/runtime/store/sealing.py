"""Completing checkpoints: the manifest is written, and those that are too old or were given up are removed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from psplatform.core.protocol.effects import Seal
from psplatform.core.protocol.events import CheckpointFailed, CheckpointSealed
from psplatform.errors import PsplatformError, StoreError
from psplatform.replication.checkpoints.parts import Part
from psplatform.replication.checkpoints.retention import discard, discard_unsealed, prune
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.guard import StoreGuard
from psplatform.runtime.actors.coordinator.process import CoordinatorProcess


class Sealer:
    """Seals the checkpoints of one coordinator and removes those that it gives up, one after the other."""

    def __init__(self, host: CoordinatorProcess) -> None:
        self._host = host
        self._turn = asyncio.Lock()
        self._guard = StoreGuard(host.program.store, host.program.run, host.program.term)
        self._background = host.new_background()

    def seal(self, effect: Seal) -> None:
        """Seal a checkpoint in the background."""
        self._background.do(self._seal(effect))

    def discard(self, number: int) -> None:
        """Remove in the background what was written of a checkpoint, unless it is sealed by then.

        What the store refuses to remove stays until the next checkpoint is sealed.
        """
        self._background.do(self._discard(number))

    async def close(self) -> None:
        """Remove what was never sealed, once nobody writes any more: a run that is over leaves whole checkpoints only.

        What was given up may have been written on after it was removed, by a copy that had not heard of that.
        """
        async with self._turn:
            with suppress(StoreError):
                await asyncio.to_thread(self._guard.within, partial(discard_unsealed, self._host.program.store))

    async def _discard(self, number: int) -> None:
        async with self._turn:
            with suppress(StoreError):
                await asyncio.to_thread(self._guard.within, partial(discard, self._host.program.store, number))

    async def _seal(self, effect: Seal) -> None:
        try:
            async with self._turn:
                size_bytes = await asyncio.to_thread(self._guard.within, partial(self._write, effect))
        except PsplatformError as error:
            self._host.feed(CheckpointFailed(effect.number, str(error)))
        else:
            self._host.feed(CheckpointSealed(effect.number, size_bytes))

    def _write(self, effect: Seal) -> int:
        program = self._host.program
        parts = [Part.from_plain(part) for part in effect.parts]
        positions = [part.position for part in sorted(parts, key=lambda part: part.shard)]
        size_bytes = seal(
            program.store,
            effect.number,
            parts,
            positions=positions,
            state=effect.state,
            time_s=time.time(),
        )
        prune(program.store, program.checkpoints.keep, writing=effect.number + 1)
        return size_bytes
