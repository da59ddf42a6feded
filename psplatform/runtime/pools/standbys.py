"""The standbys as their coordinator sees them: as many as it wants, all told the same."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from psplatform.core.protocol.events import StandbyLost
from psplatform.core.protocol.place_messages import LogWritten
from psplatform.runtime.comms.calls import Peer, PeerLost, call
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.standby_client import StandbyClient, StandbyClientHost
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.telemetry.log.segments import Position


class Standbys:
    """Makes the standbys of one coordinator, and speaks to them."""

    def __init__(self, host: StandbyClientHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        self._deputies: dict[int, StandbyClient] = {}
        self._wanted: set[int] = set()
        self._failed: set[str] = set()
        self._placing = asyncio.Lock()

    @property
    def peers(self) -> list[Peer]:
        """Where the standbys are, those that are being made included."""
        return [one.peer for one in self._deputies.values() if one.peer is not None]

    @property
    def following(self) -> tuple[str, ...]:
        """Where the standbys are that follow."""
        return tuple(one.address for one in self._deputies.values() if one.stands_by)

    def roles(self) -> dict[str, str]:
        """Return where the standbys are, by role: ``standby``, and ``standby-N`` for each further one."""
        found = [peer.address for peer in self.peers]
        return {"standby" if not place else f"standby-{place + 1}": address for place, address in enumerate(found)}

    def appoint(self, number: int) -> None:
        """Make a standby of that number in the background."""
        self._host.run_log.on_mark = self._on_mark
        made = StandbyClient(self._host, self._fleet, number, self._place, self._on_ended)
        self._deputies[number] = made
        made.begin()

    def _beside(self, number: int) -> set[str]:
        """Return where the standbys of other numbers are, or are being made."""
        return {one.address for other, one in self._deputies.items() if other != number} - {""}

    async def _place(self, number: int) -> str:
        """Offer the number of a standby, and return where that can be made, or "" where nowhere.

        Not where one could not be made just now.
        """
        async with self._placing:  # in the order of their numbers: who claims a number claims those below it
            if self._beside(number):  # else this loss may have been the last but one that is survived
                await asyncio.sleep(TIMEOUTS.replace_after_s)
            await self._fleet.offer(self._host.term, number)
            return await self._host.copies.seating.for_standby(self._beside(number), self._failed) or ""

    def _on_ended(self, number: int, reason: str) -> None:
        """Forget a standby that is lost, or that could not be made."""
        ended = self._deputies.pop(number, None)
        if ended is None:
            return
        ended.drop()
        if not ended.is_able:
            self._failed.add(ended.address)
        if ended.was_told:
            # Programs hear of it when the number is claimed: until then the standby may lead.
            self._host.feed(StandbyLost(number, reason))
        elif ended.address:
            self._failed.add(ended.address)
            self._host.leading.lead.without_standby(number)  # another process may be able to make one
        else:
            self._wanted.add(number)

    def tell(self, message: Any, within_s: float = 0.0) -> None:
        """Send to the standbys, if there are any, within so many seconds."""
        for one in self._deputies.values():
            one.tell(message, within_s)

    def _on_mark(self, position: Position, records: int) -> None:
        self.tell(LogWritten(position.term, position.number, records), TIMEOUTS.together_s)

    def suspect(self, number: int) -> None:
        """Make no actor in the process of a standby whose number is claimed, before it is heard again."""
        if number in self._deputies:
            self._deputies[number].suspect()

    def lose_process(self, address: str, reason: str) -> None:
        """Report the standbys of a process that is lost."""
        for number in [number for number, one in self._deputies.items() if one.peer and one.address == address]:
            self._deputies[number].suspect()
            self._on_ended(number, reason)

    def on_processes_changed(self) -> None:
        """Try again to make the standbys that could not be made."""
        self._failed.clear()
        wanted, self._wanted = self._wanted, set()
        for number in wanted:
            self._host.leading.lead.without_standby(number)

    async def hand_over(self) -> None:
        """Let the first standby take over now: this process is about to end."""
        following = [one for one in self._deputies.values() if one.stands_by]
        await asyncio.gather(*(one.flush(TIMEOUTS.hand_over_s) for one in following))
        peer = following[0].peer if following else None
        if peer is not None:
            with contextlib.suppress(PeerLost):
                await call(self._host.connect, peer, "relieve", deadline_s=TIMEOUTS.hand_over_s)

    def close(self) -> None:
        """Say nothing more to them."""
        for one in self._deputies.values():
            one.close()

    async def dismiss(self) -> None:
        """Let the standbys go: everything is written, and nothing is left to take over."""
        self.close()
        for peer in self.peers:
            await self._fleet.close(peer)
