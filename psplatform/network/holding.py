"""Which gradients that could be sent wait for others, to be summed with them: where the servers are what is scarce.

Workers that get new parameters together offer their gradients shortly after each other.  If the first of them took the
idle way to the servers, the rest would wait behind it, and half as much would be summed.  And what is summed while the
servers are busy need not be chosen before they are about to be idle.

Nothing waits where an aggregator collects hardly faster than the servers do: there, collecting is scarce as well.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from psplatform.core.transfers import Offer
from psplatform.network.grouping import Group
from psplatform.network.rates import seconds_for
from psplatform.network.state import NetworkState, Parts

_CHEAP: Final = 0.5
"""Collecting a gradient is cheap if it takes no more than this part of what it takes the servers."""

_PATIENCE: Final = 0.5
"""What could begin is held for this part of what its transfer to the servers takes, at most."""

_KEPT: Final = 4
"""Gradients of a host by which it is told how long its next one takes: as long as the slowest of them."""

_LATE: Final = 2.0
"""A gradient that takes so many times as long as is usual on its host is expected no longer."""

_SPARE: Final = 2
"""Positions that must be left before the deadline of what is held."""


class Holding:
    """Expects offers of the workers that have got parameters, and holds what can be summed with them."""

    def __init__(self) -> None:
        # By host, when parameters have come that no gradient was offered of yet, and how long gradients took.
        self._come: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=_KEPT))
        self._lasted: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=_KEPT))
        # By the key of an offer that waits, when it could first have been sent, alone or with others.
        self._could_begin: dict[int, float] = {}
        self._collecting = 0.0
        self._is_cheap = False

    @property
    def hosts(self) -> list[str]:
        """Hosts that an offer may be expected from."""
        return list(self._lasted)

    def note_parameters(self, host: str, at: float) -> None:
        """Expect an offer of a worker that has got its parameters."""
        self._come[host].append(at)

    def note_offer(self, offer: Offer, at: float) -> None:
        """Learn of an offer, if it is new, how long its gradient has taken."""
        if offer.key in self._could_begin:
            return
        self._could_begin[offer.key] = math.inf
        if not offer.alone and self._come[offer.host]:
            self._lasted[offer.host].append(max(0.0, at - self._come[offer.host].popleft()))

    def note_rates(self, state: NetworkState, aggregators: Sequence[str], servers: Parts) -> None:
        """Learn how fast gradients can be collected, and be sent to the servers."""
        self._collecting = max((state[host].into.rates[-1] for host in aggregators), default=0.0)
        scarce_s = max(seconds_for(size_bytes, state[server].into.rates[-1]) for server, size_bytes in servers)
        collecting_s = seconds_for(sum(size_bytes for _, size_bytes in servers), self._collecting)
        self._is_cheap = collecting_s <= _CHEAP * scarce_s < math.inf

    def forget_others(self, offers: Iterable[Offer]) -> None:
        """Forget the offers that wait no longer, which is all but these."""
        self._could_begin = {one.key: self._could_begin[one.key] for one in offers}

    def may_hold(
        self, straight_s: float, others: Iterable[Offer], coming: Iterable[tuple[str, float]], now: float
    ) -> bool:
        """Whether what could go straight at once may be held: only a plan can tell."""
        if not self._is_cheap:
            return False
        return any(True for _ in others) or any(
            True for _ in self._iter_expected(now + _PATIENCE * straight_s, coming, now)
        )

    def holds(
        self,
        one: Group,
        state: NetworkState,
        coming: Iterable[tuple[str, float]],
        ahead: int,
        *,
        now: float,
        tick_s: float,
    ) -> bool:
        """Whether a group, or what goes straight, is left to the next plan although it could begin.

        Parameters
        ----------
        one
            The deadlines of its members count from what is under way and arrives before them.
        coming
            Hosts that parameters are under way to, each with when they are expected there.
        ahead
            How many updates arrive before it that are granted together with it.
        """
        offers = [offer for offer, _ in one.members]
        if not self._is_cheap or math.isinf(one.forward.end) or any(offer.alone for offer in offers):
            return False
        if any(offer.deadline is not None and offer.deadline <= ahead + _SPARE for offer in offers):
            return False
        return _is_early(one, tick_s) or self._grows(one, state, coming, now)

    def _grows(self, one: Group, state: NetworkState, coming: Iterable[tuple[str, float]], now: float) -> bool:
        """Whether others are expected so soon that they can be summed with these, if these are held."""
        keys = [offer.key for offer, _ in one.members]
        could_begin = min(one.forward.begin, *(self._could_begin[key] for key in keys))
        self._could_begin.update(dict.fromkeys(keys, could_begin))
        end = could_begin + _PATIENCE * (one.forward.end - one.forward.begin)
        size_bytes = sum(taken.rate * (taken.end - taken.begin) for _, parts in one.forward.parts for taken in parts)
        return any(
            at + seconds_for(size_bytes, min(self._collecting, state[host].out.rates[-1])) <= end
            for host, at in self._iter_expected(end, coming, now)
        )

    def _iter_expected(
        self, end: float, coming: Iterable[tuple[str, float]], now: float
    ) -> Iterator[tuple[str, float]]:
        """Yield the host of each gradient that is expected to be offered by `end`, and when."""
        come = ((host, at) for host, times in self._come.items() for at in times)
        for host, at in (*come, *coming):
            if host not in self._lasted:
                continue
            lasts_s = max(self._lasted[host])
            if at + lasts_s <= end and now <= at + _LATE * lasts_s:
                yield host, max(now, at + lasts_s)


def _is_early(one: Group, tick_s: float) -> bool:
    """Whether the sum of a group would wait for the servers, even if collecting it took twice as long."""
    if one.aggregator is None:
        return False
    begin = min(transfer.begin for _, transfer in one.members)
    collected = max(transfer.end for _, transfer in one.members)
    return one.forward.begin - collected > tick_s + (collected - begin)
