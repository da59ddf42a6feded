"""Which gradients are summed on their way, and by which aggregator.

Algorithm 3 of MLfabric: the first gradients of an order go straight to the servers; the rest is cut into consecutive
groups, each of which is collected by an aggregator that sends one sum on, of the size of one gradient.  A group is
closed when the servers would be idle while its aggregator waited for one more.

Differences from the paper, whose printed text leaves them open or contradicts itself:

* The transfer of the last group counts as well.
* With nothing sent straight, the first group has no limit, so that everything through one aggregator is a candidate;
  printed, no gradient could ever be accepted.  A group takes at least one.
* Past the last aggregator everything that is left joins its group.
* A group of one is sent straight, unless that is slower.
* The servers count as busy until all that is sent straight has arrived, not the last one of it in order alone.
* A group holds the positions of its members in the order.  A later group may arrive before an earlier one: what that
  means for delays is judged on arrival.
* What goes straight from a host takes along, summed there, what else goes straight from it (`with_neighbours`).
* How many go straight is searched where there are more than a few, for a time that grows with the number of gradients;
  the paper tries every number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.core.transfers import Offer
from psplatform.network.ordering import Ordered, deadline_of
from psplatform.network.rates import seconds_for
from psplatform.network.state import NetworkState, Transfer

_EXHAUSTIVE: Final = 40
"""Up to so many gradients every cut is tried: some ten milliseconds."""

_COARSE: Final = 12
"""Cuts that are tried before those around the best of them."""

_EFFORT: Final = 8
"""Transfers that are looked at for each gradient before the search ends."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive gradients of an order that are summed by one aggregator.

    Attributes
    ----------
    aggregator
        The number of its host among those that were given; ``None`` for one that goes straight to the servers.
    members
        The gradients with their transfers to the aggregator, or to the servers.
    forward
        The transfer of the sum; that of the gradient itself if it goes straight.
    """

    aggregator: int | None
    members: tuple[tuple[Offer, Transfer], ...]
    forward: Transfer

    @property
    def begin(self) -> float:
        """When its first transfer begins; where all members are beside the aggregator already, that of the sum."""
        if not any(transfer.parts for _, transfer in self.members):
            return self.forward.begin
        return min(transfer.begin for _, transfer in self.members)


@dataclass(frozen=True, slots=True)
class Grouped:
    """All groups, in the order of the gradients, and when the last of them has arrived."""

    groups: tuple[Group, ...]
    end: float


def group(ordered: Ordered, aggregators: Sequence[str], *, exhaustive: bool = False) -> Grouped:
    """Return the groups by which the last gradient arrives first.

    Parameters
    ----------
    aggregators
        Their hosts, in the order in which they are used.
    exhaustive
        Try every cut, whatever it takes; of equal ones, take that with the most gradients sent straight.
    """
    search = _Search(ordered, aggregators)
    if not aggregators:
        return search.best
    if exhaustive or search.count <= _EXHAUSTIVE:
        for direct in range(search.count - 1, -1, -1):
            search.attempt(direct)
    else:
        search.refine()
    return search.best


class _Search:
    """The best of the cuts that were tried; at first, everything straight.

    Attributes
    ----------
    count
        How many gradients get through at all; those that do not go straight, and count for nothing.
    """

    def __init__(self, ordered: Ordered, aggregators: Sequence[str]) -> None:
        self._ordered, self._to, self._aggregators, self._now = ordered, ordered.to, aggregators, ordered.now
        self._whole = sum(size_bytes for _, size_bytes in ordered.to)
        self._straight = [
            Group(None, ((offer, transfer),), transfer)
            for offer, transfer in zip(ordered.kept, ordered.transfers, strict=True)
        ]
        self.count = sum(math.isfinite(one.end) for one in ordered.transfers)
        self._ends = [self._now]
        for transfer in ordered.transfers[: self.count]:
            self._ends.append(max(self._ends[-1], transfer.end))
        self.best = Grouped(tuple(self._straight), self._ends[-1])
        self._direct, self._looked_at = self.count, 0
        # The most that all aggregators can collect in a second, and the least that a sum takes to the servers.
        state = ordered.states[0]
        self._collecting = sum(max(state.into(host).rates) for host in aggregators)
        forwarding = [
            0.0 if server in aggregators else seconds_for(size_bytes, max(state.into(server).rates))
            for server, size_bytes in ordered.to
        ]
        self._forwarding = max(forwarding, default=0.0)
        self._remote = [0]
        for offer in reversed(ordered.kept[: self.count]):
            self._remote.append(self._remote[-1] + (offer.host not in aggregators))
        self._remote.reverse()
        self._tried: set[int] = {self.count}

    def attempt(self, direct: int) -> None:
        """Try the cut after the first `direct` gradients."""
        if direct in self._tried or not 0 <= direct <= self.count or self._at_best(direct) >= self.best.end:
            return
        self._tried.add(direct)
        found = self._cut(direct)
        if found is not None:
            self.best, self._direct = found, direct

    def refine(self) -> None:
        """Try cuts all over, the likeliest first, then those around the best one, for a while."""
        likely = self.count // (len(self._aggregators) + 1)
        step = max(1, self.count // _COARSE)
        for direct in sorted(range(likely % step, self.count, step), key=lambda one: abs(one - likely)):
            self.attempt(direct)
        distance = 0
        while distance < self.count and self._looked_at < _EFFORT * self.count:
            centre, distance = self._direct, distance + 1
            self.attempt(centre - distance)
            self.attempt(centre + distance)
            if self._direct != centre:
                distance = 0

    def _at_best(self, direct: int) -> float:
        """Return a time before which not everything can have arrived.

        All aggregators collect at once, and one sum is sent last.  What lies with an aggregator is there already, and
        each of them may have a group of one, which goes straight.
        """
        collected = self._remote[direct] - len(self._aggregators)
        if collected <= 0:
            return self._ends[direct]
        collecting_s = seconds_for(collected * self._whole, self._collecting)
        return max(self._ends[direct], self._now + collecting_s + self._forwarding)

    def _cut(self, direct: int) -> Grouped | None:
        """Return the groups behind the first `direct` gradients; ``None`` if they do not arrive before the best."""
        state = self._ordered.states[direct].copy()
        groups = self._straight[:direct]
        end, idle_at = self._ends[direct], self._ends[direct] if direct else math.inf
        opened, members = state.copy(), list[tuple[Offer, Transfer]]()
        number = 0
        for offer in self._ordered.kept[direct : self.count]:
            transfer = self._collect(state, offer, number)
            if transfer.end > idle_at and members and number + 1 < len(self._aggregators):
                state, closed = self._closed(opened, state, members, number)
                groups.append(closed)
                end, idle_at = max(end, closed.forward.end), closed.forward.end
                number, opened, members = number + 1, state.copy(), []
                transfer = self._collect(state, offer, number)
            self._looked_at += 1
            if max(transfer.end + self._forwarding if members else self._now, end) >= self.best.end:
                return None
            state.reserve(transfer)
            members.append((offer, transfer))
        _, closed = self._closed(opened, state, members, number)
        end = max(end, closed.forward.end)
        if end >= self.best.end:
            return None
        return Grouped((*groups, closed, *self._straight[self.count :]), end)

    def _collect(self, state: NetworkState, offer: Offer, number: int) -> Transfer:
        return state.transfer(offer.host, [(self._aggregators[number], self._whole)], self._now)

    def _closed(
        self, opened: NetworkState, state: NetworkState, members: list[tuple[Offer, Transfer]], number: int
    ) -> tuple[NetworkState, Group]:
        """Return the group with its way to the servers reserved; one alone goes straight if that is not slower."""
        ready = max(transfer.end for _, transfer in members)
        forward = state.transfer(self._aggregators[number], self._to, ready)
        if len(members) == 1:
            (offer, _), *_ = members
            straight = opened.transfer(offer.host, self._to, self._now)
            if straight.end <= forward.end:
                opened.reserve(straight)
                return opened, Group(None, ((offer, straight),), straight)
        state.reserve(forward)
        return state, Group(number, tuple(members), forward)


def with_neighbours(grouped: Grouped, aggregators: Sequence[str], now: float) -> Grouped:
    """Merge gradients that go straight from the same host into one sum, which is made on that host.

    That costs no transfer, and the sum is as large as one of them.  No gradient comes to be behind its deadline by
    that, in whatever order those of a sum count.  What follows is there no later than it says: it is not planned anew.

    Parameters
    ----------
    aggregators
        As for `group`: only these hosts sum.
    """
    groups = grouped.groups
    spare, position = list[float](), 0
    for one in groups:
        position += len(one.members)
        spare.append(min(deadline_of(offer) for offer, _ in one.members) - position)
    merged, taken, position = list[Group](), set[int](), 0
    for number, one in enumerate(groups):
        if number in taken:
            continue
        host = one.forward.sender
        sums = _goes_straight(one) and host in aggregators
        along = _along(groups, number, position, spare, taken) if sums else []
        taken.update(along)
        members = [*one.members, *(groups[each].members[0] for each in along)]
        position += len(members)
        if along:
            there = Transfer(host, now, now)
            merged.append(Group(aggregators.index(host), tuple((offer, there) for offer, _ in members), one.forward))
        else:
            merged.append(one)
    return Grouped(tuple(merged), max((one.forward.end for one in merged), default=grouped.end))


def _along(
    groups: Sequence[Group], number: int, position: int, spare: list[float], taken: Collection[int]
) -> list[int]:
    """Return which later groups are taken along by one; those between have as many positions to spare less.

    `position` is how many gradients come before it, and `taken` are groups that others have taken along.
    """
    one, found = groups[number], list[int]()
    latest = min(deadline_of(offer) for offer, _ in one.members)
    for later in range(number + 1, len(groups)):
        if later in taken or not _goes_straight(groups[later]) or groups[later].forward.sender != one.forward.sender:
            continue
        between = [each for each in range(number + 1, later) if each not in taken and each not in found]
        latest = min(latest, deadline_of(groups[later].members[0][0]))
        if latest < position + len(found) + 2 or any(spare[each] < 1 for each in between):
            break
        for each in between:
            spare[each] -= 1
        found.append(later)
    return found


def _goes_straight(one: Group) -> bool:
    return one.aggregator is None and bool(one.forward.parts)
