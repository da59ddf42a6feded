"""The copies of a run's shards: made, watched, spoken to, and let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from psplatform.core.protocol.effects import COORDINATOR, first_replica, first_server
from psplatform.core.protocol.events import CoordinatorLost, CopyAwake, CopyLost, CopyReady, NoCopy
from psplatform.core.protocol.messages import Promote
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.placement import Placement
from psplatform.errors import PsplatformError
from psplatform.runtime.actors.coordinator_process import Employer
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.comms.background import Kept
from psplatform.runtime.comms.calls import Peer, PeerLost, PeerSilent, call, is_dead, wakes
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.comms.processes import ProcessId, process_at
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.seating import Seating, SeatingHost
from psplatform.runtime.pools.watching import ENDED, watch
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import describe


@dataclass(slots=True)
class ShardActor:
    """One copy, the way to it, and what its process is called."""

    name: str
    shard: int
    peer: Peer
    process: str = ""
    line: Line | None = None
    watching: Kept | None = None
    heard_at: float = 0.0


class WorkersBeside(Protocol):
    """What the shard pool asks of the worker pool."""

    @property
    def addresses(self) -> set[str]:
        """Processes with a gradient worker."""

    def introduce(self, place: ActorAt) -> None:
        """Let every gradient worker attach to a new copy of a shard."""

    def on_process_ended(self, address: str, reason: str) -> None:
        """Report the gradient workers and the evaluator of a process that is certain to have ended."""


class ShardPoolHost(Employer, SeatingHost, Protocol):
    """What the shard pool may ask of the coordinator's process, beside what every employer of actors may."""

    @property
    def worker_pool(self) -> WorkersBeside:
        """The gradient workers."""


