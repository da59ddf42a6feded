"""A standby in its process: it follows the coordinator event by event, watches it, and says when it takes over."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import cloudpickle

from psplatform.core.coordination import Coordinator
from psplatform.core.protocol.effects import Claim, Send
from psplatform.core.protocol.events import Claimed, CoordinatorLost, Tick
from psplatform.core.protocol.messages import Acknowledged, Beat, LogEntry
from psplatform.core.protocol.place_messages import ActorAt, ActorReleased, Logged, LogWritten
from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.standby import Standby, standby_name
from psplatform.nodes.standby import StandbyNode
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost, approach, call
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.pools.election import claim
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.watching import ENDED, watch
from psplatform.runtime.program import Program
from psplatform.runtime.store.keeping import is_seen_here
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.telemetry.log.segments import Position
from psplatform.telemetry.read_model import RunView

_TOLD: Final = (ActorAt, ActorReleased, Logged, LogWritten)


@dataclass(frozen=True, slots=True)
class StandbySnapshot:
    """What a standby begins with.

    Attributes
    ----------
    number
        The term under which it takes over.
    lowest_number
        The lowest number of a standby of the same coordinator that may take over.
    snapshot
        The coordinator and the picture of the run, pickled by its process for this one.
    handled, elapsed_s
        Events that the coordinator has handled, and the run's time.
    timers
        The timers that are set, by tag.
    place, unwritten
        Up to where the log is in the store, with the records of the term so far, and the records beyond.
    actors
        The run's actors by name: what they are, their shard, and where.
    description
        What the store says of the run.
    """

    number: int
    lowest_number: int
    snapshot: bytes
    handled: int
    elapsed_s: float
    timers: dict[str, float]
    place: tuple[Position, int]
    unwritten: tuple[dict[str, Any], ...]
    actors: dict[str, tuple[str, int, Peer]]
    description: dict[str, Any] = field(default_factory=dict)


def snapshot_of(coordinator: Coordinator, view: RunView) -> bytes:
    """Return both pickled; a policy may be defined in the user's program."""
    pickled: bytes = cloudpickle.dumps((coordinator, view))
    return pickled


