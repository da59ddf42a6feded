"""The state of a copy of a shard where time is virtual: computed by the run's arithmetic, as long as the world says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from psplatform.core.protocol.effects import Archive, Gather, Load, Publish, Send, Serve, Skip, Stage, Transmit
from psplatform.core.protocol.events import (
    Archived,
    ArchiveFailed,
    Captured,
    GatherDone,
    GatherFailed,
    Loaded,
    StageDone,
)
from psplatform.core.protocol.messages import Transfer
from psplatform.core.protocol.names import Role
from psplatform.core.shards.replica import ShardCopy
from psplatform.core.shards.server import Server
from psplatform.errors import InvariantViolation, StoreError
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine
from psplatform.memory.roles.gradients import Backpressure
from psplatform.nodes.ports import Work

_ROUNDING_S: Final = 1e-9


class VirtualShardState:
    """`psplatform.nodes.ports.ShardState` of one copy.

    Parameters
    ----------
    control
        Whose state it is.
    feed
        Takes what comes of the work.

    Attributes
    ----------
    shard
        Of which it is a copy.
    """

    def __init__(
        self,
        control: ShardCopy,
        engine: Engine,
        arithmetic: Arithmetic,
        backpressure: Backpressure,
        feed: Callable[[Any], None],
    ) -> None:
        self._control, self._name = control, control.name
        self.shard = control.shard
        self._engine, self._processes = engine, engine.processes
        self._arithmetic, self._world, self._backpressure = arithmetic, engine.world, backpressure
        self._feed = feed
        self._gathered_at = 0.0
        self._served_at: float | None = None
        self._there_at: dict[str, float] = {}
        self._held: set[str] = set()
        self._dismissed: dict[str, int] = {}
        self._dropped: set[str] = set()
        self._term = 0
        self._contents: dict[str, tuple[int, Any]] = {}
        arithmetic.open_copy(self._name, self.shard)

    def expect(self, transfer: Transfer, content: Any) -> None:
        """Keep what came with a transfer until it is loaded; one that was repeated may come after the next."""
        number, _ = self._contents.get(transfer.server, (0, None))
        if transfer.number >= number:
            self._contents[transfer.server] = transfer.number, content

    def publish(self, effect: Publish) -> None:
        """Make the staged state visible, and let who waits for room look again."""
        self._arithmetic.publish(self._name, effect.version)
        self._release(effect.position)
        self._backpressure.on_published(self.shard)

    def skip(self, effect: Skip) -> None:
        """Show what is visible under another version, and let who waits for room look again."""
        self._arithmetic.skip(self._name, effect.version)
        self._release(effect.position)
        self._backpressure.on_published(self.shard)

    def serve(self, effect: Serve) -> None:
        """Show what is visible; what was sent to the server before is on its way to this one from now on."""
        self._arithmetic.skip(self._name, effect.version)
        self._served_at = self._engine.agenda.now
        self._there_at.clear()

    def refer(self, effect: Transmit) -> None:
        """Send a transfer that names gradients."""
        self._later(0.0, self.capture(effect))

    def has_all(self, effect: Gather) -> bool:
        """Whether what was sent to the server before has come: what is exposed later is at hand at once."""
        self._heed(self._control.part.term)
        return self._waits_s(effect) <= _ROUNDING_S

    def when_there(self, effect: Gather, then: Callable[[], None]) -> None:
        """Wait for what was sent to the server before."""
        self._engine.later(self._name, self._waits_s(effect), then)

    def run(self, work: Sequence[Work], compute: Callable[[Sequence[Work]], list[Any]]) -> None:
        """Compute now, and say so when the time that gathering takes is over; load when that is over."""
        loads = [one for one in work if isinstance(one, Load)]
        if loads:
            # As long as a server takes to add a gradient up; until then the state is the one before.
            seconds = self._world.gather_s(self.shard, 1)
            self._engine.later(self._name, seconds, self._load_now, loads, compute)
        for event in compute([one for one in work if not isinstance(one, Load)]):
            waits = isinstance(event, GatherDone | GatherFailed | StageDone)
            self._later(self._gathered_at - self._engine.agenda.now if waits else 0.0, event)

    def gather(self, effect: Gather) -> GatherDone | GatherFailed:
        """Average gradients."""
        if not self.has_all(effect):
            raise InvariantViolation(
                f"{self._name} gathers position {effect.position}, though its gradients are on their way"
            )
        sources = len({one.source for one in effect.contributions})
        members = {one.member for one in effect.contributions}
        if not members.isdisjoint(self._dropped):
            raise InvariantViolation(
                f"{self._name} gathers position {effect.position} of {sorted(members)}, and was to drop some of it"
            )
        self._held |= members
        self._gathered_at = self._engine.agenda.now + self._world.gather_s(self.shard, sources)
        norms = self._arithmetic.gather(self._name, effect.contributions, norms=effect.norms, updates=effect.updates)
        if norms is not None:
            return GatherDone(effect.position, norms)
        if not effect.careful and self._control.part.epoch == 1 and self._is_entitled:
            # Its worker was let go on before this shard had read it; to one that was replaced, that may happen.
            raise InvariantViolation(f"a gradient of position {effect.position} is gone, though nothing was lost")
        return GatherFailed(effect.position)

    def stage(self, effect: Stage) -> StageDone:
        """Compute the next state."""
        return StageDone(effect.position, self._arithmetic.stage(self._name, effect.factor, effect.rate))

    def load(self, effect: Load) -> Loaded:
        """Make what a transfer carried the state."""
        number, content = self._contents.pop(effect.transfer.server)
        if number != effect.transfer.number:
            raise InvariantViolation(f"transfer {effect.transfer.number} is to be loaded, but it was not kept")
        return Loaded(effect.transfer.number, self._arithmetic.absorb(self._name, effect.transfer, content))

    def capture(self, effect: Transmit) -> Captured:
        """Capture what a transfer carries, and send it."""
        content, size_bytes = self._arithmetic.capture(self._name, effect.transfer)
        self._engine.network.send(Role.copy(self._name), Send(Role.copy(effect.replica), effect.transfer), content)
        return Captured(effect.replica, effect.transfer.number, size_bytes)

    def archive(self, effect: Archive) -> Archived | ArchiveFailed:
        """Put the newest state into the store."""
        try:
            return Archived(effect.number, effect.position, self._arithmetic.archive(self._name, effect))
        except StoreError as error:
            return ArchiveFailed(effect.number, str(error))

    def dismiss(self, member: str, position: int, term: int) -> None:
        """Drop what a member exposed once `position` is visible: no later commit of that coordinator refers to it."""
        self._heed(term)
        self._dismissed[member] = position

    @property
    def held(self) -> set[str]:
        """The members of whose gradients something is kept that is not to be dropped."""
        return self._held - self._dismissed.keys()

    def _heed(self, term: int) -> None:
        """Turn to the newest coordinator: for that one, a member may be there that another has dismissed."""
        if term > self._term:
            self._term = term
            self._dismissed.clear()
            self._dropped.clear()

    def _release(self, position: int) -> None:
        self._heed(self._control.part.term)
        for member in [name for name, last in self._dismissed.items() if last <= position]:
            del self._dismissed[member]
            self._held.discard(member)
            self._dropped.add(member)

    def _waits_s(self, effect: Gather) -> float:
        """Return how long gradients take until all are there."""
        if self._served_at is None:
            return 0.0
        senders = {one.member if one.bundle is None else one.bundle.aggregator for one in effect.contributions}
        for one in sorted(senders - self._there_at.keys()):
            self._there_at[one] = self._served_at + self._world.again_s(one, self.shard)
        return max((self._there_at[one] for one in senders), default=0.0) - self._engine.agenda.now

    @property
    def _is_entitled(self) -> bool:
        part = self._control.part
        return isinstance(part, Server) and self._processes.clock(self._name) <= part.entitled_until

    def _load_now(self, work: Sequence[Load], compute: Callable[[Sequence[Work]], list[Any]]) -> None:
        for event in compute(work):
            self._feed(event)

    def _later(self, delay_s: float, event: Any) -> None:
        self._engine.later(self._name, delay_s, self._feed, event)
