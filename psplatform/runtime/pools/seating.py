"""Where the roles of a run are, where others go, which of them move apart again, and what the run survives meanwhile.

One per coordinator.  It looks a few times per second: what the run survives is logged when it changes, and one role at
a time is moved where that makes it outlive more.  Processes without a role are warmed ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.protocol.events import CopyMisplaced
from psplatform.core.supervision.placement import Process, process_for_copy, process_for_standby, seats_of
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.core.supervision.survival import STORE, Place, Roles, ShardPlaces, survives
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.actors.coordinator.process import CoordinatorProcess
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.moves import Move, Seats, moves
from psplatform.runtime.pools.warming import next_spare
from psplatform.runtime.timeouts import TIMEOUTS


class StandbysBeside(Protocol):
    """What seating asks of the standbys' side."""

    @property
    def following(self) -> tuple[str, ...]:
        """Where the standbys are that follow."""

    def lose_process(self, address: str, reason: str) -> None:
        """Let go of the standby in that process, and make another."""


class WorkersBeside(Protocol):
    """What seating asks of the gradient workers' side."""

    @property
    def addresses(self) -> set[str]:
        """Processes with a gradient worker."""


class SeatingHost(CoordinatorProcess, Protocol):
    """What seating may ask of the coordinator's process."""

    peer: Peer
    unavailable: UnavailableProcesses

    @property
    def runs(self) -> bool:
        """Whether the run has begun and is not ending."""

    @property
    def lead(self) -> ReplicatedCoordinator:
        """The coordinator."""

    @property
    def worker_pool(self) -> WorkersBeside:
        """The gradient workers."""

    @property
    def standbys(self) -> StandbysBeside:
        """The standbys' side."""

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""


class Posted(Protocol):
    """A copy of a shard, and where it is."""

    name: str
    shard: int
    peer: Peer


class CopiesBeside(Protocol):
    """What seating asks of the worker pool that makes the copies."""

    @property
    def posted(self) -> Iterable[Posted]:
        """Every copy there is, those that are being made included."""


