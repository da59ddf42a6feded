"""Dealing the batches of an epoch, so that each sample is applied exactly once in it.

Under epoch sampling the coordinator deals tickets, one batch each, with the release of a worker.  A ticket whose
gradient was applied is settled; one whose gradient was dropped, aborted or lost with its worker goes back and is dealt
again before any new one.  So within an epoch every sample enters exactly one applied gradient, whatever fails.  One
whose gradient was not finite is dealt again only after the next commit, because the same model would make the same of
it, and is given up once that has happened so often as `Plan.tries` says: its samples are missing from that epoch.  The
next epoch's tickets are dealt as soon as the deck is empty, while the last ones of this epoch are still out: no worker
waits at the end of an epoch, and a ticket that comes back late keeps its epoch.  A run that ends drops what is out: a
batch that a straggler held then is missing from its epoch, and the log says so.

A coordinator that takes over has a deck that may not know what the lost one dealt last.  Therefore a gradient names its
ticket wherever it is spoken of: the first to be heard of has it, one that was applied has it whatever was heard, and
whoever else computed on it computed in vain.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol.messages import Ticket

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
    _ahead: set[tuple[int, int]] = field(default_factory=set)
    _duplicates: set[tuple[int, int]] = field(default_factory=set)
    _aside: list[tuple[int, int]] = field(default_factory=list)
    _refusals: dict[tuple[int, int], int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Return where dealing stands, as plain values; what is out comes back: nobody is left to compute it."""
        returned = sorted([*self._returned, *self._aside, *((one.epoch, one.number) for one in self._out.values())])
        dealing = {"epoch": self._epoch, "number": self._number, "returned": returned, "batches": self.batches}
        refusals = [[*ticket, count] for ticket, count in sorted(self._refusals.items())]
        return {**dealing, "refusals": refusals, "ahead": sorted(self._ahead)}

    def restore(self, plain: dict[str, Any]) -> None:
        """Deal on from what `to_plain` returned; with other batches in an epoch, from the beginning of that epoch."""
        self._epoch = plain["epoch"]
        if plain["batches"] == self.batches:
            self._number = plain["number"]
            self._returned = [(epoch, number) for epoch, number in plain["returned"]]
            self._refusals = {(epoch, number): count for epoch, number, count in plain.get("refusals", ())}
            self._ahead = {(epoch, number) for epoch, number in plain.get("ahead", ())}

    @property
    def out(self) -> set[tuple[int, int]]:
        """The gradients that have a ticket which is neither settled nor back."""
        return set(self._out)

    def deal(self, slot: int, sequence: int) -> Ticket:
        """Deal a ticket for gradient (`slot`, `sequence`): the earliest that came back, else a new one."""
        ticket = self._next()
        self._out[slot, sequence] = ticket
        self._duplicates.discard((slot, sequence))
        return ticket

    def _next(self) -> Ticket:
        if self._returned:
            return Ticket(*heapq.heappop(self._returned))
        while True:
            ticket = Ticket(self._epoch, self._number)
            self._number += 1
            if self._number == self.batches:
                self._epoch, self._number = self._epoch + 1, 0
            if (ticket.epoch, ticket.number) not in self._ahead:
                return ticket
            self._ahead.discard((ticket.epoch, ticket.number))

    def ticket(self, slot: int, sequence: int) -> Ticket | None:
        """Return the ticket that gradient (`slot`, `sequence`) has."""
        return self._out.get((slot, sequence))

    def claim(self, slot: int, sequence: int, ticket: Ticket) -> None:
        """Note on which ticket a gradient is computed, whoever dealt it.

        One that another gradient has, or was applied with, stays where it is: then this one is a duplicate.
        """
        key = slot, sequence
        if self._out.get(key) == ticket:
            return
        self.take_back(slot, sequence)
        if self._withdraw(ticket):
            self._out[key] = ticket
        else:
            self._duplicates.add(key)

    def is_duplicate(self, slot: int, sequence: int) -> bool:
        """Whether the gradient is computed on a ticket that another one has or was applied with."""
        return (slot, sequence) in self._duplicates

    def settle(self, slot: int, sequence: int, ticket: Ticket | None) -> None:
        """Note that the gradient is applied, and its ticket with it, whoever dealt it."""
        key = slot, sequence
        if ticket is not None and self._out.get(key) != ticket:
            self.take_back(slot, sequence)
            if not self._withdraw(ticket):
                self._rob(ticket)
        self._out.pop(key, None)
        if ticket is not None and self._refusals:
            self._refusals.pop((ticket.epoch, ticket.number), None)

    def _withdraw(self, ticket: Ticket) -> bool:
        """Take a ticket out of what is still to be dealt; return whether it was there."""
        place = ticket.epoch, ticket.number
        for pile in (self._returned, self._aside):
            if place in pile:
                pile.remove(place)
                heapq.heapify(self._returned)
                return True
        if place < (self._epoch, self._number) or place in self._ahead:
            return False
        self._ahead.add(place)
        return True

    def _rob(self, ticket: Ticket) -> None:
        for key in [key for key, one in self._out.items() if one == ticket]:
            del self._out[key]
            self._duplicates.add(key)

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
        self._duplicates.discard((slot, sequence))
        ticket = self._out.pop((slot, sequence), None)
        if ticket is not None:
            heapq.heappush(self._returned, (ticket.epoch, ticket.number))
