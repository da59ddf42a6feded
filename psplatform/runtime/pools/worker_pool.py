"""The gradient workers and the evaluator of a run: who is asked where, who is silent, and who replaces whom.

A gradient worker that is lost is replaced by a Dask worker that has neither a server nor a gradient worker of this run,
if there is one; where no gradient worker is left at all, by one that has a copy of a shard, or the run would end.  A
Dask worker that comes later takes part, up to the job's `max_workers`.  The evaluator is replaced wherever there is a
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from psplatform.core.coordination.shards import ShardState
from psplatform.core.protocol.effects import Evaluate, Redirect, SaveModel, first_server
from psplatform.core.protocol.events import EvaluationLost, EvaluatorDied, MemberDied, MemberLost, RunFailed
from psplatform.core.protocol.messages import Moved, StateRequest
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.leases import Leases
from psplatform.core.supervision.placement import Placement, Process
from psplatform.errors import ProcessDied, PsplatformError
from psplatform.runtime.actors.coordinator_process import Employer
from psplatform.runtime.actors.copy_host import EVALUATOR
from psplatform.runtime.actors.evaluator_host import EvaluatorHost
from psplatform.runtime.actors.worker_host import WorkerHost
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost, wakes
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.pools.deaths import died
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.worker_actor import WorkerActor, why_not_started
from psplatform.runtime.timeouts import TIMEOUTS

_TRIES_PER_PROCESS: Final = 3
"""A Dask worker on which starting failed so often is left alone."""


class StandbysBeside(Protocol):
    """What the worker pool, which watches the cluster, tells the standbys' side."""

    def lose_process(self, address: str, reason: str) -> None:
        """Report the standbys of a process that is lost."""


class WorkerPoolHost(Employer, Protocol):
    """What the worker pool may ask of the coordinator's process, beside what every employer of actors may.

    Attributes
    ----------
    servers_made
        Set when every server's actor was made.
    """

    servers_made: asyncio.Event
    copies: DaskShardPool

    @property
    def runs(self) -> bool:
        """Whether the run has begun and is not ending: as long as it is so, workers are placed."""

    @property
    def live(self) -> int:
        """Number of live workers."""

    @property
    def standbys(self) -> StandbysBeside:
        """The standbys' side."""