@dataclass
class StandbyHost:
    """Makes the node of a standby, and hands it what it sees of the coordinator.

    Attributes
    ----------
    actors
        The run's actors by name, as the coordinator has made them.
    view
        The run's picture.
    processes
        The processes of those actors by address, as far as they are known.
    ended
        How the coordinator was lost, where that was the end of its process, and of everybody's in it.
    description
        What the store says of the run.
    """

    run: str
    program: Program
    connect: Any
    lead: Peer
    fleet: Fleet
    client: Any
    on_take_over: Callable[[], object]
    on_depart: Callable[[str], object]
    actors: dict[str, tuple[str, int, Peer]] = field(default_factory=dict)
    unwritten: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[str, ProcessId] = field(default_factory=dict)
    ended: CoordinatorLost | None = None
    description: dict[str, Any] = field(default_factory=dict)

    def begin(self, snapshot: StandbySnapshot, grants: Grants | None, arrived_at: float) -> None:
        """Follow the coordinator from where `snapshot` was made, which came at `arrived_at` on the loop's clock."""
        self._loop = asyncio.get_running_loop()
        # Since then a client was made: left out, that would look like a pause between beats, and lengthen leases.
        self._offset = snapshot.elapsed_s - arrived_at
        self._answers: list[Any] = []
        self._is_relieving = False
        coordinator, self.view = pickle.loads(snapshot.snapshot)  # noqa: S301  from the coordinator's process, not a store
        self.standby = Standby(
            snapshot.number,
            coordinator,
            snapshot.handled,
            lowest_number=snapshot.lowest_number,
            timers=snapshot.timers,
            grants=grants,
            now=self.now,
        )
        self._node = StandbyNode(
            self.standby,
            lambda: self.now,
            send=self._say,
            claim=self._claim,
            take_over=self._take_over,
            depart=self._depart,
        )
        self.actors.update(snapshot.actors)
        self.description = snapshot.description
        self.unwritten += snapshot.unwritten
        self.place = snapshot.place
        self._heard_at = self._loop.time()
        self._log = ActorLog(self.run, standby_name(self.standby.term, self.standby.number))
        self._background = Background(log=self._log)
        self._log.info("stands by for the coordinator at %s", self.lead.address)
        self._background.keep(partial(watch, self.connect, self.lead, self._on_lead_lost))
        self._background.keep(self._tick)
        self._get_ready([peer for _, _, peer in self.actors.values()])

    def _get_ready(self, peers: list[Peer]) -> None:
        """Keep actors that this standby may lead, and connect to their processes."""
        self.fleet.hold(peers)
        for peer in peers:
            self._background.do(self._approach(peer))

    async def _approach(self, peer: Peer) -> None:
        process = await approach(self.connect, peer)
        if process is not None:
            self.processes[peer.address] = process

    @property
    def copies(self) -> dict[str, tuple[int, Peer]]:
        """Shard and place of every copy, by name."""
        return {name: (shard, peer) for name, (part, shard, peer) in self.actors.items() if part == "copy"}

    @property
    def others(self) -> dict[str, tuple[str, Peer]]:
        """What all the others are, and where, by name."""
        return {name: (part, peer) for name, (part, _, peer) in self.actors.items() if part != "copy"}

    @property
    def now(self) -> float:
        """The run's time, as the coordinator counts it."""
        return self._loop.time() + self._offset

    def take_all(self, messages: Iterable[Any]) -> list[Any]:
        """Take what the coordinator sends together; return what is to be said to it.

        Only the last acknowledgment is returned: it covers the earlier ones.
        """
        answers = [answer for message in messages for answer in self.take(message)]
        newest = next((one for one in reversed(answers) if isinstance(one, Acknowledged)), None)
        return [one for one in answers if one is newest or not isinstance(one, Acknowledged)]

    def take(self, message: Any) -> list[Any]:
        """Take what the coordinator sends; return what is to be said to it."""
        self._heard_at = self._loop.time()
        if not self.standby.follows:
            return []  # what came of an event that it will not see must not be known either
        if isinstance(message, _TOLD):
            self._note(message)
            return []
        if isinstance(message, LogEntry):
            self._offset = max(self._offset, message.now - self._loop.time())
        elif isinstance(message, Beat):
            self._offset = max(self._offset, message.sent_at - self._loop.time())
        self._answers = []
        self._node.feed(message)
        for record in self.standby.records:
            self.view.apply(record)
            self.unwritten.append(record)
        self.standby.forget_records(len(self.standby.records))
        return self._answers

    def _note(self, message: ActorAt | ActorReleased | Logged | LogWritten) -> None:
        if isinstance(message, Logged):
            self.view.apply(message.record)
            self.unwritten.append(message.record)
        elif isinstance(message, LogWritten):
            del self.unwritten[: max(0, message.records - self.place[1])]
            self.place = Position(message.term, message.number), message.records
        elif isinstance(message, ActorReleased):
            self._let_go_of(message.name)
        else:
            peer = Peer(message.address, message.key)
            self.actors[message.name] = message.part, message.shard, peer
            self._get_ready([peer])

    def _let_go_of(self, name: str) -> None:
        """Keep an actor no longer that the coordinator has released: it would stay in its process."""
        _, _, peer = self.actors.pop(name, ("", -1, None))
        if peer is not None:
            self.fleet.release(peer)

    def relieve(self) -> None:
        """Take over now: the coordinator's process is about to end in good order."""
        self._is_relieving = True
        self._node.feed(CoordinatorLost("retired"))

    def _say(self, effect: Send) -> None:
        self._answers.append(effect.message)

    def _take_over(self) -> None:
        self.close()
        self.on_take_over()

    def _depart(self, reason: str) -> None:
        self._log.info("ends: %s", reason)
        self.close()
        self.on_depart(reason)

    def _claim(self, effect: Claim) -> None:
        self._background.do(self._claim_until_answered(effect))

    async def _claim_until_answered(self, effect: Claim) -> None:
        await asyncio.sleep(effect.after_s)
        if self._may_stand_aside and not effect.out and not await is_seen_here(self.program):
            # One that has taken over and cannot open the log would end the run.
            self._log.warning("does not see the store %s: another standby goes first", self.program.store)
            await asyncio.sleep(TIMEOUTS.stand_aside_s)
        granted = await self._has_claimed(effect.number, out=effect.out)
        if not granted and not effect.out:
            # A coordinator that has gone on without it hears of it once more, and can use its process again.
            name = standby_name(self.standby.term, self.standby.number)
            with contextlib.suppress(PeerLost):
                await call(self.connect, self.lead, "deliver", name, encode([]), deadline_s=TIMEOUTS.denied_s)
        self._node.feed(Claimed(effect.number, granted))

    @property
    def _may_stand_aside(self) -> bool:
        """Whether there may be another standby, which knows by itself that the coordinator is lost."""
        protection = self.standby.coordinator.state.plan.protection
        return protection is not None and protection.replicas > 1 and not self._is_relieving

    async def _has_claimed(self, number: int, *, out: bool = False) -> bool:
        term = self.standby.term
        name = f"coordinator-{term}" if out else standby_name(term, number)
        return await claim(self.client, self.program, term, number, name)

    def _on_lead_lost(self, reason: str) -> None:
        lost = CoordinatorLost(reason, self._loop.time() - self._heard_at)
        if reason == ENDED:
            self.ended = lost
        self._node.feed(lost)

    async def _tick(self) -> None:
        while True:
            self._node.feed(Tick())
            await asyncio.sleep(TIMEOUTS.beat_s)

    def dismiss(self) -> None:
        """Follow nobody any more: there is nothing to take over."""
        self._log.info("ends: the run is over, or another stands by")
        self.close()

    def close(self) -> None:
        """Follow nobody any more."""
        self._background.close()
