"""The copies of a run's shards: made, watched, spoken to, and let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

from psplatform.core.protocol.events import CoordinatorLost, CopyAwake, CopyLost, CopyReady, NoCopy
from psplatform.core.protocol.messages import Promote
from psplatform.core.protocol.names import COORDINATOR, first_replica, first_server
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.placement import Placement
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.actors.initial_role import InitialRole
from psplatform.runtime.comms.calls import Peer, PeerLost, is_dead
from psplatform.runtime.comms.processes import ProcessId, process_at
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.seating import Seating, SeatingHost
from psplatform.runtime.pools.shard_actor import ShardActor
from psplatform.runtime.pools.watching import ENDED
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import describe


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


class CopyMaker(Protocol):
    """What recruitment asks of the pool that it makes copies for."""

    seating: Seating

    async def make(self, name: str, key: str, shard: int, address: str, initial_role: InitialRole) -> ShardActor:
        """Make a copy that is open; raise what keeps it from that."""

    def begin_with(self, actor: ShardActor) -> None:
        """Watch a copy and speak to it from now on."""

    def retire(self, name: str) -> None:
        """Let go of a copy, if there is one of that name."""


class Recruitment:
    """Makes further copies while the run goes on: in another process where one is no good, as long as there is any.

    Attributes
    ----------
    planned
        The copies that are being made, by name: each keeps its place from the moment at which that is chosen.
    """

    def __init__(self, host: ShardPoolHost, fleet: Fleet, maker: CopyMaker) -> None:
        self._host, self._fleet, self._maker = host, fleet, maker
        self._placing = asyncio.Lock()
        self._stored: dict[str, int] = {}
        self._waking: set[str] = set()
        self.planned: dict[str, ShardActor] = {}

    def store(self, name: str, shard: int) -> None:
        """Count a replica that is no process: the store keeps what it would be made of."""
        self._stored[name] = shard

    def is_stored(self, name: str) -> bool:
        """Whether a replica is no process, or no finished one, but in the store."""
        return name in self._stored

    def is_waking(self, name: str) -> bool:
        """Whether a process is being made of a replica that was in the store: it is not announced before it is open.

        A coordinator that takes over meanwhile begins anew, and does not wait for one half made.
        """
        return name in self._waking

    async def recruit(self, shard: int) -> None:
        """Make another replica of a shard, where the job wants that: in the store."""
        if self._host.program.cold:
            name = self._fleet.next_name(f"replica-{shard}")
            self.store(name, shard)
            self._host.feed(CopyReady(shard, name, "the store"))
            return
        await asyncio.sleep(TIMEOUTS.replace_after_s)
        without = "every process has a copy of this shard already; start a Dask worker"
        actor, reason = await self._make_somewhere(shard, InitialRole(serving=False, fresh=False), without)
        if actor is None:
            self._host.feed(NoCopy(shard, reason))
            return
        self._maker.begin_with(actor)
        self._host.worker_pool.introduce(actor.where)
        self._host.feed(CopyReady(shard, actor.name, actor.process))

    async def awaken(self, name: str) -> None:
        """Make a process of a replica that was in the store until now; it is promoted when the coordinator knows it."""
        if name in self._waking or name not in self._stored:
            return
        self._waking.add(name)
        shard, without = self._stored[name], "no process is left for it; start a Dask worker"
        actor, reason = await self._make_somewhere(
            shard, InitialRole(serving=False, fresh=False, cold=True), without, name
        )
        self._waking.discard(name)
        if actor is None:
            self._host.feed(CopyLost(name, "the store", reason))
            return
        del self._stored[name]
        self._host.on_actor_made("copy", name, actor.peer, shard)
        self._maker.begin_with(actor)
        self._host.feed(CopyAwake(shard, name, actor.process))

    async def _make_somewhere(
        self, shard: int, initial_role: InitialRole, without: str, name: str = ""
    ) -> tuple[ShardActor | None, str]:
        """Make a copy of that name, or of a new one each time, wherever it can be; or return why there is none.

        Parameters
        ----------
        without
            Why there is none where there is no process to try.
        """
        tried, reason = set[str](), without
        while (place := await self._plan(shard, name, tried)) is not None:
            planned, key = place
            actor, flaw = await self._make(planned, key, initial_role)
            del self.planned[planned.name]
            if actor is not None:
                return actor, ""
            reason = flaw
            self._maker.retire(planned.name)
            if name:
                tried.add(planned.peer.address)
            else:
                self._host.unavailable.lose(planned.name, planned.peer.address)
        return None, reason

    async def _plan(self, shard: int, name: str, tried: set[str]) -> tuple[ShardActor, str] | None:
        """Choose where another copy of a shard goes, and keep that place for it; return it and its actor's name."""
        # Of two that are missing, the second must not go where the first does.  A process for a stored copy is awaited
        # by a failover: it waits for nobody who finds out what others can do.
        async with self._placing if not name else nullcontext():
            address = await self._maker.seating.for_copy(shard, tried)
            if address is None:
                return None
            # An actor of its own for each attempt: one of a coordinator before may still be there.
            key = self._fleet.next_name(name or f"replica-{shard}")
            planned = self.planned[name or key] = ShardActor(name or key, shard, self._fleet.peer(key, address))
            return planned, key

    async def _make(self, planned: ShardActor, key: str, role: InitialRole) -> tuple[ShardActor | None, str]:
        try:
            return await self._maker.make(planned.name, key, planned.shard, planned.peer.address, role), ""
        except (PeerLost, OSError, TimeoutError) as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises is told, and the run goes on
            kind, text, _ = describe(error)
            return None, f"{kind}: {text}"


