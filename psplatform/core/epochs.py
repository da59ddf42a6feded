"""Dealing the batches of an epoch, so that each sample is applied exactly once in it.

Under epoch sampling the coordinator deals tickets, one batch each, with the release of a worker.  A ticket whose
gradient was applied is settled; one whose gradient was dropped, aborted or lost with its worker goes back and is dealt
again before any new one.  So within an epoch every sample enters exactly one applied gradient, whatever fails.  The
next epoch's tickets are dealt as soon as the deck is empty, while the last ones of this epoch are still out: no worker
waits at the end of an epoch, and a ticket that comes back late keeps its epoch.  A run that ends drops what is out: a
batch that a straggler held then is missing from its epoch, and the log says so.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from psplatform.core.messages import Ticket


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

    @property
    def out(self) -> set[tuple[int, int]]:
        """The gradients that have a ticket which is neither settled nor back."""
        return set(self._out)

    def deal(self, slot: int, sequence: int) -> Ticket:
        """Deal a ticket for gradient (`slot`, `sequence`): the earliest that came back, else a new one."""
        if self._returned:
            ticket = Ticket(*heapq.heappop(self._returned))
        else:
            ticket = Ticket(self._epoch, self._number)
            self._number += 1
            if self._number == self.batches:
                self._epoch, self._number = self._epoch + 1, 0
        self._out[slot, sequence] = ticket
        return ticket

    def settle(self, slot: int, sequence: int) -> None:
        """Note that the gradient is applied, and its ticket with it."""
        self._out.pop((slot, sequence), None)

    def take_back(self, slot: int, sequence: int) -> None:
        """Note that the gradient will not be applied; its ticket is dealt again."""
        ticket = self._out.pop((slot, sequence), None)
        if ticket is not None:
            heapq.heappush(self._returned, (ticket.epoch, ticket.number))
