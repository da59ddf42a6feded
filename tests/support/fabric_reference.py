"""The algorithms of MLfabric as they are written, by integration over every reservation: slow, and with nothing shared.

`Link` keeps what it was told and adds up; the product keeps staircases and forgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from psplatform.core.transfers import Offer


@dataclass
class Link:
    """One direction: its own rates as (since, rate), and what is reserved as (begin, end, rate)."""

    own: list[tuple[float, float]]
    taken: list[tuple[float, float, float]] = field(default_factory=list)

    def at(self, moment: float) -> float:
        rate = self.own[0][1]
        for since, one in self.own:
            rate = one if since <= moment else rate
        for begin, end, one in self.taken:
            rate -= one if begin <= moment < end else 0.0
        # What two subtractions leave of nothing is nothing.
        return rate if rate > 1e-9 * self.own[0][1] else 0.0

    def changes(self) -> set[float]:
        moments = {since for since, _ in self.own}
        return moments | {one for begin, end, _ in self.taken for one in (begin, end)}


@dataclass
class Links:
    """The interfaces of all hosts: (outgoing, incoming) by name."""

    hosts: dict[str, tuple[Link, Link]]

    def copy(self) -> Links:
        return Links(
            {
                host: (Link(out.own, [*out.taken]), Link(into.own, [*into.taken]))
                for host, (out, into) in self.hosts.items()
            }
        )

    def send(self, sender: str, receiver: str, size: float, begin: float, *, reserve: bool) -> float:
        """Return t_en of Algorithm 1 for one part, and take it if asked."""
        if sender == receiver:
            return begin
        out, into = self.hosts[sender][0], self.hosts[receiver][1]
        moments = [*sorted({begin} | {one for one in out.changes() | into.changes() if one > begin}), math.inf]
        used, left, end = [], size, math.inf
        for moment, until in pairwise(moments):
            rate = min(out.at(moment), into.at(moment))
            if rate <= 0:
                continue
            end = min(until, moment + left / rate)
            used.append((moment, end, rate))
            left -= rate * (end - moment)
            if end < until or left <= 1e-9 * size:
                break
        else:
            return math.inf
        if reserve:
            out.taken += used
            into.taken += used
        return end

    def send_all(self, sender: str, parts: Sequence[tuple[str, float]], begin: float, *, reserve: bool) -> float:
        """Return the end of all parts, each behind the one before it."""
        links = self if reserve else self.copy()
        return max([links.send(sender, to, size, begin, reserve=True) for to, size in parts], default=begin)


Parts = Sequence[tuple[str, float]]


def order(  # noqa: C901, PLR0915  as long as the algorithm that it repeats
    offers: Sequence[Offer], links: Links, to: Parts, now: float, *, strict: bool = False
) -> tuple[list[int], list[float], list[int]]:
    """Return the keys that are kept, their ends, and the keys that are dropped: Algorithm 2."""
    links, rest = links.copy(), list(offers)
    kept: list[int] = []
    ends: list[float] = []
    dropped: list[int] = []
    hosts = list(dict.fromkeys(one.host for one in offers))
    idle = dict.fromkeys(hosts, now)

    def rank(one: Offer, where: Links) -> tuple[float, float, int, float, int]:
        end, due = where.send_all(one.host, to, now, reserve=False), math.inf if one.deadline is None else one.deadline
        return end, idle[one.host], hosts.index(one.host), due, offers.index(one)

    def pick(position: int, where: Links) -> tuple[Offer, bool]:
        due = sorted(one.deadline for one in rest if one.deadline is not None)
        if strict:
            forced = [one for one in rest if one.deadline == position]
        else:
            due = [one for one in due if one >= position]
            tight = [one for place, one in enumerate(due) if one <= position + place]
            forced = [
                one for one in candidates(position) if one.deadline is not None and tight and one.deadline <= tight[0]
            ]
        return min(forced or candidates(position), key=lambda one: rank(one, where)), bool(forced)

    def candidates(position: int) -> list[Offer]:
        return [one for one in rest if strict or one.deadline is None or one.deadline >= position]

    position = 0
    while rest:
        position = position + 1 if strict else len(kept) + 1
        late = [one for one in rest if one not in candidates(position)]
        dropped += [one.key for one in late]
        rest = [one for one in rest if one not in late]
        if not rest:
            break
        chosen, forced = pick(position, links)
        end = links.send_all(chosen.host, to, now, reserve=False)
        rest.remove(chosen)
        if math.isinf(end):
            if chosen.deadline is None:
                kept.append(chosen.key)
                ends.append(end)
            else:
                dropped.append(chosen.key)
            continue
        after = links.copy()
        after.send_all(chosen.host, to, now, reserve=True)
        before, idle[chosen.host] = idle[chosen.host], end
        if forced and candidates(position + 1):
            following, _ = pick(position + 1, after)
            if end > after.send_all(following.host, to, now, reserve=False):
                dropped.append(chosen.key)
                idle[chosen.host] = before
                continue
        kept.append(chosen.key)
        ends.append(end)
        links = after
    return kept, ends, dropped


def cut(
    kept: Sequence[Offer], ends: Sequence[float], links: Links, to: Parts, hops: Sequence[str], now: float, direct: int
) -> tuple[float, list[list[int]]]:
    """Return when everything has arrived, and the groups, with the first `direct` sent straight: Algorithm 3."""
    links, whole = links.copy(), sum(size for _, size in to)
    for one in kept[:direct]:
        links.send_all(one.host, to, now, reserve=True)
    groups = [[one.key] for one in kept[:direct]]
    finish = max([now, *ends[:direct]])
    idle = finish if direct else math.inf
    rest, number = list(kept[direct:]), 0
    while rest:
        before, members, ready = links.copy(), [], now
        while rest:
            end = links.send(rest[0].host, hops[number], whole, now, reserve=False)
            if members and end > idle and number + 1 < len(hops):
                break
            links.send(rest[0].host, hops[number], whole, now, reserve=True)
            members.append(rest.pop(0))
            ready = max(ready, end)
        idle = math.inf if math.isinf(ready) else links.send_all(hops[number], to, ready, reserve=False)
        straight = before.send_all(members[0].host, to, now, reserve=False)
        if len(members) == 1 and straight <= idle:
            links, idle = before, straight
            links.send_all(members[0].host, to, now, reserve=True)
        elif math.isinf(idle):
            return math.inf, []
        else:
            links.send_all(hops[number], to, ready, reserve=True)
        groups.append([one.key for one in members])
        finish, number = max(finish, idle), number + 1
    return finish, groups


def group(
    kept: Sequence[Offer], ends: Sequence[float], links: Links, to: Parts, hops: Sequence[str], now: float
) -> tuple[float, list[list[int]]]:
    """Return the best of all cuts, and of equal ones that with the most gradients sent straight."""
    cuts = [cut(kept, ends, links, to, hops, now, direct) for direct in range(len(kept), -1, -1)]
    return min(cuts, key=lambda one: one[0])
