"""One gradient worker or evaluator, as the coordinator's process holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.supervision.decisions import Part
from psplatform.errors import PsplatformError
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.comms.calls import Peer, PeerLost, wakes
from psplatform.runtime.comms.lines import Line
from psplatform.runtime.pools.fleet import Fleet
from psplatform.tasks.foreign import unforeseen


class WorkerActor:
    """One actor, and the way to it once there is one.

    Attributes
    ----------
    peer
        Where it is, once it was made.
    line
        The way to it, once it is spoken to.
    answered
        What it said when it was last answered with what is said only once, and that answer.
    """

    def __init__(self, part: Part, name: str, address: str, peer: Peer | None = None) -> None:
        self.part: Part = part
        self.name = name
        self.address = address
        self.peer = peer
        self.line: Line | None = None
        self.answered: tuple[bytes, bytes] = b"", b""
        self._let_go = False

    async def make(self, fleet: Fleet, host: Employer, actor: type, *arguments: Any) -> Peer:
        """Make it, of that class.

        Raises
        ------
        PeerLost
            If its process is gone or does not get round to it, or if it was let go of meanwhile.
        """
        peer = await fleet.create(actor, self.name, self.address, self.name, host.peer, *arguments)
        if self._let_go:
            fleet.release(peer)
            raise PeerLost(f"{self.name} was let go of while it was made", peer=self.address)
        self.peer = peer
        host.on_actor_made(self.part, self.name, peer)
        return peer

    def connect(self, host: Employer, peer: Peer, on_lost: Callable[[str], None]) -> Line:
        """Speak to it from now on; `on_lost` hears of it when it does not listen any more."""
        patience_s = host.program.worker_lease_s
        way = host.connect, peer, host.sender, host.new_background()
        self.line = Line(*way, patience_s=patience_s, on_lost=on_lost, on_refused=host.on_refused)
        return self.line

    async def retire(self, fleet: Fleet, host: Employer) -> None:
        """Let it hear what it was told last, and let go of it."""
        self._let_go = True
        if self.line is not None:
            await self.line.flush(1.0)
            self.line.close()
        if self.peer is not None:
            host.released(self.name)
            fleet.release(self.peer)

    async def await_waking(self, host: Employer) -> None:
        """Let the process of one that fell silent be used again as soon as it answers anything.

        A worker that has given up a coordinator that did not answer in time has ended, and says nothing any more.
        """
        woken = self.peer is not None and await wakes(host.connect, self.peer, "alive", 0.0)
        if woken and host.unavailable.heard(self.name):
            host.on_processes_changed()


def why_not_started(error: Exception, actor: WorkerActor) -> PsplatformError:
    """Return what ends a run in which an actor could not start because of `error`."""
    if isinstance(error, PsplatformError):
        return error
    return unforeseen(error, f"{actor.name} at {actor.address} could not start", actor.address)
