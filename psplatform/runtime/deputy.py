"""The standby as its coordinator sees it: appointed in another process, told everything, watched."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, Final, Protocol

from psplatform.core.events import StandbyLost
from psplatform.core.lead import Lead
from psplatform.errors import PsplatformError
from psplatform.runtime.background import Background, Kept
from psplatform.runtime.calls import Peer, PeerLost, call
from psplatform.runtime.coordinator_process import Employer
from psplatform.runtime.copy_staff import CopyStaff
from psplatform.runtime.fleet import REPLACE_AFTER_S, Fleet
from psplatform.runtime.journal import Journal
from psplatform.runtime.lines import Line
from psplatform.runtime.staff import Staff
from psplatform.runtime.standing_by import Posting, snapshot_of
from psplatform.runtime.watching import watch
from psplatform.telemetry.segments import Position

_POSTING_S: Final = 60.0

_HAND_OVER_S: Final = 1.0
"""For the standby to hear the rest, and as much for it to be asked to take over: it must be in charge before servers of
the same process can be handed over, and Dask gives all of that four seconds."""

TOGETHER_S: Final = 0.25
"""Events that nothing waits for are told together, with a beat: the standby may lag, and calls take time from server
and workers."""

DECIDED_S: Final = 0.02
"""What led to a commit is told sooner: whoever takes over without having heard of it lets workers compute again."""


class TimersBeside(Protocol):
    """What a new standby is told of the coordinator's timers."""

    @property
    def timers(self) -> dict[str, float]:
        """When each timer is due, by tag, in the run's time."""


class DeputyHost(Employer, Protocol):
    """What the standby's side may ask of the coordinator's process, beside what every employer of actors may.

    The standby is an actor of the same class as this process.
    """

    journal: Journal
    copies: CopyStaff
    staff: Staff

    @property
    def lead(self) -> Lead:
        """The coordinator."""

    @property
    def executor(self) -> TimersBeside:
        """Keeps the timers."""

    def announce(self) -> None:
        """Let programs that look for the run find its coordinator here."""


class Deputy:
    """Makes the standby of one coordinator, and speaks to it."""

    def __init__(self, host: DeputyHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        self._number = 0
        self._peer: Peer | None = None
        self._line: Line | None = None
        self._early: list[Any] | None = None
        self._watching: Kept | None = None
        self._background = Background(host.on_mishap)
        self.wanted = False

    @property
    def peer(self) -> Peer | None:
        """Where the standby is, if there is one or one is being made."""
        return self._peer

    @property
    def stands_by(self) -> bool:
        """Whether there is a standby that follows."""
        return self._line is not None

    def roles(self) -> dict[str, str]:
        """Return where the standby is, if there is one."""
        return {"standby": self._peer.address} if self._peer is not None else {}

    def appoint(self, number: int) -> None:
        """Make a standby of that number in the background."""
        self._do(self._appoint(number))

    async def _appoint(self, number: int) -> None:
        if number > self._host.program.term + 1:  # not the run's first
            await asyncio.sleep(REPLACE_AFTER_S)
        address = await self._host.copies.seating.for_standby()
        if address is None:
            self.wanted = True
            return
        host = self._host
        try:
            peer = await self._fleet.create(type(host), f"standby-{number}", address)
        except PeerLost as error:
            host.note({"kind": "note", "at": host.elapsed_s, "text": f"no standby could be made: {error}"})
            self.wanted = True
            return
        self._drop()
        self._number, self._peer, self._early = number, peer, []
        posting = self._posting(number)
        try:
            arguments = host.program, peer.key, host.peer, posting
            await call(host.connect, peer, "stand_by", *arguments, deadline_s=_POSTING_S)
        except PsplatformError as error:
            self._lose(number, str(error))
            return
        if number == self._number:
            self._begin(number, peer)
        else:  # it took so long that another was made instead
            self._fleet.release(peer)

    def _posting(self, number: int) -> Posting:
        host = self._host
        coordinator, handled = host.lead.enlist(number, host.elapsed_s)
        hired = {name: ("copy", shard, peer) for name, (shard, peer) in host.copies.directory().items()}
        hired |= {name: (part, -1, peer) for name, (part, peer) in host.staff.directory().items()}
        host.journal.on_mark = self._on_mark
        return Posting(
            number=number,
            snapshot=snapshot_of(coordinator, host.journal.view),
            handled=handled,
            elapsed_s=host.elapsed_s,
            timers=host.executor.timers,
            place=host.journal.place,
            unwritten=tuple(host.journal.unwritten),
            hired=hired,
        )

    def _begin(self, number: int, peer: Peer) -> None:
        host = self._host
        self._line = Line(
            host.connect,
            peer,
            host.sender,
            patience_s=host.program.server_lease_s,
            on_lost=lambda reason: self._lose(number, reason),
            on_refused=host.on_refused,
            on_answer=host.feed,
        )
        self._watching = self._background.keep(partial(watch, host.connect, peer, partial(self._lose, number)))
        early, self._early = self._early or [], None
        for message in early:
            self._line.send(message)
        host.announce()

    def tell(self, message: Any, within_s: float = 0.0) -> None:
        """Send to the standby, if there is one, within so many seconds."""
        if self._early is not None:
            self._early.append(message)
        elif self._line is not None:
            self._line.send(message, within_s)

    def _on_mark(self, position: Position, records: int) -> None:
        self.tell({"mark": (position.term, position.number), "records": records}, TOGETHER_S)

    def _lose(self, number: int, reason: str) -> None:
        if number != self._number:
            return
        if self._peer is not None:
            self._host.absent.lose(f"standby-{number}", self._peer.address)
        self._drop()
        self._host.announce()
        self._host.feed(StandbyLost(number, reason))

    def suspect(self) -> None:
        """Hire nobody in the process of a standby whose number is claimed, before it is heard again."""
        if self._peer is not None:
            self._host.absent.lose(f"standby-{self._number}", self._peer.address)

    def _drop(self) -> None:
        peer, self._peer, self._early = self._peer, None, None
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._watching is not None:
            self._watching.end(but=asyncio.current_task())
            self._watching = None
        if peer is not None:
            self._fleet.release(peer)

    def lose_process(self, address: str, reason: str) -> None:
        """Report the standby of a process that is lost."""
        if self._peer is not None and self._peer.address == address:
            self._lose(self._number, reason)

    def on_processes_changed(self) -> None:
        """Try again to make a standby, if none could be."""
        if self.wanted:
            self.wanted = False
            self._host.lead.without_standby()

    async def hand_over(self) -> None:
        """Let the standby take over now: this process is about to end."""
        peer, line = self._peer, self._line
        if peer is None or line is None:
            return
        await line.flush(_HAND_OVER_S)
        with contextlib.suppress(PeerLost):
            await call(self._host.connect, peer, "relieve", deadline_s=_HAND_OVER_S)

    def close(self) -> None:
        """Say nothing more to it."""
        self._background.close()
        if self._line is not None:
            self._line.close()

    async def dismiss(self) -> None:
        """Let the standby go: everything is written, and nothing is left to take over."""
        self.close()
        if self._peer is not None:
            await self._fleet.close(self._peer)

    def _do(self, work: Any) -> None:
        self._background.do(work)
