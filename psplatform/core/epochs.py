"""Dealing the batches of an epoch, so that each sample is applied exactly once in it.

Under epoch sampling the coordinator deals tickets, one batch each, with the release of a worker.  A ticket whose
gradient was applied is settled; one whose gradient was dropped, aborted or lost with its worker goes back and is dealt
again before any new one.  So within an epoch every sample enters exactly one applied gradient, whatever fails.  One
whose gradient was not finite is dealt again only after the next commit, because the same model would make the same of
it, and is given up once that has happened so often as `Plan.tries` says: its samples are missing from that epoch.  The
next epoch's tickets are dealt as soon as the deck is empty, while the last ones of this epoch are still out: no worker
waits at the end of an epoch, and a ticket that comes back late keeps its epoch.  A run that ends drops what is out: a
batch that a straggler held then is missing from its epoch, and the log says so.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.messages import Ticket

MOST_TRIES: Final = 3
"""Gradients of one batch that may fail to be finite before it is given up: what one version of the model makes nothing
finite of, a later one may; of a sample that is itself not finite, none ever will."""


@dataclass
class Deck:
    """The tickets of the current and the following epochs.

    Parameters
    ----------
    batches
        Tickets per epoch, at least 1.
    """

    batches: int
    _epoch: int = 0
    _number: int = 0
    _returned: list[tuple[int, int]] = field(default_factory=list)
    _out: dict[tuple[int, int], Ticket] = field(default_factory=dict)
    _dealt: set[tuple[int, int]] = field(default_factory=set)
    _aside: list[tuple[int, int]] = field(default_factory=list)
    _refusals: dict[tuple[int, int], int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Return where dealing stands, as plain values; what is out comes back: nobody is left to compute it."""
        returned = sorted([*self._returned, *self._aside, *((one.epoch, one.number) for one in self._out.values())])
        dealing = {"epoch": self._epoch, "number": self._number, "returned": returned, "batches": self.batches}
        return {**dealing, "refusals": [[*ticket, count] for ticket, count in sorted(self._refusals.items())]}

    def restore(self, plain: dict[str, Any]) -> None:
        """Deal on from what `to_plain` returned; with other batches in an epoch, from the beginning of that epoch."""
        self._epoch = plain["epoch"]
        if plain["batches"] == self.batches:
            self._number = plain["number"]
            self._returned = [(epoch, number) for epoch, number in plain["returned"]]
            self._refusals = {(epoch, number): count for epoch, number, count in plain.get("refusals", ())}

    @property
    def out(self) -> set[tuple[int, int]]:
        """The gradients that have a ticket which is neither settled nor back."""
        return set(self._out)

    def deal(self, slot: int, sequence: int) -> Ticket:
        """Deal a ticket for gradient (`slot`, `sequence`): the earliest that came back, else a new one."""
        ticket = self._next()
        while (ticket.epoch, ticket.number) in self._dealt:
            self._dealt.discard((ticket.epoch, ticket.number))
            ticket = self._next()
        self._out[slot, sequence] = ticket
        return ticket

    def _next(self) -> Ticket:
        if self._returned:
            return Ticket(*heapq.heappop(self._returned))
        ticket = Ticket(self._epoch, self._number)
        self._number += 1
        if self._number == self.batches:
            self._epoch, self._number = self._epoch + 1, 0
        return ticket

    def ticket(self, slot: int, sequence: int) -> Ticket | None:
        """Return the ticket that gradient (`slot`, `sequence`) has."""
        return self._out.get((slot, sequence))

    def adopt(self, slot: int, sequence: int, ticket: Ticket, *, busy: bool) -> None:
        """Note that a gradient, which a worker is `busy` with or not, has `ticket`, dealt by a deck that is gone."""
        before = self._out.get((slot, sequence))
        if before == ticket:
            return
        self.take_back(slot, sequence)
        self._dealt.add((ticket.epoch, ticket.number))
        if busy:
            self._out[slot, sequence] = ticket

    def settle(self, slot: int, sequence: int) -> None:
        """Note that the gradient is applied, and its ticket with it."""
        ticket = self._out.pop((slot, sequence), None)
        if ticket is not None and self._refusals:
            self._refusals.pop((ticket.epoch, ticket.number), None)

    def refuse(self, slot: int, sequence: int, most: int) -> tuple[Ticket, int] | None:
        """Note that the gradient was not finite; return its ticket and how often that has happened to this.

        After `most` times the ticket is given up, before it is set aside until `retry`.  A gradient without a ticket
        has ``None``.
        """
        ticket = self._out.pop((slot, sequence), None)
        if ticket is None:
            return None
        place = ticket.epoch, ticket.number
        count = self._refusals.pop(place, 0) + 1
        if count < most:
            self._refusals[place] = count
            self._aside.append(place)
        return ticket, count

    def retry(self) -> None:
        """Deal what was set aside again: the model has changed."""
        aside, self._aside = self._aside, []
        for place in aside:
            heapq.heappush(self._returned, place)

    def take_back(self, slot: int, sequence: int) -> None:
        """Note that the gradient will not be applied; its ticket is dealt again."""
        ticket = self._out.pop((slot, sequence), None)
        if ticket is not None:
            heapq.heappush(self._returned, (ticket.epoch, ticket.number))