class DaskShardPool:
    """Makes the copies of shards, and reports those that are lost."""

    def __init__(self, host: ShardPoolHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        self.actors: dict[str, ShardActor] = {}
        self._cold = host.program.cold
        self._stored: dict[str, int] = {}
        self._waking: set[str] = set()
        self._planned: dict[str, ShardActor] = {}
        self._placing = asyncio.Lock()
        self._background = host.new_background()
        self.seating = Seating(host, fleet, self)

    # --- at the start ---

    async def create(self, placement: Placement) -> None:
        """Make every copy that the run begins with; none is open yet."""
        for shard, address in enumerate(placement.servers):
            replicas = placement.replicas[shard] if placement.replicas else ()
            names = [first_replica(shard, number) for number in range(len(replicas))]
            for name, place in zip(names, replicas, strict=True):
                await self._create(name, name, shard, place, InitialRole(serving=False))
            if self._cold:
                names = [first_replica(shard, 0)]
                self._stored[names[0]] = shard
            initial_role = InitialRole(serving=True, replicas=tuple(names))
            await self._create(first_server(shard), first_server(shard), shard, address, initial_role)

    async def _create(self, name: str, key: str, shard: int, address: str, initial_role: InitialRole) -> ShardActor:
        peer = await self._fleet.create(CopyHost, key, address, name, shard, self._host.peer, initial_role)
        actor = self.actors[name] = ShardActor(name, shard, peer)
        if name not in self._waking:
            self._host.on_actor_made("copy", name, peer, shard)
        return actor

    async def open_all(self, initial: bytes) -> None:
        """Let every copy build its state, from `initial` where the task does not make it."""
        await asyncio.gather(*(self._open(actor, initial) for actor in self.actors.values()))

    async def _open(self, actor: ShardActor, *initial: bytes) -> None:
        actor.process = await self._fleet.open(actor.peer, *initial)

    def begin(self) -> None:
        """Watch every copy and speak to it from now on."""
        for actor in self.actors.values():
            self._begin(actor)
        for actor in self.actors.values():
            if actor.name != first_server(actor.shard):
                self.tell(first_server(actor.shard), _where(actor))
        self.seating.begin()

    def adopt(
        self, known: Mapping[str, tuple[int, Peer]], processes: Mapping[str, ProcessId], counted: Mapping[str, int]
    ) -> None:
        """Watch and speak to the copies that a coordinator before has made, in `processes` by address.

        One that is not `counted`, with its shard, among the copies was being made: nobody goes on with that, so it is
        let go of.
        """
        self._stored = {name: shard for name, shard in counted.items() if self._cold and name not in known}
        for name, (shard, peer) in known.items():
            if name not in counted:
                self._do(self._let_go(ShardActor(name, shard, peer)))
                continue
            self.actors[name] = ShardActor(name, shard, peer)
            self._do(self._fleet.meet(peer))
            self._begin(self.actors[name], processes.get(peer.address))
            self.tell(name, self._host.whereabouts())
        self.seating.begin()

    def _begin(self, actor: ShardActor, process: ProcessId | None = None) -> None:
        host = self._host
        actor.heard_at = asyncio.get_running_loop().time()
        actor.line = Line(
            host.connect,
            actor.peer,
            host.sender,
            host.new_background(),
            patience_s=host.program.server_lease_s,
            on_lost=lambda reason: self.lose(actor.name, reason),
            on_refused=host.on_refused,
            beat_s=host.program.server_lease_s / 4,
        )
        on_lost = partial(self.lose, actor.name)
        actor.watching = self._background.keep(partial(watch, host.connect, actor.peer, on_lost, process))

    # --- what the coordinator's host asks ---

    @property
    def posted(self) -> Collection[ShardActor]:
        """Every copy there is, those that are being made, or for which a place is kept, included."""
        return {**self._planned, **self.actors}.values()

    @property
    def addresses(self) -> set[str]:
        """Where there are copies, or will be: no gradient worker goes where one is just being made."""
        return {actor.peer.address for actor in self.posted}

    def processes(self) -> dict[str, str]:
        """Return what the process of every copy, and of the coordinator, is called, by name."""
        here = {COORDINATOR.kind: process_at(self._host.peer.address)}
        return {actor.name: actor.process for actor in self.actors.values()} | here

    def directory(self) -> dict[str, tuple[int, Peer]]:
        """Return shard and place of every copy that a coordinator that takes over can speak to, by name."""
        return {
            actor.name: (actor.shard, actor.peer) for actor in self.actors.values() if actor.name not in self._waking
        }

    def place_of(self, name: str) -> ActorAt | None:
        """Return what tells an actor where a copy is; ``None`` if it is no process."""
        actor = self.actors.get(name)
        return _where(actor) if actor is not None else None

    def heard(self, name: str) -> bool:
        """Take a sign of life of a copy; return whether it is one of the run's."""
        actor = self.actors.get(name)
        if actor is not None:
            actor.heard_at = asyncio.get_running_loop().time()
        return actor is not None

    def send(self, name: str, message: Any) -> None:
        """Send to a copy; to one that is gone, nothing.  An order to serve makes a process of what is in the store."""
        if name in self._stored and isinstance(message, Promote):
            self._do(self._awaken(name, self._stored[name]))
            return
        for replica in message.successors if isinstance(message, Promote) else (getattr(message, "replica", None),):
            if replica in self.actors:
                self.tell(name, _where(self.actors[replica]))
        self.tell(name, message)

    def tell(self, name: str, message: Any) -> None:
        """Send to a copy as it is."""
        actor = self.actors.get(name)
        if actor is not None and actor.line is not None:
            actor.line.send(message)

    def lose(self, name: str, reason: str, silence_s: float = 0.0) -> None:
        """Report a copy that is lost, and was not heard for at least so long."""
        actor = self.actors.get(name)
        if actor is not None and name not in self._waking:
            silence_s = max(silence_s, asyncio.get_running_loop().time() - actor.heard_at)
            self._host.unavailable.lose(name, actor.peer.address)
            self._host.feed(CopyLost(name, actor.peer.address, reason, silence_s))
            self.retire(name)  # where the coordinator does not count it, or must wait before it says so
            self._do(self._request_state(actor))
            if reason == ENDED:
                self._host.worker_pool.on_process_ended(actor.peer.address, reason)

    async def _request_state(self, actor: ShardActor) -> None:
        """Log of what the process of a lost copy has died; what follows from the loss does not wait for it."""
        death = await self._fleet.death_of(actor.peer.address)
        if death is not None:
            self._host.note({"kind": "note", "at": self._host.elapsed_s, "text": f"{death}; {actor.name} was there"})

    def lose_with(self, address: str, lost: CoordinatorLost) -> None:
        """Report the copies that were in the process of the lost coordinator, at `address`, which has ended."""
        for name in [name for name, actor in self.actors.items() if actor.peer.address == address]:
            self.lose(name, lost.reason, lost.silence_s)

    def lose_process(self, address: str, reason: str) -> None:
        """Report the copies of a process that has left the cluster, once it has ended.

        One that ends in good order leaves before its copies have handed over.
        """
        self._host.unavailable.leave(address)
        for actor in [actor for actor in self.actors.values() if actor.peer.address == address]:
            self._do(self._lose_if_dead(actor, reason))

    async def _lose_if_dead(self, actor: ShardActor, reason: str) -> None:
        if await is_dead(actor.peer):
            self.lose(actor.name, reason)  # any other is watched

    def expect_the_end(self, name: str) -> None:
        """Give the process of a copy, which is about to end, no further role."""
        if name in self.actors:
            self._host.unavailable.leave(self.actors[name].peer.address)

    def retire(self, name: str) -> None:
        """Let go of a copy that is out."""
        actor = self.actors.pop(name, None)
        if actor is not None:
            self._host.unavailable.lose(name, actor.peer.address)
            self._host.released(name)
            self._do(self._let_go(actor))

    async def _let_go(self, actor: ShardActor) -> None:
        has_opened = actor.line is not None
        if actor.watching is not None:
            actor.watching.end()
        if actor.line is not None:
            actor.line.close()
        try:
            await call(self._host.connect, actor.peer, "retire", deadline_s=1.0)
        except PeerSilent:  # it may be stopped: then its epoch fences it
            self._do(self._await_waking(actor))
        except PeerLost:
            pass
        else:
            if has_opened:  # where it could not, another could not either
                self._on_heard(actor)
        self._fleet.release(actor.peer)

    async def _await_waking(self, actor: ShardActor) -> None:
        """Let the process of a copy that is out take a role again as soon as it answers anything."""
        if await wakes(self._host.connect, actor.peer, "retire"):
            self._on_heard(actor)

    def _on_heard(self, actor: ShardActor) -> None:
        if self._host.unavailable.heard(actor.name):
            self._host.on_processes_changed()

    def forget(self, member: str, position_of: Any) -> None:
        """Let every copy drop what a dismissed member exposed, once that is over there."""
        for actor in self.actors.values():
            self._do(self._forget(actor.peer, member, position_of(actor.shard)))

    async def _forget(self, peer: Peer, member: str, position: int) -> None:
        try:
            await call(
                self._host.connect, peer, "forget", self._host.term, member, position, deadline_s=TIMEOUTS.release_s
            )
        except PsplatformError:
            return  # a copy that is gone has forgotten everything

    # --- new copies ---

    def recruit(self, shard: int) -> None:
        """Make another replica of a shard in the background."""
        if self._cold:
            self._do(self._recruit_cold(shard))
        else:
            self._do(self._recruit(shard))

    async def _recruit_cold(self, shard: int) -> None:
        name = self._fleet.next_name(f"replica-{shard}")
        self._stored[name] = shard
        self._host.feed(CopyReady(shard, name, "the store"))

    async def _awaken(self, name: str, shard: int) -> None:
        """Make a process of a replica that was in the store until now; it is promoted when the coordinator knows it.

        It is not announced before: a coordinator that takes over meanwhile begins anew, and does not wait for one half
        made.
        """
        if name in self._waking or name not in self._stored:
            return
        self._waking.add(name)
        tried = set[str]()
        reason = "no process is left for it; start a Dask worker"
        while (address := await self.seating.for_copy(shard, tried)) is not None:
            # An actor of its own for each attempt: one of a coordinator before may still be there.
            key = self._fleet.next_name(name)
            actor, flaw = await self._make(name, key, shard, address, InitialRole(serving=False, cold=True))
            if actor is not None:
                self._waking.discard(name)
                del self._stored[name]
                self._host.on_actor_made("copy", name, actor.peer, shard)
                self._begin(actor)
                self._host.feed(CopyAwake(shard, name, actor.process))
                return
            reason = flaw
            self.retire(name)
            tried.add(address)
        self._waking.discard(name)
        self._host.feed(CopyLost(name, "the store", reason))

    async def _recruit(self, shard: int) -> None:
        await asyncio.sleep(TIMEOUTS.replace_after_s)
        reason = "every process has a copy of this shard already; start a Dask worker"
        while (planned := await self._plan(shard)) is not None:
            name, address = planned.name, planned.peer.address
            actor, flaw = await self._make(name, name, shard, address, InitialRole(serving=False, fresh=False))
            del self._planned[name]
            if actor is not None:
                self._begin(actor)
                self._host.worker_pool.introduce(_where(actor))
                self._host.feed(CopyReady(shard, name, actor.process))
                return
            reason = flaw
            self.retire(name)
            self._host.unavailable.lose(name, address)
        self._host.feed(NoCopy(shard, reason))

    async def _plan(self, shard: int) -> ShardActor | None:
        """Choose where another copy of a shard goes, and keep that place for it until it is there."""
        async with self._placing:  # of two that are missing, the second must not go where the first does
            address = await self.seating.for_copy(shard)
            if address is None:
                return None
            name = self._fleet.next_name(f"replica-{shard}")
            self._planned[name] = ShardActor(name, shard, self._fleet.peer(name, address))
            return self._planned[name]

    async def _make(
        self, name: str, key: str, shard: int, address: str, initial_role: InitialRole
    ) -> tuple[ShardActor | None, str]:
        """Make a copy that is open; or return why there is none."""
        try:
            actor = await self._create(name, key, shard, address, initial_role)
            await self._open(actor)
        except (PeerLost, OSError, TimeoutError) as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises is told, and the run goes on
            kind, text, _ = describe(error)
            return None, f"{kind}: {text}"
        return actor, ""

    # --- the end ---

    def close(self) -> None:
        """Say nothing more to anybody."""
        self.seating.close()
        self._background.close()
        for actor in self.actors.values():
            if actor.line is not None:
                actor.line.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.do(work)


def _where(actor: ShardActor) -> ActorAt:
    return ActorAt(actor.name, actor.peer.address, actor.peer.key, actor.shard)
