"""One standby as its coordinator sees it: made in another process, told everything, watched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from psplatform.core.supervision.standby import standby_name
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.actors.coordinator.standby_host import StandbySnapshot, snapshot_of
from psplatform.runtime.comms.background import Kept
from psplatform.runtime.comms.calls import Peer, PeerLost, call
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.watching import watch
from psplatform.runtime.pools.worker_pool import DaskWorkerPool
from psplatform.runtime.store.run_log import RunLog
from psplatform.runtime.timeouts import TIMEOUTS


class StandbyClientHost(Employer, Protocol):
    """What the standby's side may ask of the coordinator's process, beside what every employer of actors may.

    Attributes
    ----------
    actor
        The class of this process's actor, which is the standby's as well.
    """

    actor: type
    run_log: RunLog
    copies: DaskShardPool
    worker_pool: DaskWorkerPool

    @property
    def leading(self) -> CoordinatorNode:
        """The coordinator's node."""

    def announce(self) -> None:
        """Let programs that look for the run find its coordinator here."""


class StandbyClient:
    """Makes the standby of that `number`, and speaks to it.

    Parameters
    ----------
    place
        Returns the Dask worker at which a standby of that number is to be made, or "" where there is none.
    on_ended
        Called once, with the number and the reason, when the standby is lost or could not be made.

    Attributes
    ----------
    peer
        Where it is.
    address
        The Dask worker at which it is, or is being made; "" before that is known.
    was_told
        Whether it has been told what to begin with, so that it may take over.
    is_able
        Whether it can begin in its process, as far as is known.
    """

    def __init__(
        self,
        host: StandbyClientHost,
        fleet: Fleet,
        number: int,
        place: Callable[[int], Awaitable[str]],
        on_ended: Callable[[int, str], None],
    ) -> None:
        self._host = host
        self._fleet = fleet
        self._number = number
        self._name = standby_name(host.term, number)
        self._place = place
        self._on_ended = on_ended
        self._line: Line | None = None
        self._early: list[Any] | None = None
        self._watching: Kept | None = None
        self._background = host.new_background()
        self.peer: Peer | None = None
        self.address = ""
        self.was_told = False
        self.is_able = True

    @property
    def stands_by(self) -> bool:
        """Whether it follows."""
        return self._line is not None

    def begin(self) -> None:
        """Make it in the background."""
        self._background.do(self._make())

    async def _make(self) -> None:
        host = self._host
        self.address = await self._place(self._number)
        if not self.address:
            self._end("there is no process for it")
            return
        try:
            peer = await self._fleet.create(host.actor, self._name, self.address)
        except PeerLost as error:
            host.note({"kind": "note", "at": host.elapsed_s, "text": f"no standby could be made: {error}"})
            self._end(str(error))
            return
        self.peer, self._early, self.was_told = peer, [], True
        try:
            arguments = host.program, peer.key, host.peer, self._snapshot()
            await call(host.connect, peer, "stand_by", *arguments, deadline_s=TIMEOUTS.snapshot_s)
        except PeerLost as error:
            self._lose(str(error))
            return
        except Exception as error:  # noqa: BLE001  what cannot be sent, or cannot be read or done there
            self._background.tell_of(error)
            self.is_able = False
            self._end(f"{type(error).__name__}: {error}")
            return
        if self.peer is not None:  # else it was lost meanwhile
            self._follow(peer)

    def _snapshot(self) -> StandbySnapshot:
        host = self._host
        lead = host.leading.lead
        coordinator, handled = lead.enlist(self._number, host.elapsed_s)
        actors = {name: ("copy", shard, peer) for name, (shard, peer) in host.copies.directory().items()}
        actors |= {name: (part, -1, peer) for name, (part, peer) in host.worker_pool.directory().items()}
        return StandbySnapshot(
            number=self._number,
            lowest_number=lead.lowest_number,
            snapshot=snapshot_of(coordinator, host.run_log.view),
            handled=handled,
            elapsed_s=host.elapsed_s,
            timers=host.leading.timers.due,
            place=host.run_log.place,
            unwritten=tuple(host.run_log.unwritten),
            actors=actors,
            description=host.run_log.keeper.description if host.run_log.keeper is not None else {},
        )

    def _follow(self, peer: Peer) -> None:
        host = self._host
        self._line = Line(
            host.connect,
            peer,
            host.sender,
            host.new_background(),
            patience_s=host.program.server_lease_s,
            on_lost=self._lose,
            on_refused=host.on_refused,
            on_answer=host.feed,
        )
        self._watching = self._background.keep(partial(watch, host.connect, peer, self._lose))
        early, self._early = self._early or [], None
        for message in early:
            self._line.send(message)
        host.announce()

    def tell(self, message: Any, within_s: float = 0.0) -> None:
        """Send to it, as soon as it follows, within so many seconds."""
        if self._early is not None:
            self._early.append(message)
        elif self._line is not None:
            self._line.send(message, within_s)

    def _lose(self, reason: str) -> None:
        if self.peer is not None:
            self.suspect()
            self._end(reason)

    def _end(self, reason: str) -> None:
        self._on_ended(self._number, reason)

    def suspect(self) -> None:
        """Make no actor in its process before it is heard again."""
        if self.peer is not None:
            self._host.unavailable.lose(self._name, self.peer.address)

    def drop(self) -> None:
        """Let go of it."""
        peer, self.peer, self._early = self.peer, None, None
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._watching is not None:
            self._watching.end(but=asyncio.current_task())
            self._watching = None
        if peer is not None:
            self._fleet.release(peer)

    async def flush(self, limit_s: float) -> None:
        """Let it hear what it has not heard yet, within so many seconds."""
        if self._line is not None:
            await self._line.flush(limit_s)

    def close(self) -> None:
        """Say nothing more to it."""
        self._background.close()
        if self._line is not None:
            self._line.close()
