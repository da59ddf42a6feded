"""One coordinator's time in charge of a run: how it begins or takes over, what programs are told, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.ending import Phase as EndingPhase
from psplatform.core.protocol.effects import Finish
from psplatform.core.protocol.events import Begin, CopyLost, RunFailed, StopRequested
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.placement import Placement
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError, PsplatformError
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.coordinator.driver import CoordinatorDriver, Phase
from psplatform.runtime.actors.coordinator.host_process import HostProcess
from psplatform.runtime.actors.coordinator.standby_host import StandbyHost
from psplatform.runtime.actors.coordinator.steps import LOADING, PLACING, assembling, in_words, serving
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import PeerLost
from psplatform.runtime.comms.processes import process_at
from psplatform.runtime.program import Program
from psplatform.runtime.store.keeping import StoreKeeper
from psplatform.runtime.store.outcome import conclude
from psplatform.runtime.store.run_log import RunLog
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import unforeseen


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
    failure
        Why the run has failed, if it has, once it is over.
    driver
        The coordinator and all that it acts by.
    """

    def __init__(self, place: HostProcess, run_log: RunLog, term: int, began_at: float | None = None) -> None:
        self.failure: PsplatformError | None = None
        self._place, self._program, self._peer = place, place.program, place.peer
        self._loop = asyncio.get_running_loop()
        self._step = PLACING
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._log = ActorLog(place.program.run, f"coordinator-{term}")
        self.driver = CoordinatorDriver(
            place,
            run_log,
            term,
            began_at,
            on_finish=self._finish,
            on_unbegun=self._end_start,
            on_replaced=self.step_down,
        )

    # --- beginning ---

    def start(self, placement: Placement, initial: bytes) -> None:
        """Make the run's actors in the background, and begin the run when they are ready."""
        self._log.info("leads the run from %s", self._peer.address)
        self._starting = self._loop.create_task(self._start(placement, initial))

    async def _start(self, placement: Placement, initial: bytes) -> None:
        try:
            await self._make_actors(placement, initial)
        except PsplatformError as error:
            await self._end(error)
        except Exception as error:  # noqa: BLE001  the seam where a failed start becomes the run's outcome
            await self._end(unforeseen(error, "the run could not start"))

    async def _make_actors(self, placement: Placement, initial: bytes) -> None:
        self.driver.fleet.trust(placement.addresses)
        await self.driver.copies.create(placement)
        self.driver.worker_pool.begin(placement)
        self.driver.servers_made.set()
        self._step = LOADING
        await self.driver.copies.open_all(initial)
        self._step = ""
        # All together, or the first to be ready would train alone for a while, and no run would be like another.
        await self.driver.worker_pool.assembled(TIMEOUTS.assembly_s)
        self._begin()

    def _begin(self) -> None:
        program, processes = self._program, self.driver.copies.processes()
        resume = program.resume.state if program.resume is not None else None
        self.driver.began_at = self._loop.time()
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
        node = self.driver.lead_with(lead)
        self.driver.copies.begin()
        self.driver.enter(Phase.RUNNING)
        self.driver.note({"kind": "run", "at": 0.0, **program.description})
        node.feed(Begin())
        self._place.background.keep(self.driver.beat)
        self.driver.inbox.hear_early()

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
        self._log.info("takes over at %s from the coordinator at %s", self._peer.address, standby_host.lead.address)
        standby, state = standby_host.standby, standby_host.standby.coordinator.state
        counted = {name: one.shard for one in state.shards for name in one.copies}
        self.driver.copies.adopt(standby_host.copies, standby_host.processes, counted)
        self.driver.worker_pool.adopt(
            standby_host.others, state.shards, {member.name for member in state.roster.members()}
        )
        trains = standby.coordinator.ending.phase is EndingPhase.RUNNING
        self.driver.enter(Phase.RUNNING if trains else Phase.ENDING)
        process = process_at(self._peer.address)
        lead, effects = standby.rise(
            self.driver.elapsed_s, grants=grants_of(self._program), appoints=self._wanted_standbys, process=process
        )
        self.driver.lead_with(lead)
        self.driver.servers_made.set()
        self.driver.execute(effects)
        if standby_host.ended is not None:
            self.driver.copies.lose_with(standby_host.lead.address, standby_host.ended)
            self.driver.worker_pool.on_process_ended(standby_host.lead.address, standby_host.ended.reason)
        self._place.background.keep(self.driver.beat)
        self.driver.announce()

    @property
    def _wanted_standbys(self) -> int:
        protection = self._program.plan.protection
        return protection.replicas if protection is not None else 0

    # --- what programs ask ---

    def status(self) -> dict[str, Any]:
        """Return how the run stands."""
        # Over is for others what is over and written.
        phase = Phase.ENDING if self.driver.phase is Phase.OVER and not self._place.over.is_set() else self.driver.phase
        lead = self.driver.node.lead if self.driver.node is not None else None
        step = in_words(lead, self._step or assembling(*self.driver.worker_pool.ready))
        said = {"failure": self.failure, "trouble": self.driver.run_log.trouble, "process": self._place.process}
        return {"phase": phase.value, "step": step, "summary": self.driver.run_log.view.to_summary(), **said}

    def roles(self) -> dict[str, str]:
        """Return the address of every role, by name."""
        actors = {**self.driver.copies.directory(), **self.driver.worker_pool.directory()}
        found = {name: peer.address for name, (_, peer) in actors.items()}
        return {**found, "coordinator": self._peer.address, **self.driver.standbys.roles()}

    def standing(self) -> dict[str, Any]:
        """Return how the shards are served; see `CoordinatorHost.standing`."""
        if self.driver.node is None or self.driver.phase is Phase.REPLACED:
            raise PeerLost(f"{self._peer.address} does not lead the run", peer=self._peer.address)
        return {
            "began_s": self.driver.began_at,
            "term": self.driver.term,
            "lead": self._peer,
            "stands_by": bool(self.driver.standbys.following),
            "copies": self.driver.copies.directory(),
            "shards": serving(self.driver.node.lead),
        }

    def stop(self, reason: str) -> None:
        """End the run in good order."""
        if self.driver.phase is Phase.REPLACED:
            raise PeerLost(f"the run's coordinator is not at {self._peer.address}", peer=self._peer.address)
        unbegun = RunFailed(ClusterError(f"stopped while it was starting: {reason}"))
        self.driver.feed(StopRequested(reason) if self.driver.node is not None else unbegun)

    # --- the end ---

    def step_down(self) -> None:
        """Decide and say nothing more: another has taken over."""
        self.driver.enter(Phase.REPLACED)
        self._log.info("steps down: another coordinator has taken over")
        self.driver.fall_silent()
        self.driver.standbys.close()
        self._place.background.do(self._place.leave())

    async def hand_over(self) -> None:
        """Let a standby take over: this process is about to end in good order."""
        if self.driver.node is None:
            return
        self._log.info("hands over: its process is about to end")
        # First: the standby takes over from what it has heard, and what was decided after that it could not know.
        self.driver.fall_silent()
        if self.driver.phase in {Phase.RUNNING, Phase.ENDING}:
            self.driver.enter(Phase.REPLACED)
            await self.driver.standbys.hand_over()
        self.driver.standbys.close()

    def _end_start(self, event: Any) -> None:
        # Of what can happen before the run has begun, only a failure matters: nobody has joined yet.
        error = event.error if isinstance(event, RunFailed) else None
        if isinstance(event, CopyLost):
            error = ClusterError(f"{event.peer} was lost while {event.copy} started: {event.reason}")
        if error is not None and self.driver.phase is Phase.STARTING:
            if self._starting is not None:
                self._starting.cancel()
            self._finish(Finish("failed", str(error), error))

    def _finish(self, effect: Finish) -> None:
        self.driver.enter(Phase.OVER)
        self._ending = self._ending or self._loop.create_task(self._end(effect.failure))

    async def _end(self, failure: PsplatformError | None) -> None:
        self.failure = await conclude(self.driver, failure)
        self.driver.enter(Phase.OVER)
        if self.driver.phase is Phase.OVER:
            self._log.info("the run is over: %s", self.failure or "it ended as asked")
        await self._place.finish()
