"""A copy of a shard in an in-memory run: executes what the control half asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.effects import Archive, Gather, Load, Publish, Role, Send, Serve, Skip, Stage, Transmit
from psplatform.core.events import Archived, ArchiveFailed, Captured, GatherDone, GatherFailed, Loaded, StageDone
from psplatform.core.messages import Transfer
from psplatform.core.server import Server
from psplatform.core.shard_copy import ShardCopy
from psplatform.errors import InvariantViolation, StoreError
from psplatform.memory.agenda import Agenda
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.processes import Processes
from psplatform.memory.room import Room
from psplatform.memory.world import World

SendOn = Callable[[Role, Send, Any], None]
"""Takes the sender, what it sends, and what travels beside it."""


class CopyProcess:
    """Hosts one copy.

    Parameters
    ----------
    control
        Decides.
    send
        Takes what it sends.
    """

    def __init__(
        self,
        control: ShardCopy,
        agenda: Agenda,
        processes: Processes,
        arithmetic: Arithmetic,
        world: World,
        room: Room,
        send: SendOn,
    ) -> None:
        self.control = control
        self.role = Role.copy(control.name)
        self._agenda = agenda
        self._processes = processes
        self._arithmetic = arithmetic
        self._world = world
        self._room = room
        self._send = send
        self._gathered_at = 0.0
        self._contents: dict[str, Any] = {}
        arithmetic.open_copy(control.name, control.shard)

    @property
    def server(self) -> Server | None:
        """The server it is, or ``None`` while it is a replica."""
        return self.control.part if isinstance(self.control.part, Server) else None

    def receive(self, message: Any, content: Any) -> None:
        """Take a message, with the arrays of a transfer."""
        if isinstance(message, Transfer):
            self._contents[message.server] = content
        self.feed(message)

    def feed(self, event: Any) -> None:
        """Hand an event to the control half, and execute what it answers."""
        effects = self.control.handle(event, self._processes.clock(self.control.name))
        if self._processes.on_handled is not None:
            self._processes.on_handled(self.control.name, event, effects)
        for effect in effects:
            _EXECUTORS[type(effect)](self, effect)

    def _later(self, delay_s: float, event: Any) -> None:
        self._agenda.enter(delay_s, self._processes.do, self.control.name, self.feed, event)

    def _send_on(self, effect: Send) -> None:
        self._send(self.role, effect, None)

    def _gather(self, effect: Gather) -> None:
        norms = self._arithmetic.gather(self.control.name, effect.contributions, norms=effect.norms)
        if norms is None and not effect.careful and self.control.part.epoch == 1 and self._is_entitled:
            # Its worker was let go on before this shard had read it; to one that was replaced, that may happen.
            raise InvariantViolation(f"a gradient of position {effect.position} is gone, though nothing was lost")
        seconds = self._world.gather_s(self.control.shard, len(effect.contributions))
        self._gathered_at = self._agenda.now + seconds
        self._later(seconds, GatherFailed(effect.position) if norms is None else GatherDone(effect.position, norms))
        self._failed = norms is None

    @property
    def _is_entitled(self) -> bool:
        return self.server is not None and self._processes.clock(self.control.name) <= self.server.entitled_until

    def _stage(self, effect: Stage) -> None:
        # Asked for together with the gathering where nothing is clipped, and done after it all the same.
        if not self._failed:
            step = self._arithmetic.stage(self.control.name, effect.factor, effect.rate)
            self._later(self._gathered_at - self._agenda.now, StageDone(effect.position, step))

    def _publish(self, effect: Publish) -> None:
        self._arithmetic.publish(self.control.name, effect.version)
        self._room.on_published(self.control.shard)

    def _skip(self, effect: Skip) -> None:
        self._arithmetic.skip(self.control.name, effect.version)
        self._room.on_published(self.control.shard)

    def _transmit(self, effect: Transmit) -> None:
        content, size_bytes = self._arithmetic.capture(self.control.name, effect.transfer)
        self._send(self.role, Send(Role.copy(effect.replica), effect.transfer), content)
        self._later(0.0, Captured(effect.replica, effect.transfer.number, size_bytes))

    def _load(self, effect: Load) -> None:
        # As long as a server takes to add a gradient up; until then the state is the one before.
        seconds, content = self._world.gather_s(self.control.shard, 1), self._contents.pop(effect.transfer.server)
        self._agenda.enter(seconds, self._processes.do, self.control.name, self._end_loading, effect.transfer, content)

    def _end_loading(self, transfer: Transfer, content: Any) -> None:
        self.feed(Loaded(transfer.number, self._arithmetic.absorb(self.control.name, transfer, content)))

    def _archive(self, effect: Archive) -> None:
        try:
            part = self._arithmetic.archive(self.control.name, effect)
        except StoreError as error:
            self._later(0.0, ArchiveFailed(effect.number, str(error)))
        else:
            self._later(0.0, Archived(effect.number, effect.position, part))

    def _serve(self, effect: Serve) -> None:
        self._arithmetic.skip(self.control.name, effect.version)


_EXECUTORS: dict[type, Callable[[CopyProcess, Any], None]] = {
    Send: CopyProcess._send_on,
    Gather: CopyProcess._gather,
    Stage: CopyProcess._stage,
    Publish: CopyProcess._publish,
    Skip: CopyProcess._skip,
    Transmit: CopyProcess._transmit,
    Load: CopyProcess._load,
    Archive: CopyProcess._archive,
    Serve: CopyProcess._serve,
}
