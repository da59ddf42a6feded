"""The cluster's processes as a run sees them: which come and which leave, what they can do, of what they died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from psplatform.core.supervision.decisions import AskOfDeath, Decision, ProcessLeft
from psplatform.core.supervision.placement import Process
from psplatform.core.supervision.workers import WorkerSupervisor
from psplatform.runtime.actors.coordinator.process import CoordinatorProcess
from psplatform.runtime.pools.deaths import died
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.timeouts import TIMEOUTS


class ActorsBeside(Protocol):
    """What is told of a process that has left: those that have actors there."""

    def lose_process(self, address: str, reason: str) -> None:
        """Report the actors of a process that is lost."""


class WatchHost(CoordinatorProcess, Protocol):
    """What the watch may ask of the coordinator's process."""

    @property
    def copies(self) -> ActorsBeside:
        """The copies of shards."""

    @property
    def standbys(self) -> ActorsBeside:
        """The standbys' side."""

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""


class ClusterWatch:
    """Looks at the cluster twice a second, and finds out what is wanted of single processes, beside that.

    Parameters
    ----------
    supervisor
        Is told what is seen.
    execute
        Takes what it decides then.
    """

    def __init__(
        self,
        host: WatchHost,
        fleet: Fleet,
        supervisor: WorkerSupervisor,
        execute: Callable[[Iterable[Decision]], None],
    ) -> None:
        self._host, self._fleet = host, fleet
        self._supervisor, self._execute = supervisor, execute
        self._background = host.new_background()
        self._now = asyncio.get_running_loop().time
        fleet.on_left_out = self.note

    def begin(self) -> None:
        """Look from now on."""
        self._background.keep(self._look_for_ever)

    def examine(self, process: Process) -> None:
        """Find out whether a process that came later can take a gradient worker."""
        # Beside the looking: a process that hangs while it is asked must not keep others from being noticed.
        self._background.do(self._examine(process))

    def ask_of_death(self, asked: AskOfDeath) -> None:
        """Find out of what the process of a gradient worker or evaluator died."""
        self._background.do(self._ask_of_death(asked))

    def pass_on(self, left: ProcessLeft) -> None:
        """Tell all others that have actors in a process that it has left."""
        self._host.copies.lose_process(left.address, left.reason)
        self._host.standbys.lose_process(left.address, left.reason)

    def note(self, text: str) -> None:
        """Write into the run's log what was seen."""
        self._host.note({"kind": "note", "at": self._host.elapsed_s, "text": text})

    def close(self) -> None:
        """Look no longer."""
        self._background.close()

    async def _look_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(TIMEOUTS.cluster_s):
                    processes, present = await self._fleet.cluster()
                self._execute(self._supervisor.on_sight(processes, present, self._now()))
            except (OSError, TimeoutError) as error:
                self.note(f"the scheduler does not answer: {error}")
            self._execute(self._supervisor.on_silence(self._now()))
            await asyncio.sleep(TIMEOUTS.cluster_look_s)

    async def _examine(self, process: Process) -> None:
        fits = False
        try:
            fits = await self._fleet.fits(process)
        finally:
            self._execute(self._supervisor.on_examined(process.address, fits=fits))

    async def _ask_of_death(self, asked: AskOfDeath) -> None:
        error = None
        try:
            death = await self._fleet.death_of(asked.address)
            if death is not None:
                self.note(f"{death}; it was {asked.name}")
                doing = "it evaluated the model" if asked.is_evaluator else "it computed gradients"
                error = died(death, f"{doing} as {asked.name}")
        finally:
            self._execute(self._supervisor.on_death(asked, error, self._now()))
