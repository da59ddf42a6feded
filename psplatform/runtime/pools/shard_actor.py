"""One copy of a shard, as the coordinator's process holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.protocol.place_messages import ActorAt
from psplatform.errors import PsplatformError
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.comms.background import Background, Kept
from psplatform.runtime.comms.calls import Peer, PeerLost, PeerSilent, call, wakes
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.watching import watch
from psplatform.runtime.timeouts import TIMEOUTS


class ShardActor:
    """One copy, and the way to it once it is spoken to.

    Attributes
    ----------
    peer
        Where it is, or is to be made.
    process
        What its process is called, once it is open.
    """

    def __init__(self, name: str, shard: int, peer: Peer) -> None:
        self.name = name
        self.shard = shard
        self.peer = peer
        self.process = ""
        self._line: Line | None = None
        self._watching: Kept | None = None
        self._heard_at = 0.0

    @property
    def where(self) -> ActorAt:
        """What tells another actor where it is."""
        return ActorAt(self.name, self.peer.address, self.peer.key, self.shard)

    @property
    def silence_s(self) -> float:
        """For how long it was not heard."""
        return asyncio.get_running_loop().time() - self._heard_at

    def hears(self) -> None:
        """Take a sign of life of it."""
        self._heard_at = asyncio.get_running_loop().time()

    def _hear(self, host: Employer, message: Any) -> None:
        """Take what it answers."""
        self.hears()
        host.feed(message)

    def begin(
        self, host: Employer, background: Background, on_lost: Callable[[str], None], process: ProcessId | None = None
    ) -> None:
        """Watch it, where it is known in its `process`, and speak to it from now on; `on_lost` hears of its loss."""
        self.hears()
        self._line = Line(
            host.connect,
            self.peer,
            host.sender,
            host.new_background(),
            patience_s=host.program.server_lease_s,
            on_lost=on_lost,
            on_refused=host.on_refused,
            on_answer=partial(self._hear, host),
            beat_s=host.program.server_lease_s / 4,
        )
        self._watching = background.keep(partial(watch, host.connect, self.peer, on_lost, process))

    def tell(self, message: Any) -> None:
        """Send to it, if it is spoken to."""
        if self._line is not None:
            self._line.send(message)

    async def forget(self, host: Employer, member: str, position: int) -> None:
        """Let it drop what a dismissed member exposed, once that is over there."""
        what = "forget", host.term, member, position
        try:
            await call(host.connect, self.peer, *what, deadline_s=TIMEOUTS.release_s)
        except PsplatformError:
            return  # a copy that is gone has forgotten everything

    async def retire(self, fleet: Fleet, host: Employer) -> None:
        """Let go of it, and let its process take a role again as soon as it answers anything."""
        has_opened = self._line is not None
        if self._watching is not None:
            self._watching.end()
        self.close()
        is_silent = False
        try:
            await call(host.connect, self.peer, "retire", deadline_s=1.0)
        except PeerSilent:  # it may be stopped: then its epoch fences it
            is_silent = True
        except PeerLost:
            pass
        else:
            if has_opened:  # where it could not, another could not either
                self._note_awake(host)
        fleet.release(self.peer)
        if is_silent and await wakes(host.connect, self.peer, "retire"):
            self._note_awake(host)

    def _note_awake(self, host: Employer) -> None:
        if host.unavailable.heard(self.name):
            host.on_processes_changed()

    def close(self) -> None:
        """Say nothing more to it."""
        if self._line is not None:
            self._line.close()
