"""The gradients that workers have offered to send: those that wait, and those that were granted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from psplatform.core.coordination.members.roster import Member, Roster
from psplatform.core.protocol import messages as msg


@dataclass(eq=False)
class Offered:
    """A gradient that was offered at a time.

    Once it is granted, `begin` is when it is to be sent, by the route `number` of the coordinator of `term`, and to
    whom, if not to the servers; `end` is when it, or the sum it is in, is expected there.  With `alone`, it was to be
    summed with others once, and that came to nothing.
    """

    message: msg.Offer
    at: float
    begin: float = math.inf
    end: float = math.inf
    term: int = 0
    number: int = 0
    aggregator: str = ""
    alone: bool = False

    @property
    def announce(self) -> msg.Announce:
        """What is announced of it once it has arrived."""
        return self.message.announce

    def as_sent(self, now: float) -> msg.Announce:
        """Return the announcement of a gradient whose sum has just arrived, with the seconds that it has taken."""
        waited, sent = max(0.0, self.begin - self.at), max(0.0, now - self.begin)
        return replace(self.announce, push_s=sent, wait_s=self.announce.wait_s + waited)


class Offers:
    """The offers that are neither announced nor dropped, each under a key that is never given twice, one of a worker.

    Attributes
    ----------
    waiting, granted
        By key, those that wait, the oldest first, and those that are expected.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.waiting: dict[int, Offered] = {}
        self.granted: dict[int, Offered] = {}
        self._keys: dict[str, int] = {}
        """By worker, its newest."""
        self._number = 0

    def add(self, message: msg.Offer, now: float) -> int:
        """Have an offer wait, as its worker's newest; return its key."""
        self._number += 1
        self._keys[message.announce.member] = self._number
        self.waiting[self._number] = Offered(message, now)
        return self._number

    def key_of(self, member: str) -> int:
        """Return the key of a worker's newest offer, which may be over; 0 where it has made none."""
        return self._keys.get(member, 0)

    def find(self, announce: msg.Announce, known: dict[int, Offered]) -> int | None:
        """Return the key of the offer of that gradient, if it is among those that are `known`: waiting, or granted."""
        key = self._keys.get(announce.member, 0)
        return key if key in known and known[key].announce.sequence == announce.sequence else None

    def announcement_of(self, member: str, sequence: int) -> msg.Announce | None:
        """Return what would be announced of a gradient that was offered and may have been summed with others."""
        key = self._keys.get(member, 0)
        offered = self.granted.get(key) or self.waiting.get(key)
        return offered.announce if offered is not None and offered.announce.sequence == sequence else None

    def is_open(self, announce: msg.Announce) -> bool:
        """Whether its worker is live, busy with that gradient, and not told to abort it."""
        member = self._roster.by_name.get(announce.member)
        if member is None or not member.busy:
            return False
        return member.sequence == announce.sequence and announce.sequence not in member.interrupted

    def closed(self) -> set[int]:
        """Return the keys of those whose workers are gone, or were told to abort."""
        return {
            key
            for known in (self.waiting, self.granted)
            for key, offered in known.items()
            if not self.is_open(offered.announce)
        }

    def forget_the_gone(self) -> None:
        """Forget the keys of workers that have left."""
        roster = self._roster.by_name
        self._keys = {name: key for name, key in self._keys.items() if name in roster}

    def member_of(self, offered: Offered) -> Member:
        """Return its worker, which is there."""
        return self._roster.by_name[offered.announce.member]

    def contribution_of(self, key: int) -> msg.Contribution:
        """Return what names the gradient of an offer that waits, whose worker is there."""
        offered = self.waiting[key]
        member = self.member_of(offered)
        return msg.Contribution(member.name, member.slot, offered.announce.sequence)
