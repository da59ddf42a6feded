"""One coordinator in charge of a run: its node, the run's log, and the pools that make and watch the other actors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any, Final, Self

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.ending import Phase as EndingPhase
from psplatform.core.protocol.effects import Effect, Finish
from psplatform.core.protocol.events import Begin, CopyLost, ProcessesChanged, RunFailed, StopRequested, Tick
from psplatform.core.protocol.messages import Leave, Release, Retiring
from psplatform.core.protocol.place_messages import ActorAt, ActorReleased, CoordinatorAt, Logged
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.placement import Placement
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError, PsplatformError
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.coordinator_outbox import CoordinatorOutbox
from psplatform.runtime.actors.host_process import HostProcess
from psplatform.runtime.actors.standby_host import StandbyHost
from psplatform.runtime.actors.steps import LOADING, PLACING, assembling, in_words, serving
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.processes import process_at
from psplatform.runtime.comms.timers import LoopTimers
from psplatform.runtime.pools.election import Election
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.program import Program
from psplatform.runtime.store.keeping import StoreKeeper
from psplatform.runtime.store.news import told
from psplatform.runtime.store.outcome import conclude
from psplatform.runtime.store.run_log import RunLog
from psplatform.runtime.store.sealing import Sealer
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import unforeseen


class Phase(Enum):
    """What a tenure is about."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"
    REPLACED = "replaced"


_NEXT: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.ENDING, Phase.OVER, Phase.REPLACED}),
    Phase.RUNNING: frozenset({Phase.ENDING, Phase.OVER, Phase.REPLACED}),
    Phase.ENDING: frozenset({Phase.OVER, Phase.REPLACED}),
    Phase.OVER: frozenset({Phase.REPLACED}),
    Phase.REPLACED: frozenset(),
}


def grants_of(program: Program) -> Grants | None:
    """Return an empty book of leases, where the run is replicated."""
    return program.grants() if program.plan.protection is not None else None


