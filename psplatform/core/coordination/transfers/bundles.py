"""Which gradients are being summed on their way, and by whose process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from psplatform.core.coordination.members.hosts import Hosts
from psplatform.core.coordination.state import State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Bundle
from psplatform.core.protocol.names import Role
from psplatform.core.transfers import patience_s


@dataclass(frozen=True, slots=True)
class Expected:
    """A bundle whose sum is expected.

    Attributes
    ----------
    keys
        The offers that it is made of, in the order in which they are summed.
    due
        When it is given up; seconds.
    """

    bundle: Bundle
    keys: tuple[int, ...]
    due: float


class Bundles:
    """The sums that are expected, of which workers' processes.

    Aggregators keep their sums until they are told that every shard shows what was made of them, or that nothing was.
    """

    def __init__(self, state: State, hosts: Hosts) -> None:
        self._state, self._hosts = state, hosts
        self._expected: dict[int, Expected] = {}
        # What has come, and may still have to be sent to a server that takes over.
        self._come: dict[Bundle, None] = {}
        self._last = 0
        # Before a takeover is over, a commit that this coordinator does not know of yet may be of any sum.
        self._knows_all = True

    @property
    def oldest(self) -> str | None:
        """Who is to sum the oldest that is expected, if there is one."""
        return next((one.bundle.aggregator for one in self._expected.values()), None)

    def expect(self, bundle: Bundle, gradients: Iterable[tuple[int, msg.Contribution]], end: float) -> None:
        """Have gradients summed, given by the keys of their offers; the sum is expected at `end`."""
        state = self._state
        keys, contributions = zip(*gradients, strict=True)
        # Leases are longer, and nobody else would notice that an aggregator has stopped.
        self._expected[bundle.number] = Expected(bundle, keys, state.now + patience_s(end - state.now))
        self._last = bundle.number
        term, number = self._first_open(bundle.aggregator)
        assemble = msg.Assemble(bundle.term, bundle.number, contributions, number, term)
        state.effects.append(Send(Role.member(bundle.aggregator), assemble))

    def take(self, bundle: Bundle) -> Expected | None:
        """Return what is expected under that name, if it is, and expect it no longer."""
        found = self._expected.get(bundle.number)
        return self._expected.pop(bundle.number) if found is not None and found.bundle == bundle else None

    def note_come(self, bundle: Bundle) -> None:
        """Have an aggregator keep its sum, which has been taken, until it is over."""
        self._come[bundle] = None

    def note_shown(self) -> None:
        """Tell aggregators of which of their sums every shard shows by now what was made of them."""
        if not self._come:
            return
        needed = self._needed()
        over = [one for one in self._come if one not in needed]
        for one in over:
            del self._come[one]
        for aggregator in dict.fromkeys(one.aggregator for one in over):
            self.tell_oldest(aggregator)

    def tell_oldest(self, aggregator: str) -> None:
        """Tell an aggregator which of its sums are over, if that is known."""
        if not self._knows_all:
            return
        term, number = self._first_open(aggregator)
        self._state.effects.append(Send(Role.member(aggregator), msg.Assemble(self._state.term, 0, (), number, term)))

    def resume(self) -> None:
        """Tell all workers what is over, after a takeover: sums of whom this coordinator does not know."""
        self._knows_all = True
        self._come = self._needed()
        for name in self._state.roster.by_name:
            self.tell_oldest(name)

    def take_overdue(self) -> list[Expected]:
        """Return what should have come by now, expect it no longer, and suspect who was to sum it."""
        overdue = [one for one in self._expected.values() if one.due <= self._state.now]
        self._hosts.suspect(one.bundle.aggregator for one in overdue)
        return self._take(overdue)

    def take_broken(self, closed: set[int]) -> list[Expected]:
        """Return what cannot come any more, as its aggregator is gone or an offer is closed; expect it no longer."""
        roster = self._state.roster.by_name
        return self._take(
            [
                one
                for one in self._expected.values()
                if one.bundle.aggregator not in roster or not closed.isdisjoint(one.keys)
            ]
        )

    def take_all(self) -> list[Expected]:
        """Return everything that is expected, and expect nothing any more: another has taken over, until `resume`."""
        self._knows_all = False
        found, self._expected = list(self._expected.values()), {}
        return found

    @property
    def next_due(self) -> float:
        """When the next one is given up; infinity where none is expected."""
        return min((one.due for one in self._expected.values()), default=math.inf)

    def _first_open(self, aggregator: str) -> tuple[int, int]:
        """Return term and number of an aggregator's first bundle that some shard may still ask for, or of its next."""
        expected = (one.bundle for one in self._expected.values())
        known = [one for one in (*expected, *self._needed()) if one.aggregator == aggregator]
        return min(((one.term, one.number) for one in known), default=(self._state.term, self._last + 1))

    def _needed(self) -> dict[Bundle, None]:
        """Return the bundles that have come and that some shard may still ask for, in an order that is repeated."""
        come = (one.bundle for of in self._state.commit_logs for one in of.undecided_or_open())
        return dict.fromkeys(one for one in come if one is not None)

    def _take(self, found: list[Expected]) -> list[Expected]:
        for one in found:
            del self._expected[one.bundle.number]
            given_up = msg.Assemble(one.bundle.term, one.bundle.number, ())
            self._state.effects.append(Send(Role.member(one.bundle.aggregator), given_up))
        return found