class DaskShardPool:
    """Makes the copies of shards, and reports those that are lost."""

    def __init__(self, host: ShardPoolHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        self.actors: dict[str, ShardActor] = {}
        self._background = host.new_background()
        self._recruitment = Recruitment(host, fleet, self)
        self.seating = Seating(host, fleet, self)

    # --- at the start ---

    async def create(self, placement: Placement) -> None:
        """Make every copy that the run begins with; none is open yet."""
        for shard, address in enumerate(placement.servers):
            replicas = placement.replicas[shard] if placement.replicas else ()
            names = [first_replica(shard, number) for number in range(len(replicas))]
            for name, place in zip(names, replicas, strict=True):
                await self._create(name, name, shard, place, InitialRole(serving=False))
            if self._host.program.cold:
                names = [first_replica(shard, 0)]
                self._recruitment.store(names[0], shard)
            initial_role = InitialRole(serving=True, replicas=tuple(names))
            await self._create(first_server(shard), first_server(shard), shard, address, initial_role)

    async def _create(self, name: str, key: str, shard: int, address: str, initial_role: InitialRole) -> ShardActor:
        peer = await self._fleet.create(CopyHost, key, address, name, shard, self._host.peer, initial_role)
        actor = self.actors[name] = ShardActor(name, shard, peer)
        if not self._recruitment.is_waking(name):
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
            self.begin_with(actor)
        for actor in self.actors.values():
            if actor.name != first_server(actor.shard):
                self.tell(first_server(actor.shard), actor.where)
        self.seating.begin()

    def adopt(
        self, known: Mapping[str, tuple[int, Peer]], processes: Mapping[str, ProcessId], counted: Mapping[str, int]
    ) -> None:
        """Watch and speak to the copies that a coordinator before has made, in `processes` by address.

        One that is not `counted`, with its shard, among the copies was being made: nobody goes on with that, so it is
        let go of.
        """
        for name, shard in counted.items() if self._host.program.cold else ():
            if name not in known:
                self._recruitment.store(name, shard)
        for name, (shard, peer) in known.items():
            if name not in counted:
                self._do(ShardActor(name, shard, peer).retire(self._fleet, self._host))
                continue
            self.actors[name] = ShardActor(name, shard, peer)
            self._do(self._fleet.meet(peer))
            self.begin_with(self.actors[name], processes.get(peer.address))
            self.tell(name, self._host.whereabouts())
        self.seating.begin()

    def begin_with(self, actor: ShardActor, process: ProcessId | None = None) -> None:
        """Watch a copy, where it is known in its `process`, and speak to it from now on."""
        actor.begin(self._host, self._background, partial(self.lose, actor.name), process)

    # --- what the coordinator's host asks ---

    @property
    def posted(self) -> Collection[ShardActor]:
        """Every copy there is, those that are being made, or for which a place is kept, included."""
        return {**self._recruitment.planned, **self.actors}.values()

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
        waking = self._recruitment.is_waking
        return {actor.name: (actor.shard, actor.peer) for actor in self.actors.values() if not waking(actor.name)}

    def place_of(self, name: str) -> ActorAt | None:
        """Return what tells an actor where a copy is; ``None`` if it is no process."""
        actor = self.actors.get(name)
        return actor.where if actor is not None else None

    def heard(self, name: str) -> bool:
        """Take a sign of life of a copy; return whether it is one of the run's."""
        actor = self.actors.get(name)
        if actor is not None:
            actor.hears()
        return actor is not None

    def send(self, name: str, message: Any) -> None:
        """Send to a copy; to one that is gone, nothing.  An order to serve makes a process of what is in the store."""
        if isinstance(message, Promote) and self._recruitment.is_stored(name):
            self._do(self._recruitment.awaken(name))
            return
        for replica in message.successors if isinstance(message, Promote) else (getattr(message, "replica", None),):
            if replica in self.actors:
                self.tell(name, self.actors[replica].where)
        self.tell(name, message)

    def tell(self, name: str, message: Any) -> None:
        """Send to a copy as it is."""
        actor = self.actors.get(name)
        if actor is not None:
            actor.tell(message)

    def lose(self, name: str, reason: str, silence_s: float = 0.0) -> None:
        """Report a copy that is lost, and was not heard for at least so long."""
        actor = self.actors.get(name)
        if actor is not None and not self._recruitment.is_waking(name):
            silence_s = max(silence_s, actor.silence_s)
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
            self._do(actor.retire(self._fleet, self._host))

    def forget(self, member: str, position_of: Any) -> None:
        """Let every copy drop what a dismissed member exposed, once that is over there."""
        for actor in self.actors.values():
            self._do(actor.forget(self._host, member, position_of(actor.shard)))

    # --- new copies ---

    def recruit(self, shard: int) -> None:
        """Make another replica of a shard in the background."""
        self._do(self._recruitment.recruit(shard))

    async def make(self, name: str, key: str, shard: int, address: str, initial_role: InitialRole) -> ShardActor:
        """Make a copy that is open; raise what keeps it from that."""
        actor = await self._create(name, key, shard, address, initial_role)
        await self._open(actor)
        return actor

    # --- the end ---

    def close(self) -> None:
        """Say nothing more to anybody."""
        self.seating.close()
        self._background.close()
        for actor in self.actors.values():
            actor.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.do(work)