class Tenure:
    """The coordinator of one term, from the moment it is in charge until the run is over or another has taken over.

    Parameters
    ----------
    place
        The process that it runs in.
    run_log
        The run's log, which it goes on with.
    began_at
        When the run's time began on the loop's clock; ``None`` if it begins with this coordinator.

    Attributes
    ----------
    phase
        What it is about.
    failure
        Why the run has failed, if it has, once it is over.
    servers_made
        Set when every server's actor was made.
    node
        The coordinator's node, once the run has begun.
    copies, worker_pool, standbys
        The run's other actors.
    election, sealer
        What is asked of the scheduler, and checkpoints.
    """

    def __init__(self, place: HostProcess, run_log: RunLog, term: int, began_at: float | None = None) -> None:
        self.place = place
        self.program, self.run, self.actor = place.program, place.program.run, place.actor
        self.peer, self.connect = place.peer, place.connect
        self.fleet, self.unavailable = place.fleet, place.unavailable
        self.term, self.sender = term, f"coordinator-{term}"
        self._log = ActorLog(self.run, self.sender)
        self.phase = Phase.STARTING
        self.failure: PsplatformError | None = None
        self.servers_made = asyncio.Event()
        self.node: CoordinatorNode | None = None
        self._loop = asyncio.get_running_loop()
        self._began_at = began_at
        self._step = PLACING
        self._early: list[tuple[str, bytes]] = []
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self.fleet.begin_term(term)
        self.run_log = told(run_log, self)
        self.copies = DaskShardPool(self, self.fleet)
        self.worker_pool = DaskWorkerPool(self, self.fleet)
        self.standbys = Standbys(self, self.fleet)
        self.election = Election(self, place.client)
        self.sealer = Sealer(self)
        place.closing.callback(self.election.close)

    # --- beginning ---

    def start(self, placement: Placement, initial: bytes) -> None:
        """Make the run's actors in the background, and begin the run when they are ready."""
        self._log.info("leads the run from %s", self.peer.address)
        self._starting = self._loop.create_task(self._start(placement, initial))

    async def _start(self, placement: Placement, initial: bytes) -> None:
        try:
            await self._make_actors(placement, initial)
        except PsplatformError as error:
            await self._end(error)
        except Exception as error:  # noqa: BLE001  the seam where a failed start becomes the run's outcome
            await self._end(unforeseen(error, "the run could not start"))

    async def _make_actors(self, placement: Placement, initial: bytes) -> None:
        self.fleet.trust(placement.addresses)
        await self.copies.create(placement)
        self.worker_pool.begin(placement)
        self.servers_made.set()
        self._step = LOADING
        await self.copies.open_all(initial)
        self._step = ""
        # All together, or the first to be ready would train alone for a while, and no run would be like another.
        await self.worker_pool.assembled(TIMEOUTS.assembly_s)
        self._begin()

    def _begin(self) -> None:
        program, processes = self.program, self.copies.processes()
        resume = program.resume.state if program.resume is not None else None
        self._began_at = self._loop.time()
        coordinator = Coordinator(
            program.plan,
            program.policy,
            term=program.term,
            resume=resume,
            processes=processes,
            planner=program.make_planner(processes),
        )
        wanted, number = self._wanted_standbys, program.term + 1
        lead = ReplicatedCoordinator(coordinator, grants=grants_of(program), next_number=number, appoints=wanted)
        node = self.lead_with(lead)
        self.copies.begin()
        self._enter(Phase.RUNNING)
        self.note({"kind": "run", "at": 0.0, **program.description})
        node.feed(Begin())
        self.place.background.keep(self._tick)
        for sender, data in self._early:
            if self._knows(sender):
                self._hear(data)

    @classmethod
    async def succeed(cls, place: HostProcess, standby_host: StandbyHost) -> Self:
        """Go on with the clock, the log and the actors of a coordinator that is lost."""
        standby, program = standby_host.standby, place.program
        began_at = asyncio.get_running_loop().time() - standby_host.now
        (after, _), view, again = standby_host.place, standby_host.view, standby_host.unwritten
        keeper = StoreKeeper.of(program, standby_host.description)
        background = Background(log=ActorLog(program.run, f"coordinator-{standby.number}"))
        run_log = await RunLog.succeed(program.store, standby.number, after, view, again, keeper, background)
        made = cls(place, run_log, standby.number, began_at)
        made._take_over(standby_host)
        return made

    def _take_over(self, standby_host: StandbyHost) -> None:
        self._log.info("takes over at %s from the coordinator at %s", self.peer.address, standby_host.lead.address)
        standby, state = standby_host.standby, standby_host.standby.coordinator.state
        counted = {name: one.shard for one in state.shards for name in one.copies}
        self.copies.adopt(standby_host.copies, standby_host.processes, counted)
        self.worker_pool.adopt(standby_host.others, state.shards, {member.name for member in state.roster.members()})
        trains = standby.coordinator.ending.phase is EndingPhase.RUNNING
        self._enter(Phase.RUNNING if trains else Phase.ENDING)
        process = process_at(self.peer.address)
        lead, effects = standby.rise(
            self.elapsed_s, grants=grants_of(self.program), appoints=self._wanted_standbys, process=process
        )
        node = self.lead_with(lead)
        self.servers_made.set()
        self._outbox.look_at(effects)
        node.execute(effects)
        if standby_host.ended is not None:
            self.copies.lose_with(standby_host.lead.address, standby_host.ended)
            self.worker_pool.on_process_ended(standby_host.lead.address, standby_host.ended.reason)
        self.place.background.keep(self._tick)
        self.announce()

    @property
    def _wanted_standbys(self) -> int:
        protection = self.program.plan.protection
        return protection.replicas if protection is not None else 0

    def lead_with(self, lead: ReplicatedCoordinator) -> CoordinatorNode:
        """Make the node of the coordinator that is in charge from now on."""
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

    # --- what programs ask ---

    def status(self) -> dict[str, Any]:
        """Return how the run stands."""
        # Over is for others what is over and written.
        phase = Phase.ENDING if self.phase is Phase.OVER and not self.place.over.is_set() else self.phase
        lead = self.node.lead if self.node is not None else None
        step = in_words(lead, self._step or assembling(*self.worker_pool.ready))
        said = {"failure": self.failure, "trouble": self.run_log.trouble, "process": self.place.process}
        return {"phase": phase.value, "step": step, "summary": self.run_log.view.to_summary(), **said}

    def roles(self) -> dict[str, str]:
        """Return the address of every role, by name."""
        actors = {**self.copies.directory(), **self.worker_pool.directory()}
        found = {name: peer.address for name, (_, peer) in actors.items()}
        return {**found, "coordinator": self.peer.address, **self.standbys.roles()}

    def standing(self) -> dict[str, Any]:
        """Return how the shards are served; see `CoordinatorHost.standing`."""
        if self.node is None or self.phase is Phase.REPLACED:
            raise PeerLost(f"{self.peer.address} does not lead the run", peer=self.peer.address)
        return {
            "began_s": self._began_at,
            "term": self.term,
            "lead": self.peer,
            "stands_by": bool(self.standbys.following),
            "copies": self.copies.directory(),
            "shards": serving(self.node.lead),
        }

    def stop(self, reason: str) -> None:
        """End the run in good order."""
        if self.phase is Phase.REPLACED:
            raise PeerLost(f"the run's coordinator is not at {self.peer.address}", peer=self.peer.address)
        unbegun = RunFailed(ClusterError(f"stopped while it was starting: {reason}"))
        self.feed(StopRequested(reason) if self.node is not None else unbegun)

    # --- what the run's actors say ---

    def take(self, sender: str, data: bytes) -> bool | bytes:
        """Take messages; return what is said to the sender at once, or whether it is one of this run's actors."""
        if self.phase is Phase.REPLACED:
            # Not refused, or a worker that does not know the successor yet would end; nor taken, or it would be lost.
            raise PeerLost(f"the coordinator at {self.peer.address} was replaced", peer=self.peer.address)
        if sender.startswith("coordinator") or not self._knows(sender):
            return False
        if self.node is not None:
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
        if again := self.worker_pool.answer_again(sender, data):
            return again
        with self._outbox.answering(sender) as answers:
            self._hear(data)
        if not answers:
            return True
        answer = encode(answers)
        if any(isinstance(one, Release) for one in answers):  # which is said once; leases are given again
            self.worker_pool.note_answer(sender, data, answer)
        return answer

    def _hear(self, data: bytes) -> None:
        for message in decode(data):
            if isinstance(message, Retiring):
                self.copies.expect_the_end(message.copy)
            elif isinstance(message, Leave):
                self.worker_pool.on_leave(message.member, message.reason)
            self.feed(message)

    # --- what its parts ask for ---

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""
        return self._loop.time() - self._began_at if self._began_at is not None else 0.0

    @property
    def live(self) -> int:
        """Number of live workers."""
        return self.node.lead.coordinator.state.live if self.node is not None else 0

    @property
    def runs(self) -> bool:
        """Whether the run has begun and is not ending: as long as it is so, roles are placed."""
        return self.phase is Phase.RUNNING

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

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, as long as it is in charge."""
        if self.node is None:
            self._end_start(event)
        elif self.phase is not Phase.REPLACED:
            self.node.feed(event)

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""
        self.run_log.append(record)
        self.standbys.tell(Logged(record))

    def on_actor_made(self, part: str, name: str, peer: Peer, shard: int = -1) -> None:
        """Add an actor to those that a standby is told of."""
        self.standbys.tell(ActorAt(name, peer.address, peer.key, shard, part))

    def released(self, name: str) -> None:
        """Remove an actor from those that a standby is told of."""
        self.standbys.tell(ActorReleased(name))

    def on_processes_changed(self) -> None:
        """Make what could not be made before, if it can be now."""
        self.standbys.on_processes_changed()
        self.worker_pool.fill()
        self.feed(ProcessesChanged())

    def whereabouts(self) -> CoordinatorAt:
        """Return what tells an actor whose coordinator is lost where the new one is."""
        return CoordinatorAt(self.term, self.peer.address, self.peer.key)

    def announce(self) -> None:
        """Let programs that look for the run find its coordinator here."""
        following = self.node is not None and bool(self.node.lead.standbys) and bool(self.standbys.following)
        self.place.background.do(self.place.card.show(self.term, standby=following))

    def new_background(self) -> Background:
        """Return what does work that nothing waits for, and tells of it if it fails."""
        return Background(self.on_mishap, self._log)

    def on_mishap(self, text: str) -> None:
        """Log a failure of a task that nothing waits for."""
        self.note({"kind": "note", "at": self.elapsed_s, "text": f"in the coordinator's process: {text}"})

    def _look_at(self, event: Any, effects: Iterable[Effect]) -> None:
        if self.phase is Phase.RUNNING and self.lead.coordinator.state.stopping:
            self._enter(Phase.ENDING)
        self._outbox.look_at(effects)

    def _explain(self, error: Exception, event: Any) -> PsplatformError:
        if event is not None:
            what = f"handling {type(event).__name__} under policy {self.program.description['policy']!r} failed"
            return unforeseen(error, what)
        self.on_mishap(f"{type(error).__name__}: {error}")
        return unforeseen(error, "acting on what the coordinator had decided failed")

    async def _tick(self) -> None:
        while self.phase is not Phase.REPLACED and self.program.plan.protection is not None:
            if self.phase is Phase.OVER:
                self.standbys.tell(self.lead.beat(self.elapsed_s))  # it is still being written
            else:
                self.feed(Tick())
            await asyncio.sleep(TIMEOUTS.beat_s)

    def _enter(self, phase: Phase) -> None:
        """Enter a phase, if it can follow."""
        if phase in _NEXT[self.phase]:
            self.phase = phase

    # --- the end ---

    def on_refused(self) -> None:
        """Stop: an actor obeys another coordinator."""
        if self.phase not in {Phase.OVER, Phase.REPLACED}:
            self.step_down()

    def step_down(self) -> None:
        """Decide and say nothing more: another has taken over."""
        self._enter(Phase.REPLACED)
        self._log.info("steps down: another coordinator has taken over")
        self._fall_silent()
        self.standbys.close()
        self.place.background.do(self.place.leave())

    async def hand_over(self) -> None:
        """Let a standby take over: this process is about to end in good order."""
        if self.node is None:
            return
        self._log.info("hands over: its process is about to end")
        # First: the standby takes over from what it has heard, and what was decided after that it could not know.
        self._fall_silent()
        if self.phase in {Phase.RUNNING, Phase.ENDING}:
            self._enter(Phase.REPLACED)
            await self.standbys.hand_over()
        self.standbys.close()

    def _fall_silent(self) -> None:
        self.silence()
        self.run_log.abandon()
        self.copies.close()
        self.worker_pool.close()

    def silence(self) -> None:
        """Let no timer of the coordinator fire any more."""
        if self.node is not None:
            self.node.close()

    def _end_start(self, event: Any) -> None:
        # Of what can happen before the run has begun, only a failure matters: nobody has joined yet.
        error = event.error if isinstance(event, RunFailed) else None
        if isinstance(event, CopyLost):
            error = ClusterError(f"{event.peer} was lost while {event.copy} started: {event.reason}")
        if error is not None and self.phase is Phase.STARTING:
            if self._starting is not None:
                self._starting.cancel()
            self._finish(Finish("failed", str(error), error))

    def _finish(self, effect: Finish) -> None:
        self._enter(Phase.OVER)
        self._ending = self._ending or self._loop.create_task(self._end(effect.failure))

    async def _end(self, failure: PsplatformError | None) -> None:
        self.failure = await conclude(self, failure)
        self._enter(Phase.OVER)
        if self.phase is Phase.OVER:
            self._log.info("the run is over: %s", self.failure or "it ended as asked")
        await self.place.finish()
