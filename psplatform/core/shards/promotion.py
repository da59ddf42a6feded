"""How a copy that was promoted comes to serve: once every other one that could be promoted stands where it does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Commit, Promote, Promoted
from psplatform.core.protocol.names import COORDINATOR


@dataclass
class Promotion:
    """The order to be the server, and what holds answers back after it.

    Parameters
    ----------
    position, version
        With which the copy began to be the server.

    Attributes
    ----------
    order
        That it carries out still; ``None`` once it serves, or where it was never promoted.
    floor
        Position below which nobody is answered.
    """

    shard: int
    name: str
    epoch: int
    position: int
    version: int
    order: Promote | None = None
    floor: float = 0

    def end(self, in_sync: Iterable[str]) -> Promote | None:
        """Return the order that is carried out if all successors that it names are in sync, else ``None``."""
        order = self.order
        if order is None or not set(order.successors) <= set(in_sync):
            return None
        # The server before it may have shown whatever was decided: who pulled that must not be answered less.
        self.order, self.floor = None, order.position if order.settled else math.inf
        return order

    def repeat(self, order: Promote) -> set[str]:
        """Take an order that comes once more; return the successors that it does not name any more."""
        if self.order is None:
            if order.settled:
                self.floor = min(self.floor, order.position)
            return set()
        if not order.replaces(self.order):
            return set()
        lost = set(self.order.successors) - set(order.successors)
        self.order = order
        return lost

    def report(self, term: int, known: tuple[Commit, ...]) -> Send:
        """Return what the coordinator of `term` is told, with the commits that are known."""
        began = self.shard, self.name, self.epoch, self.position, self.version
        return Send(COORDINATOR, Promoted(*began, term, known))