class Seating:
    """Knows where everybody is."""

    def __init__(self, host: SeatingHost, fleet: Fleet, copies: CopiesBeside) -> None:
        self._host = host
        self._fleet = fleet
        self._copies = copies
        self._background = host.new_background()
        self._said: tuple[str, str] | None = None
        self._seen: object = None
        self._seen_at = 0.0
        self._leaving: dict[int, str] = {}
        self._leaves_by = 0.0
        self._tried: set[tuple[str, str]] = set()
        self._asked: set[str] = set()

    def begin(self) -> None:
        """Look from now on, where anything is replicated."""
        if self._host.program.plan.protection is not None:
            self._background.keep(self._look_for_ever)

    def close(self) -> None:
        """Look no longer."""
        self._background.close()

    # --- where another role goes ---

    async def for_copy(self, shard: int, but: Collection[str] = ()) -> str | None:
        """Return where another copy of a shard can be made, or ``None`` where nowhere, or where nobody can be asked."""
        leaving = self._leaving.get(shard)
        posted = list(self._copies.posted)
        places = [(one.shard, one.peer.address) for one in posted if one.name != leaving]
        avoided = {one.peer.address for one in posted if one.name == leaving}.union(but)

        def choose(processes: list[Process], cold: set[str], unfit: set[str]) -> str | None:
            return process_for_copy(processes, shard, places, self._host.worker_pool.addresses, cold, unfit | avoided)

        return await self._choose(choose)

    async def for_standby(self, standbys: Collection[str] = (), but: Collection[str] = ()) -> str | None:
        """Return where another standby can be made beside those, or ``None`` as for a copy."""
        host, seats = self._host, self._seats(self._host.lead.coordinator.state.shards)
        replicas = {address for group in seats.replicas for address in group.values()}

        def choose(processes: list[Process], cold: set[str], unfit: set[str]) -> str | None:
            return process_for_standby(
                processes,
                lead=host.peer.address,
                standbys=standbys,
                servers=seats.servers,
                replicas=replicas,
                busy=seats.busy,
                cold=cold,
                but=unfit.union(but),
            )

        return await self._choose(choose)

    async def _choose(self, choose: Any) -> str | None:
        try:
            processes, _ = await self._fleet.cluster()
        except (OSError, TimeoutError):
            return None  # without a scheduler nothing can be made
        unfit = set(self._host.unavailable.addresses)
        while True:
            cold = self._fleet.warmth.cold(one.address for one in processes)
            address: str | None = choose(processes, cold, unfit)
            if address is None or not await self._fleet.lack(address):
                return address
            unfit.add(address)

    # --- who is where ---

    def _seats(self, shards: Iterable[ShardState]) -> Seats:
        posted = list(self._copies.posted)
        at = {one.name: one.peer.address for one in posted}
        return Seats(
            lead=self._host.peer.address,
            standbys=self._host.standbys.following,
            servers=tuple(at.get(one.server, "") for one in shards),
            replicas=tuple({name: at[name] for name in one.in_sync if name in at} for one in shards),
            copies=tuple((one.shard, one.peer.address) for one in posted),
            busy=frozenset(self._host.worker_pool.addresses),
        )

    def _roles(self, seats: Seats) -> Roles:
        shards = zip(seats.servers, self._replica_places(seats), strict=True)
        return Roles(
            self._place(seats.lead),
            tuple(map(self._place, seats.standbys)),
            tuple(ShardPlaces(self._place(server) if server else STORE, in_sync) for server, in_sync in shards),
        )

    def _replica_places(self, seats: Seats) -> Iterable[tuple[Place, ...]]:
        if not self._host.program.cold:
            return [tuple(map(self._place, group.values())) for group in seats.replicas]
        return [(STORE,) * len(one.in_sync) for one in self._host.lead.coordinator.state.shards]

    def _place(self, address: str) -> Place:
        (one,) = seats_of([address], self._fleet.known.values())
        return Place(one.address, one.host, one.zone)

    # --- looking ---

    async def _look_for_ever(self) -> None:
        while True:
            if self._host.runs:
                await self._look()
            await asyncio.sleep(TIMEOUTS.seating_look_s)

    async def _look(self) -> None:
        lead, now = self._host.lead, asyncio.get_running_loop().time()
        shards = lead.coordinator.state.shards
        seats = self._seats(shards)
        self._say(seats)
        seen = seats, tuple(self._fleet.known), frozenset(self._host.unavailable.addresses)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
            self._tried.clear()
        if now >= self._seen_at + TIMEOUTS.settled_s:
            self._move(seats, shards)
            await self._warm_spares(seats)

    def _say(self, seats: Seats) -> None:
        found = survives(self._roles(seats))
        if self._said != (found.what, found.why):
            self._said = found.what, found.why
            self._host.note({"kind": "survives", "at": self._host.elapsed_s, "what": found.what, "why": found.why})

    def _move(self, seats: Seats, shards: Iterable[ShardState]) -> None:
        host, fleet = self._host, self._fleet
        protection = host.program.plan.protection
        if (
            protection is None
            or protection.cold
            or not host.standbys.following
            or host.lead.coordinator.takeover.awaited_shards
        ):
            return
        if any(one.promoting or one.joining or not one.in_sync for one in shards) or self._is_moving(seats):
            return  # one after the other, and only while all are protected
        able = fleet.known.keys() - fleet.warmth.cold(fleet.known) - host.unavailable.addresses - fleet.left_out.keys()
        for move in moves(list(fleet.known.values()), seats, able, protection.replicas):
            if (move.name, move.to) not in self._tried:
                self._begin_move(move)
                return

    def _is_moving(self, seats: Seats) -> bool:
        """Whether a replica is being made in the place of another that has not gone yet."""
        there = any(name in seats.replicas[shard] for shard, name in self._leaving.items())
        if there and asyncio.get_running_loop().time() < self._leaves_by:
            return True
        self._leaving.clear()
        return False

    def _begin_move(self, move: Move) -> None:
        if move.to:  # what only goes is told again until it has gone
            self._tried.add((move.name, move.to))
        if not move.name:
            self._host.standbys.lose_process(move.place, move.reason)
            return
        if move.to:
            shard = next(one.shard for one in self._copies.posted if one.name == move.name)
            self._leaving = {shard: move.name}
            self._leaves_by = asyncio.get_running_loop().time() + TIMEOUTS.move_s
        self._host.feed(CopyMisplaced(move.name, move.reason))

    async def _warm_spares(self, seats: Seats) -> None:
        """Let one process become warm that whatever is lost next may be made in."""
        fleet, host = self._fleet, self._host
        able = [
            one for one in fleet.known.values() if one.address not in host.unavailable.addresses | fleet.left_out.keys()
        ]
        unknown = fleet.warmth.cold(one.address for one in able) - self._asked
        if unknown:  # many are warm from their start
            self._asked = (self._asked | unknown) & set(fleet.known)
            await fleet.warmth.ask(unknown)
        taken = {seats.lead, *seats.standbys, *(address for _, address in seats.copies), *seats.busy}
        spare = next_spare(able, taken, fleet.warmth.cold(fleet.known))
        if spare is not None:
            await fleet.warmth.warm(spare)
