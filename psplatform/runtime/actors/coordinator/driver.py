"""The coordinator in charge of a run and all that it acts by: its node, clock, log and messages, and the pools.

It is what those pools, which make and watch the run's other actors, know of the coordinator's process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Final

from psplatform.core.protocol.effects import Effect, Finish
from psplatform.core.protocol.events import ProcessesChanged, Tick
from psplatform.core.protocol.messages import Announce, Leave, Release, Retiring
from psplatform.core.protocol.place_messages import ActorAt, ActorReleased, CoordinatorAt, Logged
from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.errors import ClusterError, PsplatformError
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.coordinator.host_process import HostProcess
from psplatform.runtime.actors.coordinator.outbox import CoordinatorOutbox
from psplatform.runtime.actors.coordinator.own_interface import OwnInterface
from psplatform.runtime.comms.answering import Reply
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.lines import Said, messages_of
from psplatform.runtime.comms.timers import LoopTimers
from psplatform.runtime.pools.election import Election
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.standbys import Standbys
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.store.news import told
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


class CoordinatorInbox:
    """Takes what the run's actors say to one coordinator, and keeps what they say before the run has begun.

    Parameters
    ----------
    address
        Of this process.
    copies, worker_pool, unavailable
        Know who belongs to the run, and whose process had fallen silent.
    feed
        Hands a message to the coordinator.
    on_processes_changed
        Called when a process can be used again.
    holds
        Whether announcements may stay unanswered for a while; not where workers that wait have more to say.
    """

    def __init__(
        self,
        address: str,
        copies: DaskShardPool,
        worker_pool: DaskWorkerPool,
        unavailable: UnavailableProcesses,
        *,
        feed: Callable[[Any], None],
        on_processes_changed: Callable[[], None],
        holds: bool,
    ) -> None:
        self._address, self._holds = address, holds
        self._copies, self._worker_pool, self._unavailable = copies, worker_pool, unavailable
        self._feed, self._on_processes_changed = feed, on_processes_changed
        self._outbox: CoordinatorOutbox | None = None
        self._early: list[tuple[str, Said]] = []
        self._replaced = False

    def open(self, outbox: CoordinatorOutbox) -> None:
        """Let the coordinator hear what comes from now on, and answer it by `outbox`."""
        self._outbox = outbox

    def close(self) -> None:
        """Take nothing more: another coordinator has taken over."""
        self._replaced = True
        self.answer_all()

    def answer_all(self) -> None:
        """Let no worker wait for an answer any longer."""
        if self._outbox is not None:
            self._outbox.close()

    def take(self, sender: str, said: Said) -> Reply:
        """Take messages; return what is said to the sender at once, or whether it is one of this run's actors.

        A worker that has announced a gradient is answered with its release, if that comes soon.

        Raises
        ------
        PeerLost
            If this coordinator was replaced.
        """
        if self._replaced:
            # Not refused, or a worker that does not know the successor yet would end; nor taken, or it would be lost.
            raise PeerLost(f"the coordinator at {self._address} was replaced", peer=self._address)
        if sender.startswith("coordinator") or not self._knows(sender):
            return False
        if self._outbox is not None:
            return self._answer(self._outbox, sender, said)
        self._early.append((sender, said))
        return True

    def hear_early(self) -> None:
        """Let the coordinator hear what came before the run had begun, of those that are still there."""
        for sender, said in self._early:
            if self._knows(sender):
                self._hear(said)

    def _knows(self, sender: str) -> bool:
        if self._copies.heard(sender) or self._worker_pool.heard(sender):
            return True
        if self._unavailable.heard(sender):
            self._on_processes_changed()
        return False

    def _answer(self, outbox: CoordinatorOutbox, sender: str, said: Said) -> Reply:
        # Within a process no answer is lost, and none is held.
        if isinstance(said, bytes) and (again := self._worker_pool.answer_again(sender, said)):
            return again
        with outbox.answering(sender) as answers:
            announced = self._hear(said)
        if not answers:
            return outbox.hold(sender, said) if announced and isinstance(said, bytes) and self._holds else True
        answer = encode(answers)
        if isinstance(said, bytes) and any(isinstance(one, Release) for one in answers):
            self._worker_pool.note_answer(sender, said, answer)  # which is said once; leases are given again
        return answer

    def _hear(self, said: Said) -> bool:
        """Let the coordinator hear messages; return whether a gradient was announced."""
        announced = False
        for message in messages_of(said):
            if isinstance(message, Announce):
                announced = True
            elif isinstance(message, Retiring):
                self._copies.expect_the_end(message.copy)
            elif isinstance(message, Leave):
                self._worker_pool.on_leave(message.member, message.reason)
            self._feed(message)
        return announced


class CoordinatorDriver:
    """Executes what one coordinator decides, and tells it what happens.

    Parameters
    ----------
    place
        The process that it runs in.
    run_log
        The run's log, which it goes on with.
    began_at
        When the run's time began on the loop's clock; ``None`` if it begins with this coordinator.
    on_finish
        Takes how the run has ended.
    on_unbegun
        Takes what happens before the run has begun.
    on_replaced
        Called when another coordinator is in charge.

    Attributes
    ----------
    phase
        In which phase the tenure is.
    began_at
        When the run's time began.
    servers_made
        Set when every server's actor was made.
    node
        The coordinator's node, once the run has begun.
    inbox
        Takes what the run's actors say.
    copies, worker_pool, standbys
        The run's other actors.
    election, sealer
        What is asked of the scheduler, and checkpoints.
    """

    def __init__(
        self,
        place: HostProcess,
        run_log: RunLog,
        term: int,
        began_at: float | None = None,
        *,
        on_finish: Callable[[Finish], None],
        on_unbegun: Callable[[Any], None],
        on_replaced: Callable[[], None],
    ) -> None:
        self.program, self.run, self.actor = place.program, place.program.run, place.actor
        self.peer, self.connect = place.peer, place.connect
        self.fleet, self.unavailable = place.fleet, place.unavailable
        self.term, self.sender = term, f"coordinator-{term}"
        self.phase = Phase.STARTING
        self.began_at = began_at
        self.servers_made = asyncio.Event()
        self.node: CoordinatorNode | None = None
        self._card, self._background = place.card, place.background
        self._on_finish, self._on_unbegun, self._on_replaced = on_finish, on_unbegun, on_replaced
        self._log = ActorLog(self.run, self.sender)
        self._now = asyncio.get_running_loop().time
        self.fleet.begin_term(term)
        self.run_log = told(run_log, self)
        self.copies = DaskShardPool(self, self.fleet)
        self.worker_pool = DaskWorkerPool(self, self.fleet)
        self.standbys = Standbys(self, self.fleet)
        self.election = Election(self, place.client)
        self.sealer = Sealer(self)
        self.inbox = self.make_inbox()
        self._own_interface = OwnInterface(self.peer.address, lambda: self.elapsed_s, self.feed)
        place.closing.callback(self.election.close)

    def make_inbox(self) -> CoordinatorInbox:
        """Make what takes the messages of the actors in the pools."""
        return CoordinatorInbox(
            self.peer.address,
            self.copies,
            self.worker_pool,
            self.unavailable,
            feed=self.feed,
            on_processes_changed=self.on_processes_changed,
            holds=self.program.fabric is None,
        )

    # --- the coordinator ---

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
            finish=self._on_finish,
            depart=lambda reason: self._on_replaced(),
            explain=self._explain,
            note=self._look_at,
        )
        self.inbox.open(self._outbox)
        return self.node

    def execute(self, effects: list[Effect]) -> None:
        """Execute what the coordinator decided as it took over."""
        self._outbox.look_at(effects)
        self.leading.execute(effects)

    async def beat(self) -> None:
        """Let the coordinator beat, where the run is replicated, until it is replaced."""
        while self.phase is not Phase.REPLACED and self.program.plan.protection is not None:
            if self.phase is Phase.OVER:
                self.standbys.tell(self.lead.beat(self.elapsed_s))  # it is still being written
            else:
                self.feed(Tick())
            await asyncio.sleep(TIMEOUTS.beat_s)

    def enter(self, phase: Phase) -> None:
        """Enter a phase, if it can follow."""
        if phase in _NEXT[self.phase]:
            self.phase = phase
            if phase is Phase.REPLACED:
                self.inbox.close()

    def silence(self) -> None:
        """Let no timer of the coordinator fire any more."""
        self._own_interface.close()
        if self.node is not None:
            self.node.close()

    def fall_silent(self) -> None:
        """Decide, write and say nothing more."""
        self.silence()
        self.run_log.abandon()
        self.inbox.answer_all()
        self.copies.close()
        self.worker_pool.close()

    def _look_at(self, event: Any, effects: Iterable[Effect]) -> None:
        if self.phase is Phase.RUNNING and self.lead.coordinator.state.stopping:
            self.enter(Phase.ENDING)
        self._outbox.look_at(effects)
        self._own_interface.note(event)

    def _explain(self, error: Exception, event: Any) -> PsplatformError:
        if event is not None:
            what = f"handling {type(event).__name__} under policy {self.program.description['policy']!r} failed"
            return unforeseen(error, what)
        self.on_mishap(f"{type(error).__name__}: {error}")
        return unforeseen(error, "acting on what the coordinator had decided failed")

    # --- what its parts ask for ---

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""
        return self._now() - self.began_at if self.began_at is not None else 0.0

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
            self._on_unbegun(event)
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
        self._background.do(self._card.show(self.term, standby=following))

    def new_background(self) -> Background:
        """Return what does work that nothing waits for, and tells of it if it fails."""
        return Background(self.on_mishap, self._log)

    def on_mishap(self, text: str) -> None:
        """Log a failure of a task that nothing waits for."""
        self.note({"kind": "note", "at": self.elapsed_s, "text": f"in the coordinator's process: {text}"})

    def on_refused(self) -> None:
        """Stop: an actor obeys another coordinator."""
        if self.phase not in {Phase.OVER, Phase.REPLACED}:
            self._on_replaced()
