"""The coordinator as a Dask actor: executes effects, keeps the log, and sees to the run's actors.

It holds everything the run needs to go on without the program that started it: a client of its own, the program, the
log.  It is kept alive by its published future until the run is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from distributed import Client, get_worker

from psplatform.core.coordination import Coordinator
from psplatform.core.effects import (
    CancelTimer,
    Dismiss,
    Effect,
    Evaluate,
    Finish,
    Log,
    SaveModel,
    Send,
    SetTimer,
)
from psplatform.core.events import Begin, RunBroken, RunFailed, ServerLost, StopRequested, TimerFired
from psplatform.core.messages import Leave
from psplatform.core.wire import decode
from psplatform.errors import ClusterError, PsplatformError, to_plain
from psplatform.replication.store import update_run
from psplatform.runtime.calls import Peer, call
from psplatform.runtime.fleet import Fleet
from psplatform.runtime.hosting import dataset_name
from psplatform.runtime.journal import Journal
from psplatform.runtime.lines import Line
from psplatform.runtime.placement import Placement
from psplatform.runtime.program import Program
from psplatform.runtime.segments import sweep
from psplatform.runtime.server_host import ServerHost
from psplatform.runtime.staff import Staff
from psplatform.tasks.foreign import describe

_LEAVING_S: Final = 5.0
"""How long the end of a run waits for its workers to say good-bye."""

_ASSEMBLY_S: Final = 60.0
"""How long those who are ready wait for a gradient worker that is not; it joins later then."""

TERM: Final = 1
_NEVER_BEGUN: Final = {
    "kind": "finished",
    "outcome": "failed",
    "version": 0,
    "loss": None,
    "accuracy": None,
    "seconds": 0.0,
}


class CoordinatorHost:
    """Hosts `psplatform.core.coordination.Coordinator` and the run's other actors.

    Parameters
    ----------
    run
        The run's id; all its actors, segments and datasets carry it.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.phase = "starting"
        self.failure: PsplatformError | None = None
        self.servers_made = asyncio.Event()
        self._begun = asyncio.Event()
        self._over = asyncio.Event()
        self._coordinator: Coordinator | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._servers: list[Line] = []
        self._early: list[tuple[str, bytes]] = []

    # --- what programs call ---

    async def open(self, program: Program, placement: Placement, key: str) -> None:
        """Start the run in the background."""
        worker = get_worker()
        self.program = program
        self.peer = Peer(worker.address, key)
        self.connect = worker.rpc
        self._loop = asyncio.get_running_loop()
        self.journal = Journal(program.store, TERM)
        self._client = await Client(
            worker.scheduler.address,
            asynchronous=True,
            set_as_default=False,
            security=worker.security,
            direct_to_workers=True,
            name=f"psplatform-{self.run}",
        )
        self._starting = self._loop.create_task(self._start(placement))

    async def status(self, wait_s: float) -> dict[str, Any]:
        """Return how the run stands; answers at once if it is over, else after `wait_s`."""
        try:
            async with asyncio.timeout(wait_s):
                await self._over.wait()
        except TimeoutError:
            pass
        # Over is for others what is over and written.
        phase = "ending" if self.phase == "over" and not self._over.is_set() else self.phase
        summary = self.journal.view.to_summary()
        return {"phase": phase, "summary": summary, "failure": self.failure, "trouble": self.journal.trouble}

    async def stop(self, reason: str) -> None:
        """End the run in good order."""
        if self._coordinator is not None:
            self.feed(StopRequested(reason))
        else:
            self.feed(RunFailed(ClusterError(f"stopped while it was starting: {reason}")))

    # --- what the run's actors call ---

    async def deliver(self, sender: str, data: bytes) -> bool:
        """Take messages; return whether the sender is one of this run's actors, as far as is known."""
        known = self.staff.heard(sender)
        if known and not self._begun.is_set():
            self._early.append((sender, data))
        elif known:
            self._take(data)
        return known

    def _take(self, data: bytes) -> None:
        for message in decode(data):
            self.feed(message)

    async def on_server_failed(self, shard: int, text: str) -> None:
        """Take a server's word that it cannot go on."""
        self.feed(ServerLost(shard, self._servers[shard].peer.address, text))

    # --- starting ---

    async def _start(self, placement: Placement) -> None:
        try:
            await self._hire(placement)
        except PsplatformError as error:
            await self._end(error)
        except Exception as error:  # noqa: BLE001  the seam where a failed start becomes the run's outcome
            kind, text, trace = describe(error)
            await self._end(ClusterError(f"the run could not start ({kind}: {text})\n{trace}"))

    async def _hire(self, placement: Placement) -> None:
        fleet = self.fleet = Fleet(self._client, self.connect, self.program)
        self.staff = Staff(self, fleet)
        servers = tuple(fleet.peer(f"server-{shard}", address) for shard, address in enumerate(placement.servers))
        self.staff.begin(placement, servers)
        for shard, address in enumerate(placement.servers):
            await fleet.create(ServerHost, f"server-{shard}", address, shard, 1, self.peer)
        self.servers_made.set()
        await asyncio.gather(*(fleet.open(peer) for peer in servers))
        # All together, or the first to be ready would train alone for a while, and no run would be like another.
        await self.staff.assembled(_ASSEMBLY_S)
        self._begin(servers)

    def _begin(self, servers: tuple[Peer, ...]) -> None:
        self._servers = [
            Line(
                self.connect,
                peer,
                "coordinator",
                patience_s=self.program.server_lease_s,
                on_lost=self._when_server_lost(shard, peer),
                beat_s=self.program.server_lease_s / 4,
            )
            for shard, peer in enumerate(servers)
        ]
        self._epoch_s = self._loop.time()
        self._coordinator = Coordinator(self.program.plan, self.program.policy, term=TERM)
        self.phase = "running"
        self.journal.append({"kind": "run", "at": 0.0, **self.program.description})
        self.feed(Begin())
        self._begun.set()
        for sender, data in self._early:
            if self.staff.heard(sender):
                self._take(data)

    def _when_server_lost(self, shard: int, peer: Peer) -> Any:
        return lambda reason: self.feed(ServerLost(shard, peer.address, reason))

    # --- events and effects ---

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""
        return self._loop.time() - self._epoch_s if self._begun.is_set() else 0.0

    @property
    def live(self) -> int:
        """Number of live workers."""
        return self._coordinator.state.live if self._coordinator is not None else 0

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, and execute what it answers."""
        if self._coordinator is None:
            self._end_start(event)
            return
        if self.phase == "over" and not isinstance(event, Leave):
            return
        try:
            effects = self._coordinator.handle(event, self.elapsed_s)
        except Exception as error:  # noqa: BLE001  a policy may be anybody's code; its errors end the run, not the process
            kind, text, trace = describe(error)
            name = self.program.description["policy"]
            where = f"handling {type(event).__name__} under policy {name!r}"
            broken = ClusterError(f"{kind} while {where}: {text}\n{trace}")
            effects = self._coordinator.handle(RunBroken(broken), self.elapsed_s)
        if self._coordinator.ending.begun and self.phase == "running":
            self.phase = "ending"
        for effect in effects:
            self._execute(effect)

    def _end_start(self, event: Any) -> None:
        # Of what can happen before the run has begun, only a failure matters: nobody has joined yet.
        error = event.error if isinstance(event, RunFailed) else None
        if isinstance(event, ServerLost):
            error = ClusterError(f"{event.peer} was lost while shard {event.shard} started: {event.reason}")
        if error is not None and self.phase == "starting":
            self._starting.cancel()
            self._finish(error)

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(effect)
        elif isinstance(effect, Log):
            self.journal.append(effect.record)
        elif isinstance(effect, SetTimer):
            self._cancel_timer(effect.tag)
            at = self._epoch_s + effect.at
            self._timers[effect.tag] = self._loop.call_at(at, self.feed, TimerFired(effect.tag))
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(effect.tag)
        elif isinstance(effect, Evaluate | SaveModel):
            self.staff.order(effect)
        elif isinstance(effect, Dismiss):
            self._dismiss(effect)
        elif isinstance(effect, Finish):
            self._finish(effect.failure)

    def _send(self, effect: Send) -> None:
        if effect.to.kind == "server":
            self._servers[int(effect.to.name)].send(effect.message)
        else:
            self.staff.send(effect.to.name, effect.message)

    def _cancel_timer(self, tag: str) -> None:
        timer = self._timers.pop(tag, None)
        if timer is not None:
            timer.cancel()

    def _dismiss(self, effect: Dismiss) -> None:
        for shard, line in enumerate(self._servers):
            state = self._coordinator.state if self._coordinator is not None else None
            position = state.last_position(shard) if state is not None else 0
            self._loop.create_task(self._forget(line.peer, effect.member, position))
        self.staff.dismiss(effect.member, effect.reason)

    async def _forget(self, server: Peer, member: str, position: int) -> None:
        try:
            await call(self.connect, server, "forget", member, position, deadline_s=10.0)
        except PsplatformError:
            return  # a server that is gone has forgotten everything

    # --- the end ---

    def _finish(self, failure: PsplatformError | None) -> None:
        self.phase = "over"
        self._ending = self._loop.create_task(self._end(failure))

    async def _end(self, failure: PsplatformError | None) -> None:
        self.failure = failure
        for tag in list(self._timers):
            self._cancel_timer(tag)
        if hasattr(self, "staff"):
            await self.staff.disband(_LEAVING_S)
        for line in self._servers:
            line.close()
        await self._note_end()
        await self._withdraw()
        self.phase = "over"
        self._over.set()
        await self._withdraw()  # whoever started the run may have published it just now
        await self._client.close()

    async def _withdraw(self) -> None:
        with contextlib.suppress(KeyError, OSError):  # an embedded cluster's runs are not published
            await self._client.unpublish_dataset(dataset_name(self.run))

    async def _note_end(self) -> None:
        if self.journal.view.outcome is None:  # it ended before its coordinator began
            detail = str(self.failure.args[0]) if self.failure is not None else ""
            self.journal.append({**_NEVER_BEGUN, "at": self.elapsed_s, "detail": detail})
        await self.journal.close()
        summary = self.journal.view.to_summary()
        failure = to_plain(self.failure) if self.failure is not None else None
        changes = {"outcome": summary["outcome"], "error": str(self.failure or ""), "failure": failure}
        try:
            await asyncio.to_thread(update_run, self.program.store, **changes)
        except PsplatformError as error:
            self.journal.trouble = str(error)
        await asyncio.to_thread(sweep, self.run)
