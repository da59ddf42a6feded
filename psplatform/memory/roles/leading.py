"""Coordinators and standbys where time is virtual: their nodes, and what those ask of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

from psplatform.core.protocol.effects import Claim, Finish, Seal, Send
from psplatform.core.protocol.events import CheckpointFailed, CheckpointSealed, Claimed, Consulted, CopyReady, NoCopy
from psplatform.core.protocol.names import Role
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.core.supervision.standby import Standby, standby_name
from psplatform.errors import ClusterError, PsplatformError, StoreError
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Agenda, Engine, Network, Processes, VirtualTimers
from psplatform.memory.roles.shards import VirtualShards
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.nodes.ports import WorkerPool
from psplatform.nodes.standby import StandbyNode


class VirtualElection:
    """Grants each number of a coordinator's standby under the name that is heard first, and under no other.

    Attributes
    ----------
    granted
        By the coordinator's term and the standby's number, the name that has it.
    """

    def __init__(self, engine: Engine) -> None:
        self.granted: dict[tuple[int, int], str] = {}
        self._engine = engine

    def claim(self, name: str, number: tuple[int, int], claimant: str, feed: Callable[[Any], None]) -> None:
        """Let the role of that name claim `number` in the name of `claimant`; `feed` takes the answer."""
        unheard_s, unanswered_s = self._engine.world.claim_s(self._engine.processes.of(name), self._engine.agenda.now)
        if unheard_s > 0.0:
            # Who claims asks until it is answered: one that is gone by then has claimed nothing.
            self._engine.later(name, unheard_s, self.claim, name, number, claimant, feed)
            return
        granted = self.granted.setdefault(number, claimant) == claimant
        self._engine.later(name, unanswered_s, feed, Claimed(number[1], granted))

    def consult(self, name: str, number: int, feed: Callable[[Any], None]) -> None:
        """Let the role of that name hear that it is not cut off, once it is not; `feed` takes that."""
        unheard_s, unanswered_s = self._engine.world.claim_s(self._engine.processes.of(name), self._engine.agenda.now)
        if unheard_s > 0.0:
            self._engine.later(name, unheard_s, self.consult, name, number, feed)
        else:
            self._engine.later(name, unanswered_s, feed, Consulted(number))


class Sink(Protocol):
    """Takes the records of the event log one by one."""

    def append(self, record: dict[str, Any], /) -> None:
        """Take the next record."""


class VirtualWorkers(WorkerPool, Protocol):
    """One coordinator's gradient workers and evaluator, and what is noticed of them."""

    @property
    def names(self) -> Collection[str]:
        """The gradient workers that are watched over."""

    @property
    def evaluator(self) -> str:
        """The evaluator's name, empty while there is none."""

    def beside(self, feed: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what hands everything to `feed`, and acts on it first where a worker leaves."""

    def on_beat(self, name: str, delay_s: float) -> None:
        """Take a sign of life that arrives later on."""

    def on_lost(self, name: str, reason: str) -> None:
        """Notice that the process of a gradient worker has ended."""

    def succeed(self, before: Any) -> None:
        """Go on with those of the coordinator before."""

    def watch(self) -> None:
        """Look for those that are lost, and for processes, from now on."""

    def on_silent(self, name: str) -> None:
        """Notice that a gradient worker has said nothing for as long as its lease lasts."""


class Appointing(Protocol):
    """Makes standbys, and forgets them."""

    def appoint(self, lead: VirtualCoordinator, number: int) -> None:
        """Make a standby of a coordinator, now or as soon as there is a process for it."""

    def depart(self, standby: VirtualStandby) -> None:
        """Forget a standby that does not take over."""


class CoordinatedRun(Protocol):
    """What coordinators and standbys ask of the run that they are in charge of, or would be."""

    agenda: Agenda
    processes: Processes
    arithmetic: Arithmetic
    network: Network
    election: VirtualElection
    shards: VirtualShards
    finish: Finish | None
    seals: dict[int, Seal]

    def tell_lead(self, event: Any) -> None:
        """Tell the coordinator in charge; where there is none, the next."""

    def end(self, finish: Finish) -> None:
        """End the run with that outcome."""

    def retire(self, lead: VirtualCoordinator, copy: str) -> None:
        """Let a server or replica know that nobody needs it any more."""

    @property
    def standbys(self) -> Appointing:
        """The standbys of its coordinators."""

    def take_over(self, standby: VirtualStandby) -> None:
        """Make a standby the coordinator."""


class VirtualCoordinator:
    """One coordinator: its node, and all ports of that but the timers.

    Parameters
    ----------
    lead
        The state machine.
    sink
        Takes the event log.
    make_workers
        Makes the pool of its gradient workers.

    Attributes
    ----------
    name, role
        Of the coordinator.
    workers
        Its gradient workers and the evaluator.
    made
        The copies that it has had made, and not let go of: of the last, the state machine may not have heard yet.
    node
        Executes what it asks for.
    """

    def __init__(
        self,
        run: CoordinatedRun,
        lead: ReplicatedCoordinator,
        sink: Sink,
        make_workers: Callable[[VirtualCoordinator], VirtualWorkers],
    ) -> None:
        self.name, self.role, self.lead = f"coordinator-{lead.term}", Role("coordinator", str(lead.term)), lead
        self.sink = sink
        self._run, self._term = run, lead.term
        self.made: set[str] = set()
        self.workers = make_workers(self)
        self.node = CoordinatorNode(
            lead,
            lambda: run.agenda.now,
            send=self._send,
            log=self._log,
            make_timers=partial(VirtualTimers, run.agenda, run.processes, self.name),
            shards=self,
            workers=self.workers,
            standbys=self,
            arbiter=self,
            checkpoints=self,
            finish=run.end,
            depart=lambda reason: None,
            explain=_explain,
            note=partial(run.processes.note, self.name),
        )
        self.feed = self.workers.beside(self.node.feed)

    def _send(self, effect: Send) -> None:
        if effect.to.kind != "standby":
            self._run.network.send(self.role, effect)
            return
        for number in self.lead.standbys:
            to = Role("standby", standby_name(self._term, number))
            self._run.network.send(self.role, Send(to, effect.message))

    def _log(self, record: dict[str, Any]) -> None:
        self.sink.append(record)

    def recruit(self, shard: int) -> None:
        """Make another replica at once."""
        name = self._run.shards.make_replica(shard, self._term)
        answer: Any = NoCopy(shard, "no process is left for it")
        if name is not None:
            answer = CopyReady(shard, name, f"memory://{name}")
            self.made.add(name)
        self._run.agenda.enter(0.0, self._run.tell_lead, answer)

    def retire(self, name: str) -> None:
        """Let a server or replica know that nobody needs it any more."""
        self.made.discard(name)
        self._run.retire(self, name)

    def forget(self, member: str, position_of: Callable[[int], int]) -> None:
        """Let every copy drop what a dismissed member exposed, once that is over there."""
        for name, node in self._run.shards.nodes.items():
            if not node.closed and node.control.part.term <= self._term:
                position = position_of(node.state.shard)
                self._run.processes.do(name, node.state.dismiss, member, position, self._term)

    def appoint(self, number: int) -> None:
        """Make a standby, where there is a process for it."""
        self._run.standbys.appoint(self, number)

    def suspect(self, number: int) -> None:
        """Do nothing: who is lost is known."""

    def claim(self, number: int) -> None:
        """Claim the number of a standby."""
        self._run.election.claim(self.name, (self._term, number), self.name, self.feed)

    def consult(self, number: int) -> None:
        """Ask whether this coordinator is cut off."""
        self._run.election.consult(self.name, number, self.feed)

    def seal(self, effect: Seal) -> None:
        """Write the manifest of a checkpoint."""
        try:
            answer: Any = CheckpointSealed(effect.number, self._run.arithmetic.seal(effect))
            self._run.seals[effect.number] = effect
        except StoreError as error:
            answer = CheckpointFailed(effect.number, str(error))
        self._run.agenda.enter(0.0, self._run.tell_lead, answer)

    def discard(self, number: int) -> None:
        """Remove what was written of a checkpoint."""
        self._run.arithmetic.discard(number)


def _explain(error: Exception, event: Any) -> PsplatformError:
    """Return what ends the run where the world outside fails, in a way that nobody expects, at an effect."""
    if event is None and isinstance(error, OSError):
        return ClusterError(f"acting on what the coordinator had decided failed: {error}")
    raise error  # what runs in memory is looked at by who wrote it


class VirtualStandby:
    """One standby: its node, and the ports of that.

    Attributes
    ----------
    name, role
        Of the standby.
    node
        Executes what it asks for.
    records_before
        Records of the log before the first that the standby has seen made.
    """

    def __init__(self, run: CoordinatedRun, standby: Standby, records_before: int) -> None:
        self.name = standby_name(standby.term, standby.number)
        self.role, self.standby = Role("standby", self.name), standby
        self.records_before = records_before
        self._run, self._term = run, standby.term
        self.node = StandbyNode(
            standby,
            partial(run.processes.clock, self.name),
            send=partial(run.network.send, self.role),
            claim=self._claim,
            take_over=lambda: run.take_over(self),
            depart=lambda reason: run.standbys.depart(self),
        )
        self.feed = self.node.feed

    def _claim(self, effect: Claim) -> None:
        if effect.after_s:
            self._run.agenda.enter(effect.after_s, self._run.processes.do, self.name, self._claim_now, effect)
        else:
            self._claim_now(effect)

    def _claim_now(self, effect: Claim) -> None:
        claimant = f"coordinator-{self._term}" if effect.out else self.name
        self._run.election.claim(self.name, (self._term, effect.number), claimant, self.feed)
