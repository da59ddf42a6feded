"""What a server sends its replicas: one step, its whole state, or only the names of the gradients of the next step.

Where replicas take gradients from the workers, one that stands right before a step applies the very same gradients as
its server did, in the same order.  One that has missed a step needs the state, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Transmit
from psplatform.core.protocol.events import Captured
from psplatform.core.shards.links import Link, Links
from psplatform.core.shards.shown import Shown

_FOLLOWABLE: Final = 8
"""Steps that a replica may be behind and still take one by one; of older ones workers have written over gradients."""


@dataclass(frozen=True, slots=True)
class Step:
    """A commit as the server staged it.

    Attributes
    ----------
    contributions, factor, squared_norms
        What the server itself applied, by what it clipped that, and what it reported of it.
    """

    commit: msg.Commit
    contributions: tuple[msg.Contribution, ...]
    factor: float = 1.0
    squared_norms: tuple[float, ...] = ()

    @property
    def past(self) -> msg.Past:
        """The commit as a transfer tells of it."""
        return msg.Past(self.commit, self.squared_norms)


@dataclass(frozen=True, slots=True)
class Newest:
    """A server's newest state as a transfer names it.

    Attributes
    ----------
    applied
        The dedupe table.
    staged
        The step that made it, unless that is visible already.
    """

    position: int
    version: int
    applied: tuple[tuple[int, int], ...]
    staged: Step | None = None


@dataclass
class Sending:
    """The transfers of one server.

    Parameters
    ----------
    links
        Its replicas.
    shown
        What it has shown, which is told along.
    from_workers
        Whether replicas take gradients from the workers.

    Attributes
    ----------
    capturing
        Number of the transfer of which the content is being captured, or 0.
    replicated_bytes
        What replicas were sent so far, by this server or for it by the workers.
    """

    server: str
    shard: int
    epoch: int
    links: Links
    shown: Shown
    from_workers: bool = False
    capturing: int = 0
    replicated_bytes: int = 0
    _steps: dict[int, Step] = field(default_factory=dict)
    _count: int = 0

    def note(self, step: Step) -> None:
        """Remember what was staged last."""
        if self.from_workers:
            newest = step.commit.position
            self._steps = {at: one for at, one in self._steps.items() if at > newest - _FOLLOWABLE} | {newest: step}

    def name_gradients(self, newest: int) -> list[Effect]:
        """Let every replica take the gradients of its next step from the workers, where it can; each step once."""
        found: list[Effect] = []
        for link in self.links.idle() if self.from_workers else ():
            step = self._steps.get(link.position + 1)
            # Who is too far behind is brought level at once: the server waits for it.
            level_by_it = link.position + 1 == newest
            if step is not None and link.followed <= link.position and (level_by_it or link.account.within):
                link.followed = link.position + 1
                found.append(self._names(link, step))
        return found

    def _names(self, link: Link, step: Step) -> Transmit:
        self._depart(link)
        commit, applied = step.commit, sorted((one.slot, one.sequence) for one in step.contributions)
        transfer = msg.Transfer(
            *(self.server, self.shard, self.epoch, link.flying, msg.GRADIENTS),
            *(commit.position, commit.version, commit.rate, tuple(applied)),
            past=(step.past,),
            contributions=step.contributions,
            factor=step.factor,
            updates=commit.updates,
        )
        return Transmit(link.replica, transfer)

    def wanting(self, position: int) -> Link | None:
        """Return the link to a replica that should get the newest state, which is at `position`, now."""
        # What is sent before the bound is reached arrives when the next steps are staged, behind gradients that no
        # replica can follow; at the bound the server waits, and those of the next step can be followed again.
        return self.links.wanting(position, early=not self.from_workers)

    def to(self, link: Link, newest: Newest, cut: int = 0) -> list[Effect]:
        """Send the newest state to a replica, as a part of checkpoint `cut` if that is not 0."""
        self._depart(link)
        self.capturing = link.flying
        staged = newest.staged
        # The gathered mean is there until it is published; who lacks no more than that can apply it.
        replayed = staged if staged is not None and link.position == newest.position - 1 else None
        transfer = msg.Transfer(
            server=self.server,
            shard=self.shard,
            epoch=self.epoch,
            number=link.flying,
            kind=msg.STATE if replayed is None else msg.UPDATE,
            position=newest.position,
            version=newest.version,
            rate=1.0 if replayed is None else replayed.commit.rate,
            applied=newest.applied,
            cut=cut,
            updates=1 if replayed is None else replayed.commit.updates,
            past=self.shown.past_after(link.position) + (() if staged is None else (staged.past,)),
        )
        return [Transmit(link.replica, transfer)]

    def _depart(self, link: Link) -> None:
        self._count += 1
        link.flying, link.size_bytes = self._count, 0

    def captured(self, event: Captured) -> None:
        """Count a transfer as captured; what workers send counts when it has arrived."""
        link = self.links.get(event.replica)
        if event.number == self.capturing:
            self.capturing = 0
            self.replicated_bytes += event.size_bytes
        elif link is not None and link.flying == event.number:
            link.size_bytes = event.size_bytes

    def replicated(self, message: msg.Replicated) -> Link | None:
        """Learn where a replica stands; return its link if that has brought it in sync."""
        link = self.links.get(message.replica)
        if link is not None and link.flying == message.number and message.position >= 0:
            self.replicated_bytes += link.size_bytes
        return self.links.arrived(message.replica, message.number, message.position)
