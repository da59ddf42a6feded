"""In which order gradients are sent to the servers, and which of them are not worth sending.

Algorithm 2 of MLfabric: the shortest transfer first, unless the delay bound of another one would break; and a gradient
that must go now, although it is slower than what would come after it, is dropped, because it holds up all others.

Differences from the paper; ``strict_paper=True`` takes the printed algorithm:

* A position counts what is kept.  Printed, it counts what was dropped as well.
* A gradient whose last position has passed is dropped.  Printed, a deadline is compared for equality alone, so that of
  two with the same one the second slips through late.
* Where the next few positions are needed for as many gradients with deadlines, these go first, the shortest of them at
  once: two with the same deadline can both meet it.
* What cannot get through at all is dropped under a deadline.

As in the paper, gradients are taken to be committed in this order.  One that is slow can be overtaken on its way: what
applies gradients must judge their delay when they arrive.  All are of the same size, and ready when the plan is made.
With several servers a pick that no deadline forces is not looked behind, although their parts may then leave room for a
faster one; and each pick computes every host's transfer, so that the time grows with the square of their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psplatform.core.transfers import Offer
from psplatform.network.rates import NOTHING, Rates
from psplatform.network.state import NetworkState, Parts, Transfer

Array = NDArray[np.float64]
_FEW: Final = 16
"""So many transfers are computed one by one sooner than together."""


class Due(NamedTuple):
    """Deadlines from `low` to `high`: an offer in this range is sent next.

    Offers without a deadline are in the range if `high` is infinite; `everything` is true where all that are left are.
    """

    low: float
    high: float
    everything: bool


_ALL: Final = Due(-math.inf, math.inf, everything=True)


@dataclass(frozen=True, slots=True)
class Ordered:
    """What is sent, in this order, each with its transfer straight to the servers; and what is dropped where it lies.

    `states` are the network before the first transfer, and after each one that ends; `to` and `now` are as given.

    A gradient without a deadline that cannot reach the servers at the known rates comes last, with an infinite end:
    rates may be wrong, and nothing would be gained by dropping it.
    """

    kept: tuple[Offer, ...]
    transfers: tuple[Transfer, ...]
    dropped: tuple[Offer, ...]
    states: tuple[NetworkState, ...]
    to: Parts
    now: float


def order(
    offers: Sequence[Offer], state: NetworkState, to: Parts, now: float, *, strict_paper: bool = False
) -> Ordered:
    """Return the order of the offers; `state` stays as it is.

    Of equal transfers that of the host goes first that was idle first, then that of the one that is named first in
    `offers`; of one host's, that with the earliest deadline.

    Parameters
    ----------
    to
        The hosts of the servers, with the bytes of a gradient for each.
    """
    to = [(server, size_bytes) for server, size_bytes in to if size_bytes > 0]
    state, waiting = state.copy(), _Waiting(offers, state, to, now, strict_paper=strict_paper)
    kept: list[Offer] = []
    transfers: list[Transfer] = []
    dropped: list[Offer] = []
    states = [state]
    position = 0
    while True:
        position = position + 1 if strict_paper else len(kept) + 1
        if not strict_paper:
            dropped += waiting.take_late(position)
        due = waiting.due(position)
        chosen = waiting.shortest(state, due)
        if chosen is None and math.isinf(due.high):
            break  # nothing is left, or nothing that is left gets through
        if chosen is None:
            dropped += waiting.take(due)
            continue
        offer, transfer = waiting.offers[chosen], waiting.transfer(state, chosen)
        after = state.copy()
        after.reserve(transfer)
        idle_at = waiting.send(chosen, transfer.end)
        if math.isfinite(due.high):
            following = waiting.shortest(after, waiting.due(position + 1))
            if following is not None and waiting.transfer(after, following).end < transfer.end:
                waiting.set_idle(chosen, idle_at)
                dropped.append(offer)
                continue
        kept.append(offer)
        transfers.append(transfer)
        states.append(after)
        state = after
    hopeless = waiting.take(_ALL)
    dropped += [one for one in hopeless if one.deadline is not None]
    stuck = [one for one in hopeless if one.deadline is None]
    transfers += [Transfer(one.host, math.inf, math.inf) for one in stuck]
    return Ordered((*kept, *stuck), tuple(transfers), tuple(dropped), tuple(states), to, now)


def deadline_of(offer: Offer) -> float:
    """Return the last position at which an offer is of use; infinity without a deadline."""
    return math.inf if offer.deadline is None else offer.deadline


class _Waiting:
    """The offers that have no place yet, by number: sorted by host, and of one host by deadline.

    Of hosts whose interfaces have the same left at first, only the one that is idle first can be the first at the
    server, if there is one.
    """

    def __init__(
        self, offers: Sequence[Offer], state: NetworkState, to: Parts, now: float, *, strict_paper: bool
    ) -> None:
        self._hosts = list({one.host: None for one in offers})
        self._numbers = numbers = {host: number for number, host in enumerate(self._hosts)}
        self._to, self._now, self._strict_paper = to, now, strict_paper
        self.offers = sorted(offers, key=lambda one: (numbers[one.host], deadline_of(one)))
        self.senders = np.array([numbers[one.host] for one in self.offers], int)
        self._idle_at = np.full(len(self._hosts), now)
        self._deadlines = np.array([deadline_of(one) for one in self.offers], float)
        self._by_deadline = np.argsort(self._deadlines, kind="stable")
        self._left = np.ones(len(self.offers), bool)
        # No deadline is tight or late before this position: removals only leave more positions for the others.
        self._spare_until = -math.inf
        uplinks = [state[host].out.since(now) for host in self._hosts]
        self._uplinks = _steps(uplinks)
        # By host: its first offer that is left, and how many are.
        self._first: list[int] = np.searchsorted(self.senders, np.arange(len(self._hosts))).tolist()
        self._count: list[int] = np.bincount(self.senders, minlength=len(self._hosts)).tolist()
        # By kind of uplink: hosts by when they are idle; those that have changed since are passed over.
        servers = {server for server, _ in to}
        kinds: dict[tuple[Rates, str], list[tuple[float, int]]] = {}
        self._kind_of = [
            kinds.setdefault((uplink, host if host in servers else ""), [])
            for uplink, host in zip(uplinks, self._hosts, strict=True)
        ]
        for number, kind in enumerate(self._kind_of):
            kind.append((now, number))
        self._kinds = list(kinds.values())

    def take(self, due: Due) -> list[Offer]:
        """Remove and return the offers with a deadline in the range."""
        found = self._within(due).tolist()
        for number in found:
            self._remove(number)
        return [self.offers[number] for number in found]

    def take_late(self, position: int) -> list[Offer]:
        """Remove and return the offers that can no longer meet their deadlines."""
        return [] if position < self._spare_until else self.take(Due(-math.inf, position - 1, everything=False))

    def send(self, number: int, end: float) -> float:
        """Remove an offer whose host is busy with it until `end`; return since when the host was idle."""
        self._remove(number)
        idle_at = float(self._idle_at[self.senders[number]])
        self.set_idle(number, end)
        return idle_at

    def set_idle(self, number: int, moment: float) -> None:
        """Have the offer's host idle from a moment on."""
        host = int(self.senders[number])
        self._idle_at[host] = moment
        heappush(self._kind_of[host], (moment, host))

    def _remove(self, number: int) -> None:
        self._left[number] = False
        self._count[self.senders[number]] -= 1

    def due(self, position: int) -> Due:
        """Return the deadlines of which one must be served at this position, or all."""
        if self._strict_paper:
            now_or_never = Due(position, position, everything=False)
            return now_or_never if len(self._within(now_or_never)) else _ALL
        if position < self._spare_until:
            return Due(position, math.inf, everything=True)
        ascending = self._deadlines[self._by_deadline[self._left[self._by_deadline]]]
        late = int(np.searchsorted(ascending, position))
        ascending = ascending[late:]
        # Are as many due up to some position as there are positions?  Each position takes one of those to spare.
        spare = ascending - np.arange(len(ascending))
        tight = np.flatnonzero(spare <= position)
        if len(tight):
            return Due(position, float(ascending[tight[0]]), everything=False)
        if not late:
            self._spare_until = float(spare.min(initial=math.inf))
        return Due(position, math.inf, everything=not late)

    def shortest(self, state: NetworkState, due: Due) -> int | None:
        """Return which offer in the range would be at the servers first; ``None`` if none is, or gets, there."""
        if due.everything and len(self._kinds) <= _FEW and len(self._to) == 1:
            numbers = [self._first_of(kind[0][1]) for kind in self._kinds if self._settle(kind)]
        else:
            within = self._within(due)
            senders = self.senders[within]
            # The first of each host, as they are sorted by host.
            first = np.flatnonzero(np.concatenate(([True], senders[1:] != senders[:-1]))) if len(within) else within
            numbers = [int(number) for number in within[first]]
        if not numbers:
            return None
        if len(numbers) <= _FEW or len(self._to) != 1:
            ends = [self.transfer(state, number).end for number in numbers]
        else:
            ends = self._ends(state, self.senders[numbers]).tolist()
        soonest = min(ends)
        if math.isinf(soonest):
            return None
        equal = [number for number, end in zip(numbers, ends, strict=True) if end == soonest]
        return min(equal, key=lambda number: (float(self._idle_at[self.senders[number]]), number))

    def _settle(self, kind: list[tuple[float, int]]) -> bool:
        """Remove outdated entries and hosts without offers from the front; return whether a host is left."""
        while kind and (not self._count[kind[0][1]] or kind[0][0] != self._idle_at[kind[0][1]]):
            heappop(kind)
        return bool(kind)

    def _first_of(self, host: int) -> int:
        """Return the first offer of the host that is left."""
        number = self._first[host]
        while not self._left[number]:
            number += 1
        self._first[host] = number
        return number

    def transfer(self, state: NetworkState, number: int) -> Transfer:
        """Return the transfer that an offer would be."""
        return state.transfer(self.offers[number].host, self._to, self._now)

    def _within(self, due: Due) -> NDArray[np.intp]:
        return np.flatnonzero(self._left & (self._deadlines >= due.low) & (self._deadlines <= due.high))

    def _ends(self, state: NetworkState, senders: NDArray[np.intp]) -> Array:
        """Return when a gradient of each of these hosts would be at the only server; infinity for all but the first.

        All are ready and go to one place.  So while a host sends, either its own interface or the server's has nothing
        left, and nothing more of that host could have been sent: what its interface has left *for this server* is what
        it had at first, from the end of its last transfer on.
        """
        (server, size_bytes), *_ = self._to
        ends, left = np.full(len(senders), math.inf), np.full(len(senders), size_bytes)
        ends[senders == self._numbers.get(server, -1)] = self._now
        into = state.into(server).since(self._now)
        begins, untils = (-math.inf, *into.times[1:]), (*into.times[1:], math.inf)
        for begin, until, rate in zip(begins, untils, into.rates, strict=True):
            if rate <= 0:
                continue
            if np.isfinite(ends).any():
                break  # the others are later than this step
            for starts, stops, rates in self._uplinks:
                lo = np.maximum(np.maximum(starts[senders], begin), self._idle_at[senders])
                hi = np.minimum(stops[senders], until)
                speed = np.minimum(rates[senders], rate)
                moving = (hi > lo) & (speed > 0) & (left > 0)
                done = np.minimum(np.divide(left, speed, out=np.full(len(left), math.inf), where=moving) + lo, hi)
                left -= np.multiply(speed, hi - lo, out=np.zeros(len(left)), where=moving)
                arrived = moving & (left <= NOTHING * size_bytes)
                left[arrived] = 0.0
                ends[arrived] = done[arrived]
        return ends


def _steps(uplinks: Sequence[Rates]) -> list[tuple[Array, Array, Array]]:
    """Return the first steps of all, the second ones and so on: begins, ends and rates; missing ones are empty."""
    found = []
    for number in range(max((len(one.times) for one in uplinks), default=0)):
        there = [number < len(one.times) for one in uplinks]
        starts = [one.times[number] if has and number else -math.inf for one, has in zip(uplinks, there, strict=True)]
        stops = [_stop(one, number) if has else -math.inf for one, has in zip(uplinks, there, strict=True)]
        rates = [one.rates[number] if has else 0.0 for one, has in zip(uplinks, there, strict=True)]
        found.append((np.array(starts), np.array(stops), np.array(rates)))
    return found


def _stop(rates: Rates, number: int) -> float:
    return rates.times[number + 1] if number + 1 < len(rates.times) else math.inf
