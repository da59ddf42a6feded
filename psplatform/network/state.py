"""The interfaces of a cluster with what transfers have reserved of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from psplatform.network.rates import Piece, Rates, pieces
from psplatform.network.sightings import Direction

Parts = Sequence[tuple[str, float]]
"""The receiving hosts of a transfer, with the bytes for each: a gradient goes to several shards together."""


@dataclass(frozen=True, slots=True)
class Interface:
    """The two directions of a host's interface."""

    out: Rates
    into: Rates


class Transfer(NamedTuple):
    """A transfer as it would go on what is left now.

    Attributes
    ----------
    begin, end
        When its first byte leaves and its last one has arrived, seconds; both infinite where some part of it never
        arrives.  Processes of one host reach each other at once.
    """

    sender: str
    begin: float
    end: float
    parts: tuple[tuple[str, Sequence[Piece]], ...] = ()


class NetworkState:
    """What every host has left, by name.

    Values are never changed in place, so that a copy is as cheap as a dictionary's.

    Parameters
    ----------
    interfaces
        By host.
    """

    def __init__(self, interfaces: Mapping[str, Interface]) -> None:
        self._out = {host: one.out for host, one in interfaces.items()}
        self._into = {host: one.into for host, one in interfaces.items()}

    @classmethod
    def steady(cls, hosts: Iterable[str], rate_of: Callable[[Direction], float], now: float) -> NetworkState:
        """Return the state in which directions carry so many bytes per second, from `now` on."""
        return cls(
            {host: Interface(*(Rates.steady(rate_of((host, out)), now) for out in (True, False))) for host in hosts}
        )

    def copy(self) -> NetworkState:
        """Return a state of its own."""
        copied = NetworkState({})
        copied._out, copied._into = self._out.copy(), self._into.copy()
        return copied

    def mirrored(self) -> NetworkState:
        """Return the state with the directions of every interface exchanged."""
        mirrored = NetworkState({})
        mirrored._out, mirrored._into = self._into.copy(), self._out.copy()
        return mirrored

    def __getitem__(self, host: str) -> Interface:
        return Interface(self._out[host], self._into[host])

    def into(self, host: str) -> Rates:
        """Return what the incoming direction of a host has left."""
        return self._into[host]

    def transfer(self, sender: str, parts: Parts, begin: float) -> Transfer:
        """Return how all parts would be sent from `begin` on, one behind the other, without reserving anything."""
        if math.isinf(begin):
            return Transfer(sender, math.inf, math.inf)
        out, first, end = self._out[sender], math.inf, begin
        if len(parts) == 1 and parts[0][0] != sender and parts[0][1] > 0:
            ((receiver, size_bytes),) = parts
            taken = pieces(out, self._into[receiver], size_bytes, begin)
            if taken is None:
                return Transfer(sender, math.inf, math.inf)
            return Transfer(sender, taken[0].begin, taken[-1].end, ((receiver, taken),))
        found: list[tuple[str, Sequence[Piece]]] = []
        used: dict[str, Rates] = {}
        for receiver, size_bytes in parts:
            if receiver == sender or size_bytes <= 0:
                continue
            if found:
                before, earlier = found[-1]
                out, used[before] = out.less(earlier), used.get(before, self._into[before]).less(earlier)
            taken = pieces(out, used.get(receiver, self._into[receiver]), size_bytes, begin)
            if taken is None:
                return Transfer(sender, math.inf, math.inf)
            found.append((receiver, taken))
            first, end = min(first, taken[0].begin), max(end, taken[-1].end)
        return Transfer(sender, first if found else begin, end, tuple(found))

    def occupy(self, sender: str, receiver: str, begin: float, end: float, rate: float) -> None:
        """Take so many bytes per second out of what is left between two hosts, or all of that if it is less."""
        for ways, host in ((self._out, sender), (self._into, receiver)):
            way = ways[host]
            cuts = [begin, *(step for step in way.times if begin < step < end), end]
            ways[host] = way.less([Piece(*span, rate) for span in pairwise(cuts)])

    def reserve(self, transfer: Transfer) -> None:
        """Take a transfer, which was made of this very state, out of what is left."""
        sender = transfer.sender
        for receiver, taken in transfer.parts:
            self._out[sender] = self._out[sender].less(taken)
            self._into[receiver] = self._into[receiver].less(taken)
