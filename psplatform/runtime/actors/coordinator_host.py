"""The coordinator as a Dask actor: executes effects, keeps the log, and sees to the run's actors.

It holds everything the run needs to go on without the program that started it: a client of its own, the program, the
log.  It is kept alive by its published future until the run is over.  The same actor is a standby elsewhere: it follows
the coordinator until it takes over, and is the coordinator from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import Any

from distributed import get_worker

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.ending import Phase
from psplatform.core.protocol.effects import Effect, Finish
from psplatform.core.protocol.events import Begin, CopyLost, ProcessesChanged, RunFailed, StopRequested, Tick
from psplatform.core.protocol.messages import Leave, Retiring
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.placement import Placement
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError, PsplatformError
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.runtime.actors.coordinator_outbox import CoordinatorOutbox
from psplatform.runtime.actors.retirement import PROCESS_ENDS, before_the_end, not_before_the_end
from psplatform.runtime.actors.standby_host import StandbyHost, StandbySnapshot
from psplatform.runtime.actors.steps import LOADING, PLACING, assembling, in_words, serving
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost, connections_of
from psplatform.runtime.comms.processes import Locatable, process_at
from psplatform.runtime.comms.publication import Card, open_client
from psplatform.runtime.comms.timers import LoopTimers
from psplatform.runtime.pools.election import Election
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.shard_pool import DaskShardPool, where
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.pools.unavailable import UnavailableProcesses
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.program import Program
from psplatform.runtime.store.keeping import StoreKeeper, keeper_of
from psplatform.runtime.store.news import told
from psplatform.runtime.store.outcome import conclude
from psplatform.runtime.store.run_log import RunLog
from psplatform.runtime.store.sealing import Sealer
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import unforeseen


class CoordinatorHost(Locatable):
    """Makes the coordinator's node and the run's other actors, or follows as a standby until it takes over.

    Parameters
    ----------
    run
        The run's id; all its actors, segments and datasets carry it.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.phase = "starting"
        self._step = PLACING
        self.failure: PsplatformError | None = None
        self.servers_made = asyncio.Event()
        self.sender = "coordinator"
        self._begun = asyncio.Event()
        self._over = asyncio.Event()
        self.node: CoordinatorNode | None = None
        self._standby_host: StandbyHost | None = None
        self._early: list[tuple[str, bytes]] = []
        self.unavailable = UnavailableProcesses()
        self.term = 0
        self._process = "", os.getpid()  # the nanny and the id, which tell a program later how this process ended
        self._dismissed = False
        self._ending: asyncio.Task[None] | None = None
        self._background = Background(self.on_mishap)

    # --- what programs call ---

    async def open(self, program: Program, placement: Placement, key: str) -> None:
        """Start the run in the background."""
        await self._settle_in(program, key)
        keeper = await keeper_of(program)
        self.run_log = told(await RunLog.open(program.store, program.term, keeper=keeper), self)
        self._starting = self._loop.create_task(self._start(placement))

    async def stand_by(self, program: Program, key: str, lead: Peer, snapshot: StandbySnapshot) -> None:
        """Follow the coordinator at `lead`, and take over when it is lost."""
        arrived_at = asyncio.get_running_loop().time()
        self.phase = "standing by"
        await self._settle_in(program, key)
        self._standby_host = StandbyHost(
            self.run,
            program,
            self.connect,
            lead,
            self.fleet,
            self._client,
            on_take_over=lambda: self._background.do(self._take_over()),
            on_depart=lambda reason: self._background.do(self._leave_quietly()),
        )
        await self.fleet.hold([self.peer])
        if self._dismissed:
            self._standby_host = None
            await self._close_client()
            return
        self._standby_host.begin(snapshot, self._grants(), arrived_at)

    async def _settle_in(self, program: Program, key: str) -> None:
        worker = self._worker = get_worker()
        self.program = program
        self.peer = Peer(worker.address, key)
        self.connect = connections_of(worker)
        self._process = str(worker.nanny or ""), os.getpid()
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._client = await open_client(worker, self.run)
        self._card = Card(self._client, self.run, program.store, self.peer)
        self.fleet = Fleet(self._client, self.connect, program)
        await before_the_end(worker, f"{self.run}-{key}", self._retire)

    @property
    def _wanted_standbys(self) -> int:
        protection = self.program.plan.protection
        return protection.replicas if protection is not None else 0

    def _grants(self) -> Grants | None:
        return self.program.grants() if self.program.plan.protection is not None else None

    async def status(self, wait_s: float) -> dict[str, Any]:
        """Return how the run stands; answers at once if it is over, else after `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._over.wait()
        if self._standby_host is not None or not hasattr(self, "run_log"):
            return {"phase": "standing by"}
        # Over is for others what is over and written.
        phase = "ending" if self.phase == "over" and not self._over.is_set() else self.phase
        summary = self.run_log.view.to_summary()
        step = in_words(self._lead, self._step or assembling(*self.worker_pool.ready))
        said = {"summary": summary, "failure": self.failure, "trouble": self.run_log.trouble, "process": self._process}
        return {"phase": phase, "step": step, **said}

    async def roles(self) -> dict[str, str]:
        """Return the address of every role, by name."""
        actors = {**self.copies.directory(), **self.worker_pool.directory()}
        found = {name: peer.address for name, (_, peer) in actors.items()}
        return {**found, "coordinator": self.peer.address, **self.standbys.roles()}

    async def standing(self) -> dict[str, Any]:
        """Return when the run's time began on this host's monotonic clock, and how its shards are served.

        ``copies`` has shard and place of each copy by name; ``shards`` what the coordinator holds of each.
        """
        if self._lead is None or self.phase == "replaced":
            raise PeerLost(f"{self.peer.address} does not lead the run", peer=self.peer.address)
        return {
            "began_s": self._epoch_s,
            "term": self.term,
            "lead": self.peer,
            "stands_by": bool(self.standbys.following),
            "copies": self.copies.directory(),
            "shards": serving(self._lead),
        }

    async def stop(self, reason: str) -> None:
        """End the run in good order.

        Raises
        ------
        PeerLost
            If this is not the run's coordinator.
        """
        if self.phase in ("standing by", "replaced"):
            raise PeerLost(f"the run's coordinator is not at {self.peer.address}", peer=self.peer.address)
        unbegun = RunFailed(ClusterError(f"stopped while it was starting: {reason}"))
        self.feed(StopRequested(reason) if self._lead is not None else unbegun)

    async def relieve(self) -> None:
        """Take over now: the coordinator's process is about to end in good order."""
        if self._standby_host is not None:
            self._standby_host.relieve()

    async def close(self) -> None:
        """End a standby whose run is over."""
        self._dismissed = True
        if self._standby_host is not None:
            await self._leave_quietly()

    # --- what the run's actors call ---

    async def deliver(self, sender: str, data: bytes) -> bool | bytes:
        """Take messages; return what is said to the sender at once, or whether it is one of this run's actors."""
        if self._standby_host is not None:
            if sender != f"coordinator-{self._standby_host.standby.term}":
                return False
            answers = [one for message in decode(data) for one in self._standby_host.take(message)]
            return encode(answers) if answers else True
        if self.phase == "replaced":
            # Not refused, or a worker that does not know the successor yet would end; nor taken, or it would be lost.
            raise PeerLost(f"the coordinator at {self.peer.address} was replaced", peer=self.peer.address)
        if sender.startswith("coordinator") or not self._knows(sender):
            return False
        if self._begun.is_set():
            return self._take(sender, data)
        self._early.append((sender, data))
        return True

    def _knows(self, sender: str) -> bool:
        if self.copies.heard(sender) or self.worker_pool.heard(sender):
            return True
        if self.unavailable.heard(sender):
            self.on_processes_changed()
        return False

    def _take(self, sender: str, data: bytes) -> bool | bytes:
        with self._outbox.answering(sender) as answers:
            for message in decode(data):
                if isinstance(message, Retiring):
                    self.copies.expect_the_end(message.copy)
                elif isinstance(message, Leave) and message.reason == PROCESS_ENDS:
                    self.worker_pool.expect_the_end(message.member)
                self.feed(message)
        return encode(answers) if answers else True

    def on_processes_changed(self) -> None:
        """Make what could not be made before, if it can be now."""
        self.standbys.on_processes_changed()
        self.worker_pool.fill()
        self.feed(ProcessesChanged())

    async def on_copy_failed(self, name: str, text: str) -> None:
        """Take a copy's word that it cannot go on."""
        self.copies.lose(name, text)

    async def on_cold_trouble(self, name: str, text: str) -> None:
        """Log that a copy cannot keep its state in the store for now."""
        self.note({"kind": "cold replica", "at": self.elapsed_s, "text": text})

    # --- starting ---

    async def _start(self, placement: Placement) -> None:
        try:
            await self._hire(placement)
        except PsplatformError as error:
            await self._end(error)
        except Exception as error:  # noqa: BLE001  the seam where a failed start becomes the run's outcome
            await self._end(unforeseen(error, "the run could not start"))

    async def _hire(self, placement: Placement) -> None:
        self._take_office(self.program.term)
        self.fleet.trust(placement.addresses)
        await self.copies.create(placement)
        self.worker_pool.begin(placement)
        self.servers_made.set()
        self._step = LOADING
        await self.copies.open_all()
        self._step = ""
        # All together, or the first to be ready would train alone for a while, and no run would be like another.
        await self.worker_pool.assembled(TIMEOUTS.assembly_s)
        self._begin()

    def _take_office(self, term: int) -> None:
        self.sender = f"coordinator-{term}"
        self.term = term
        self.fleet.begin_term(term)
        self.copies = DaskShardPool(self, self.fleet)
        self.worker_pool = DaskWorkerPool(self, self.fleet)
        self.standbys = Standbys(self, self.fleet)
        self.election = Election(self, self._client)
        self.sealer = Sealer(self)

    def _begin(self) -> None:
        program, processes = self.program, self.copies.processes()
        resume = program.resume.state if program.resume is not None else None
        self._epoch_s = self._loop.time()
        coordinator = Coordinator(program.plan, program.policy, term=program.term, resume=resume, processes=processes)
        number, wanted = program.term + 1, self._wanted_standbys
        self._lead_with(ReplicatedCoordinator(coordinator, grants=self._grants(), next_number=number, appoints=wanted))
        self.copies.begin()
        self.phase = "running"
        self.note({"kind": "run", "at": 0.0, **program.description})
        self.feed(Begin())
        self._begun.set()
        self._background.keep(self._tick)
        for sender, data in self._early:
            if self._knows(sender):
                self._take(sender, data)  # a lease it is given by this is lost; it asks again

    def _lead_with(self, lead: ReplicatedCoordinator) -> CoordinatorNode:
        self._outbox = CoordinatorOutbox(lead, self.copies, self.worker_pool, self.standbys)
        self.node = CoordinatorNode(
            lead,
            lambda: self.elapsed_s,
            send=self._outbox.send,
            log=self.run_log.append,
            make_timers=partial(LoopTimers, lambda: self.elapsed_s),
            shards=self.copies,
            workers=self.worker_pool,
            standbys=self.standbys,
            arbiter=self.election,
            checkpoints=self.sealer,
            finish=self._finish,
            depart=lambda reason: self.step_down(),
            explain=self._explain,
            note=self._look_at,
        )
        return self.node

    # --- taking over ---

    async def _take_over(self) -> None:
        standby_host, self._standby_host = self._standby_host, None
        if standby_host is None:
            return
        standby = standby_host.standby
        await self._succeed(standby_host)
        state = standby.coordinator.state
        counted = {name for one in state.shards for name in one.copies}
        self.copies.adopt(standby_host.copies, standby_host.processes, counted)
        self.worker_pool.adopt(standby_host.others, state.shards, {member.name for member in state.roster.members()})
        self.phase = "running" if standby.coordinator.ending.phase is Phase.RUNNING else "ending"
        process, wanted = process_at(self.peer.address), self._wanted_standbys
        lead, effects = standby.rise(self.elapsed_s, grants=self._grants(), appoints=wanted, process=process)
        node = self._lead_with(lead)
        self._begun.set()
        self.servers_made.set()
        self._outbox.look_at(effects)
        node.execute(effects)
        if standby_host.ended is not None:
            self.copies.lose_with(standby_host.lead.address, standby_host.ended)
        self._background.keep(self._tick)
        self.announce()

    async def _succeed(self, standby_host: StandbyHost) -> None:
        """Go on with the clock and the log of the coordinator before."""
        number = standby_host.standby.number
        self._epoch_s = self._loop.time() - standby_host.now
        self._take_office(number)
        (after, _), view, again = standby_host.place, standby_host.view, standby_host.unwritten
        keeper = StoreKeeper.of(self.program, standby_host.description)
        self.run_log = told(await RunLog.succeed(self.program.store, number, after, view, again, keeper), self)

    def whereabouts(self) -> dict[str, Any]:
        """Return what tells an actor whose coordinator is lost where the new one is."""
        return {"lead": self.term, "address": self.peer.address, "key": self.peer.key}

    def announce(self) -> None:
        """Let programs that look for the run find its coordinator here."""
        stands_by = self._lead is not None and bool(self._lead.standbys) and bool(self.standbys.following)
        self._background.do(self._card.show(self.term, standby=stands_by))

    def on_refused(self) -> None:
        """Stop: an actor obeys another coordinator."""
        if self.phase not in ("over", "replaced"):
            self.step_down()

    def step_down(self) -> None:
        """Decide and say nothing more: another has taken over."""
        self.phase = "replaced"
        self._fall_silent()
        self.standbys.close()
        self._background.do(self._leave_quietly())

    def _fall_silent(self) -> None:
        self.silence()
        self.run_log.abandon()
        self.copies.close()
        self.worker_pool.close()

    async def _leave_quietly(self) -> None:
        if self._standby_host is not None:
            self._standby_host.close()
        self._over.set()
        self._background.close()
        await self._card.retract()
        await self._close_client()

    async def _close_client(self) -> None:
        if hasattr(self, "election"):
            self.election.close()
        await not_before_the_end(self._worker, f"{self.run}-{self.peer.key}")
        self.fleet.release_all()
        await self._client.close()

    # --- events and effects ---

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""
        return self._loop.time() - self._epoch_s if hasattr(self, "_epoch_s") else 0.0

    @property
    def live(self) -> int:
        """Number of live workers."""
        return self._lead.coordinator.state.live if self._lead is not None else 0

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""
        self.run_log.append(record)
        self.standbys.tell({"record": record})

    def on_actor_made(self, part: str, name: str, peer: Peer, shard: int = -1) -> None:
        """Note that an actor was made: a standby must know it, too."""
        self.standbys.tell({"part": part, "shard": shard, **where(name, peer)})

    def released(self, name: str) -> None:
        """Note that an actor was let go of."""
        self.standbys.tell({"released": name})

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, as long as it is in charge."""
        if self.node is None:
            self._end_start(event)
        elif self.phase != "replaced":
            self.node.feed(event)

    def _look_at(self, event: Any, effects: list[Effect]) -> None:
        if self.phase == "running" and self.lead.coordinator.state.stopping:
            self.phase = "ending"
        self._outbox.look_at(effects)

    def _explain(self, error: Exception, event: Any) -> PsplatformError:
        if event is not None:
            what = f"handling {type(event).__name__} under policy {self.program.description['policy']!r} failed"
            return unforeseen(error, what)
        self.on_mishap(f"{type(error).__name__}: {error}")
        return unforeseen(error, "acting on what the coordinator had decided failed")

    def _end_start(self, event: Any) -> None:
        # Of what can happen before the run has begun, only a failure matters: nobody has joined yet.
        error = event.error if isinstance(event, RunFailed) else None
        if isinstance(event, CopyLost):
            error = ClusterError(f"{event.peer} was lost while {event.copy} started: {event.reason}")
        if error is not None and self.phase == "starting":
            self._starting.cancel()
            self._finish(Finish("failed", str(error), error))

    @property
    def lead(self) -> ReplicatedCoordinator:
        """The coordinator."""
        return self.leading.lead

    @property
    def leading(self) -> CoordinatorNode:
        """The coordinator's node."""
        if self.node is None:
            raise ClusterError("the run has not begun")
        return self.node

    @property
    def _lead(self) -> ReplicatedCoordinator | None:
        return self.node.lead if self.node is not None else None

    def silence(self) -> None:
        """Let no timer of the coordinator fire any more."""
        if self.node is not None:
            self.node.close()

    async def _tick(self) -> None:
        while self.phase in ("running", "ending", "over") and self.program.plan.protection is not None:
            if self.phase == "over":
                self.standbys.tell(self.lead.beat(self.elapsed_s))  # it is still being written
            else:
                self.feed(Tick())
            await asyncio.sleep(TIMEOUTS.beat_s)

    async def _retire(self) -> None:
        """Hand over before this process ends in good order."""
        if self._lead is None:
            return
        # First: the standby takes over from what it has heard, and what was decided after that it could not know.
        self._fall_silent()
        if self.phase in ("running", "ending"):
            self.phase = "replaced"
            await self.standbys.hand_over()
        self.standbys.close()

    # --- the end ---

    def _finish(self, effect: Finish) -> None:
        self.phase = "over"
        self._ending = self._ending or self._loop.create_task(self._end(effect.failure))

    async def _end(self, failure: PsplatformError | None) -> None:
        self.failure = await conclude(self, failure)
        await self._card.withdraw()
        self.phase = "over"
        self._over.set()
        await self._card.withdraw()  # the program that started the run may have published it just now
        self._background.close()
        await self._close_client()

    def on_mishap(self, text: str) -> None:
        """Note what nobody has foreseen and nobody waits for."""
        if hasattr(self, "run_log"):
            self.note({"kind": "note", "at": self.elapsed_s, "text": f"in the coordinator's process: {text}"})
