"""What a server sends its replicas: one step, its whole state, or only the names of the gradients of the next step.

Beside what the bound needs, that is the state of a checkpoint's cut, for one of them to write, and what the one lacks
that the server hands over to.  While a transfer is *captured*, nothing else is computed; nor is the next step begun
before a cut is captured, or once the server is to hand over.

Where replicas take gradients from the workers, one that stands right before a step applies the very same gradients as
its server did, in the same order.  One that has missed a step needs the state, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Archive, Effect, Send, Transmit
from psplatform.core.protocol.events import Archived, ArchiveFailed, Captured
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.shards.applying import Applying, Newest, Step
from psplatform.core.shards.links import Link, Links

_FOLLOWABLE: Final = 8
"""Steps that a replica may be behind and still take one by one; of older ones workers have written over gradients."""


@dataclass
class Sending:
    """The transfers of one server.

    Parameters
    ----------
    links
        Its replicas.
    applying
        What it has staged and shown.
    archives_itself
        Whether it writes its part of checkpoints although it has replicas.
    from_workers
        Whether replicas take gradients from the workers.

    Attributes
    ----------
    capturing
        Number of the transfer of which the content is being captured, or 0.
    cut
        Number of the checkpoint that the newest state is a part of, until that is captured; else 0.
    yielding
        Whether the server hands over as soon as a replica in sync lacks nothing.
    successor
        The replica that it has handed over to.
    replicated_bytes
        What replicas were sent so far, by this server or for it by the workers.
    """

    server: str
    shard: int
    epoch: int
    links: Links
    applying: Applying
    archives_itself: bool = False
    from_workers: bool = False
    capturing: int = 0
    cut: int = 0
    yielding: bool = False
    successor: str = ""
    replicated_bytes: int = 0
    _steps: dict[int, Step] = field(default_factory=dict)
    _count: int = 0

    def add(self, commit: msg.Commit, step: float) -> None:
        """Take the commit that was staged last, by a step of the Euclidean norm `step`, into account."""
        self.cut = self.cut or commit.cut
        self.links.add(commit.position, step, commit.updates)
        if self.from_workers:
            newest = commit.position
            kept = {at: one for at, one in self._steps.items() if at > newest - _FOLLOWABLE}
            self._steps = kept | {newest: self.applying.step_of(commit)}

    def name_gradients(self) -> list[Effect]:
        """Let every replica take the gradients of its next step from the workers, where it can; each step once."""
        found: list[Effect] = []
        if not self.from_workers or self.cut or self.yielding:
            return found
        for link in self.links.idle():
            step = self._steps.get(link.position + 1)
            # Who is too far behind is brought level at once: the server waits for it.
            level_by_it = link.position + 1 == self.applying.newest
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

    def transmit(self, version: int) -> list[Effect]:
        """Begin the transfer that is needed now, if there is one, while `version` is shown."""
        if self.cut:
            # One that joins is served all the same: it may be what makes the cut possible.
            return self._transmit_cut(version) or self._transmit_newest(version)
        if self.yielding:
            return self._yield_on(version)
        return self._transmit_newest(version)

    def _transmit_newest(self, version: int) -> list[Effect]:
        # What is sent before the bound is reached arrives when the next steps are staged, behind gradients that no
        # replica can follow; at the bound the server waits, and those of the next step can be followed again.
        link = self.links.wanting(self.applying.newest, early=not self.from_workers)
        return self._to(link, self.applying.newest_state(version)) if link is not None else []

    def _transmit_cut(self, version: int) -> list[Effect]:
        # Nothing is staged before the state of the cut has been captured.
        alone = self.archives_itself or not self.links.in_sync
        link = None if alone else self.links.archiving()
        if link is None and not alone:
            return []
        number, self.cut = self.cut, 0
        newest = self.applying.newest_state(version)
        if link is None:
            return [Archive(number, newest.position, newest.version, newest.applied)]
        return self._to(link, newest, number)

    def hand_over(self) -> None:
        """Hand over from now on; the one told before may be gone."""
        self.yielding, self.successor = True, ""

    def _yield_on(self, version: int) -> list[Effect]:
        level = self.links.level_with(self.applying.newest)
        if level is None:
            link = self.links.archiving()
            # With none in sync, one that joins is what it may hand over to.
            return self._to(link, self.applying.newest_state(version)) if link else self._transmit_newest(version)
        if self.applying.in_hand is not None or self.successor:
            return []
        self.successor = level.replica
        return [Send(COORDINATOR, msg.HandedOver(self.shard, self.epoch, level.replica))]

    def exclude(self, replica: str) -> None:
        """Wait for a replica no longer, nor hand over to it."""
        self.links.exclude(replica)
        self.successor = "" if replica == self.successor else self.successor

    def _to(self, link: Link, newest: Newest, cut: int = 0) -> list[Effect]:
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
            past=self.applying.shown.past_after(link.position) + (() if staged is None else (staged.past,)),
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

    def in_sync(self, link: Link) -> Send:
        """Return what the coordinator is told of a replica that is in sync."""
        return Send(COORDINATOR, msg.InSync(self.shard, self.epoch, link.replica, link.position))


def written(shard: int, event: Archived) -> list[Effect]:
    """Return what the coordinator is told of a checkpoint's part that was written."""
    return [Send(COORDINATOR, msg.Written(shard, event.number, event.position, event.part))]


def not_written(shard: int, event: ArchiveFailed) -> list[Effect]:
    """Return what the coordinator is told of a checkpoint's part that could not be written."""
    return [Send(COORDINATOR, msg.NotWritten(shard, event.number, event.text))]