class DaskWorkerPool:
    """Starts, watches and replaces gradient workers and the evaluator."""

    def __init__(self, host: WorkerPoolHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        self._workers: dict[str, WorkerActor] = {}
        self._evaluator: WorkerActor | None = None
        self._orders: list[Evaluate | SaveModel] = []
        self._serving: list[tuple[str, int]] = []
        self._known: dict[str, Process] = {}
        self._seen: set[str] = set()
        self._missing: set[str] = set()
        self._deserted_at = float("inf")
        self._failed_starts: dict[str, int] = {}
        self._leases = Leases(host.program.worker_lease_s)
        self._background = Background(host.on_mishap)
        self._hiring = asyncio.Lock()
        self._initial = host.program.plan.workers
        fleet.on_left_out = lambda text: host.note(self._note(text))

    # --- at the start ---

    def begin(self, placement: Placement) -> None:
        """Start the evaluator and the gradient workers, and watch the cluster from now on.

        They load what they need while the servers do; they join when the servers are ready.
        """
        self._serving = [(first_server(shard), 1) for shard in range(len(placement.servers))]
        for address in placement.workers:
            self._start_worker(address)
        self._missing = set(self._workers)
        self._start_evaluator(placement.evaluator)
        self._background.keep(self._watch_cluster)

    @property
    def ready(self) -> tuple[int, int]:
        """How many of the gradient workers placed at the start are ready, and how many are there."""
        there = set(self._workers)
        return len(there - self._missing), len(there)

    async def assembled(self, limit_s: float) -> None:
        """Wait until every gradient worker placed at the start is ready or gone, for at most `limit_s`."""
        deadline = self._now() + limit_s
        while self._missing & set(self._workers) and self._now() < deadline:  # noqa: ASYNC110  several can end the wait
            await asyncio.sleep(TIMEOUTS.leave_look_s)

    def adopt(self, known: Mapping[str, tuple[str, Peer]], shards: Sequence[ShardState], joined: set[str]) -> None:
        """Go on with the workers and the evaluator that a coordinator before has made.

        Parameters
        ----------
        joined
            The workers that have joined; others may still be opening.
        """
        self._serving = [(one.server, one.epoch) for one in shards]
        for name, (part, peer) in known.items():
            actor = WorkerActor(name, peer.address, peer)
            self._do(self._fleet.meet(peer))
            if part == "worker":
                self._workers[name] = actor
                if name in joined:
                    self._follow_up(actor)
                else:
                    self._do(self._reopen_worker(actor, peer))
            elif part == "evaluator":
                self._evaluator = actor
                actor.line = self._line_to(actor, partial(self._replace_evaluator, actor))
                actor.line.send(self._host.whereabouts())
                self._leases.renew(name, self._now())
        self._background.keep(self._watch_cluster)

    # --- what the coordinator's host asks ---

    @property
    def addresses(self) -> set[str]:
        """Processes with a gradient worker."""
        return {actor.address for actor in self._workers.values()}

    @property
    def peers(self) -> list[Peer]:
        """Where all of them are."""
        return [peer for _, peer in self.directory().values()]

    def directory(self) -> dict[str, tuple[str, Peer]]:
        """Return what each of them is, and where, by name."""
        found = {actor.name: ("worker", actor.peer) for actor in self._workers.values() if actor.peer is not None}
        if self._evaluator is not None and self._evaluator.peer is not None:
            found[self._evaluator.name] = "evaluator", self._evaluator.peer
        return found

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""
        self._serving[effect.shard] = effect.copy, effect.epoch
        self._tell_evaluator(effect.shard)

    def _tell_evaluator(self, shard: int) -> None:
        copy, epoch = self._serving[shard]
        place = self._host.copies.place_of(copy)
        if self._evaluator is not None and self._evaluator.line is not None and place is not None:
            self._evaluator.line.send(place)
            self._evaluator.line.send(Moved(0, shard, epoch, copy))

    def heard(self, sender: str) -> bool:
        """Take a sign of life; return whether the sender belongs to the run."""
        if sender in self._workers or (self._evaluator is not None and sender == self._evaluator.name):
            self._leases.renew(sender, self._now())
            self._missing.discard(sender)
            return True
        return False

    def send(self, name: str, message: Any) -> None:
        """Send to a gradient worker; to one that is gone, nothing."""
        actor = self._workers.get(name)
        if actor is not None and actor.line is not None:
            actor.line.send(message)

    def introduce(self, place: ActorAt) -> None:
        """Let every gradient worker attach to a new copy of a shard, which it then need not do when that takes over."""
        for name in self._workers:
            self.send(name, place)

    def order(self, order: Evaluate | SaveModel) -> None:
        """Ask the evaluator, as soon as there is one."""
        if self._evaluator is not None and self._evaluator.line is not None:
            self._evaluator.line.send(order)
        else:
            self._orders.append(order)

    def dismiss(self, name: str, reason: str) -> None:
        """Let go of a gradient worker, and look for another."""
        actor = self._workers.pop(name, None)
        if actor is None:
            return
        self._leases.forget(name)
        self._host.unavailable.lose(name, actor.address)
        self._do(self._retire(actor))
        self.fill()

    def expect_the_end(self, name: str) -> None:
        """Give the process of a gradient worker, which is about to end, no further role."""
        if name in self._workers:
            self._host.unavailable.leave(self._workers[name].address)

    def fill(self) -> None:
        """Look for gradient workers in the place of those that are missing."""
        if self._host.runs:
            self._do(self._fill())

    async def disband(self, limit_s: float, but: Collection[Peer] = ()) -> None:
        """Wait for the workers to leave, for at most `limit_s`, then close every actor that is left but those."""
        deadline = self._now() + limit_s
        while self._host.live and self._now() < deadline:  # noqa: ASYNC110  the core counts members, nobody signals
            await asyncio.sleep(TIMEOUTS.leave_look_s)
        self.close()
        await self._fleet.close_all(but)

    def close(self) -> None:
        """Say nothing more to anybody."""
        self._background.close()
        for actor in [*self._workers.values(), *([self._evaluator] if self._evaluator else [])]:
            if actor.line is not None:
                actor.line.close()

    # --- hiring ---

    def _start_worker(self, address: str) -> None:
        actor = WorkerActor(self._fleet.next_name("worker"), address)
        self._workers[actor.name] = actor
        self._do(self._open_worker(actor))

    async def _open_worker(self, actor: WorkerActor) -> None:
        try:
            arguments = actor.name, self._host.peer, self._host.copies.directory()
            actor.peer = await self._fleet.create(WorkerHost, actor.name, actor.address, *arguments)
            self._host.on_actor_made("worker", actor.name, actor.peer)
            actor.line = self._line_to(actor, lambda reason: self._lose(actor.name, reason))
            await self._host.servers_made.wait()
            await self._fleet.open(actor.peer)
        except PeerLost as error:
            self._failed_starts[actor.address] = self._failed_starts.get(actor.address, 0) + 1
            self._workers.pop(actor.name, None)
            self._host.note(self._note(f"no worker could be started at {actor.address}: {error}"))
            self._host.feed(MemberLost(actor.name, str(error)))
            self._do(self._inquire_about_worker(actor))
            self._do(self._fill())
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises ends the run
            self._host.feed(RunFailed(why_not_started(error, actor)))

    async def _reopen_worker(self, actor: WorkerActor, peer: Peer) -> None:
        try:
            await self._fleet.open(peer)
        except PsplatformError as error:
            self._lose(actor.name, str(error))
        else:
            self._follow_up(actor)
            self.send(actor.name, StateRequest(self._host.term))  # only the lost one may have welcomed it

    def _follow_up(self, actor: WorkerActor) -> None:
        actor.line = self._line_to(actor, partial(self._lose, actor.name))
        actor.line.send(self._host.whereabouts())
        self._leases.renew(actor.name, self._now())

    def _start_evaluator(self, address: str) -> None:
        self._evaluator = WorkerActor(self._fleet.next_name(EVALUATOR), address)
        self._do(self._open_evaluator(self._evaluator))

    async def _open_evaluator(self, actor: WorkerActor) -> None:
        while self._evaluator is actor and await self._fleet.lack(actor.address):
            actor.address = self._place_for_evaluator()
            await asyncio.sleep(TIMEOUTS.cluster_look_s)  # without a scheduler each question fails at once
        if self._evaluator is not actor:  # its process has left meanwhile
            return
        try:
            arguments = actor.name, self._host.peer, self._serving, self._host.copies.directory()
            actor.peer = await self._fleet.create(EvaluatorHost, actor.name, actor.address, *arguments)
            self._host.on_actor_made("evaluator", actor.name, actor.peer)
            await self._host.servers_made.wait()
            await self._fleet.open(actor.peer)
        except PeerLost as error:
            await asyncio.sleep(TIMEOUTS.cluster_look_s)
            self._replace_evaluator(actor, str(error))
            return
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises ends the run
            self._host.feed(RunFailed(why_not_started(error, actor)))
            return
        actor.line = self._line_to(actor, lambda reason: self._replace_evaluator(actor, reason))
        for shard in range(len(self._serving)):
            self._tell_evaluator(shard)  # servers may have changed while it was made
        for order in self._orders:
            actor.line.send(order)
        self._orders = []

    def _line_to(self, actor: WorkerActor, on_lost: Any) -> Line:
        if actor.peer is None:
            raise PeerLost(f"{actor.name} was not created", peer=actor.address)
        return Line(
            self._host.connect,
            actor.peer,
            self._host.sender,
            patience_s=self._host.program.worker_lease_s,
            on_lost=on_lost,
            on_refused=self._host.on_refused,
        )

    # --- losing ---

    def _lose(self, name: str, reason: str) -> None:
        actor = self._workers.get(name)
        # Before it has joined, the coordinator does not know it and dismisses nobody.
        self._host.feed(MemberLost(name, reason))
        self.dismiss(name, reason)
        if actor is not None:
            self._do(self._inquire_about_worker(actor))

    def _replace_evaluator(self, actor: WorkerActor, reason: str) -> None:
        if self._evaluator is not actor:
            return
        self._evaluator, self._orders = None, []
        self._host.unavailable.lose(actor.name, actor.address)
        self._do(self._retire(actor))
        self._host.feed(EvaluationLost(reason))
        self._do(self._follow_evaluator(actor))

    async def _follow_evaluator(self, actor: WorkerActor) -> None:
        died_by_itself = await self._request_state(actor, "it evaluated the model", EvaluatorDied)
        await asyncio.sleep(TIMEOUTS.replace_after_s)
        waits_until = self._now() + TIMEOUTS.deserted_s
        # A nanny may start a process that no server shares with it.
        while died_by_itself and not self._apart_from_servers and self._now() < waits_until:  # noqa: ASYNC110
            await asyncio.sleep(TIMEOUTS.cluster_look_s)
        if self._evaluator is None:
            self._start_evaluator(self._place_for_evaluator(apart=died_by_itself))

    async def _inquire_about_worker(self, actor: WorkerActor) -> None:
        await self._request_state(actor, "it computed gradients", partial(MemberDied, actor.name))

    async def _request_state(self, actor: WorkerActor, doing: str, event: Callable[[ProcessDied], Any]) -> bool:
        """Let the coordinator know of what a lost process has died; return whether it died by itself.

        What follows from the loss does not wait for this.
        """
        if actor.inquired:
            return False
        actor.inquired = True
        death = await self._fleet.death_of(actor.address)
        if death is None:
            return False
        self._host.note(self._note(f"{death}; it was {actor.name}"))
        error = died(death, f"{doing} as {actor.name}")
        if not isinstance(error, ProcessDied):
            return False
        self._host.feed(event(error))
        return True

    @property
    def _there(self) -> set[str]:
        return set(self._known) - self._host.unavailable.addresses - set(self._fleet.left_out)

    @property
    def _apart_from_servers(self) -> set[str]:
        return self._there - self._host.copies.addresses - {self._host.peer.address}

    def _place_for_evaluator(self, *, apart: bool = False) -> str:
        """Return where another evaluator goes: `apart` from servers, where one has died by itself."""
        if apart and self._apart_from_servers:
            return min(self._apart_from_servers, key=lambda one: (one in self.addresses, one))
        serving = self._host.copies.addresses | {self._host.peer.address}
        free = self._there - self.addresses
        return min(free, key=lambda one: (one in serving, one), default=self._host.peer.address)

    async def _retire(self, actor: WorkerActor) -> None:
        if actor.line is not None:
            await actor.line.flush(1.0)
            actor.line.close()
        if actor.peer is not None:
            self._host.released(actor.name)
            self._fleet.release(actor.peer)

    # --- watching ---

    async def _watch_cluster(self) -> None:
        present = self.addresses | self._host.copies.addresses
        present |= {self._evaluator.address} if self._evaluator is not None else set()
        while True:
            try:
                present = await self._look(present)
            except (OSError, TimeoutError) as error:
                self._host.note(self._note(f"the scheduler does not answer: {error}"))
            for name in self._leases.expire(self._now()):
                self._on_silence(name)
            await asyncio.sleep(TIMEOUTS.cluster_look_s)

    async def _look(self, before: set[str]) -> set[str]:
        async with asyncio.timeout(TIMEOUTS.cluster_s):
            processes, present = await self._fleet.cluster()
        first = not self._seen
        came = {one.address for one in processes} - self._seen
        self._known = {one.address: one for one in processes}
        self._seen |= came
        for address in sorted(before - present):
            self._lose_process(address)
        if first:
            self.fill()  # a coordinator before this one may have been about to
            if self._evaluator is None:
                self._start_evaluator(self._place_for_evaluator())
        if came and not first:
            self._host.on_processes_changed()
        self._deserted_at = float("inf") if self._workers else min(self._deserted_at, self._now())
        if self._is_deserted:
            self.fill()
        for process in processes:
            if process.address in came and not first:
                # Beside this loop: a process that hangs while it is asked must not keep others from being noticed.
                self._do(self._welcome(process))
        return present

    def _on_silence(self, name: str) -> None:
        reason = f"silent for {self._host.program.worker_lease_s:g} s"
        actor = self._workers.get(name)
        if self._evaluator is not None and name == self._evaluator.name:
            actor = self._evaluator
            self._replace_evaluator(actor, reason)
        else:
            self._lose(name, reason)
        if actor is not None:
            self._do(self._await_waking(actor))

    async def _await_waking(self, actor: WorkerActor) -> None:
        """Let the process of a worker that fell silent be used again as soon as it answers anything.

        A worker that has given up a coordinator that did not answer in time has ended, and says nothing any more.
        """
        woken = actor.peer is not None and await wakes(self._host.connect, actor.peer, "alive", 0.0)
        if woken and self._host.unavailable.heard(actor.name):
            self._host.on_processes_changed()

    def _lose_process(self, address: str) -> None:
        reason = "its Dask worker left the cluster"
        for name in [name for name, actor in self._workers.items() if actor.address == address]:
            self._lose(name, reason)
        if self._evaluator is not None and self._evaluator.address == address:
            self._replace_evaluator(self._evaluator, reason)
        self._host.copies.lose_process(address, reason)
        self._host.standbys.lose_process(address, reason)

    async def _welcome(self, process: Process) -> None:
        limit = self._host.program.plan.max_workers
        if not await self._fleet.fits(process):  # asked first, because an import that takes long must hold nobody up
            return
        async with self._hiring:
            if limit is None or len(self._workers) < limit:
                await self._start_if_fit(process)

    async def _fill(self) -> None:
        async with self._hiring:
            for process in list(self._known.values()):
                if len(self._workers) < self._initial:
                    await self._start_if_fit(process)

    @property
    def _is_deserted(self) -> bool:
        return self._now() - self._deserted_at >= TIMEOUTS.deserted_s

    async def _start_if_fit(self, process: Process) -> None:
        taken = self.addresses | self._host.unavailable.addresses
        if not self._is_deserted:
            taken |= self._host.copies.addresses
        tried = self._failed_starts.get(process.address, 0)
        if not self._host.runs or process.address in taken or tried >= _TRIES_PER_PROCESS:
            return
        if await self._fleet.fits(process):
            self._start_worker(process.address)

    # --- small things ---

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.do(work)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _note(self, text: str) -> dict[str, Any]:
        return {"kind": "note", "at": self._host.elapsed_s, "text": text}
