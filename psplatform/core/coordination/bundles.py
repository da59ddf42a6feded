"""Which gradients are being summed on their way, and by whose process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from psplatform.core.coordination.hosts import Hosts
from psplatform.core.coordination.state import State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Role, Send
from psplatform.core.protocol.messages import Bundle
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
    """The sums that are expected, of which workers' processes."""

    def __init__(self, state: State, hosts: Hosts) -> None:
        self._state, self._hosts = state, hosts
        self._expected: dict[int, Expected] = {}

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
        term, number = self._first_open()
        assemble = msg.Assemble(bundle.term, bundle.number, contributions, number, term)
        state.effects.append(Send(Role.member(bundle.aggregator), assemble))

    def take(self, bundle: Bundle) -> Expected | None:
        """Return what is expected under that name, if it is, and expect it no longer."""
        found = self._expected.get(bundle.number)
        return self._expected.pop(bundle.number) if found is not None and found.bundle == bundle else None

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
        """Return everything that is expected, and expect nothing any more."""
        found, self._expected = list(self._expected.values()), {}
        return found

    @property
    def next_due(self) -> float:
        """When the next one is given up; infinity where none is expected."""
        return min((one.due for one in self._expected.values()), default=math.inf)

    def _first_open(self) -> tuple[int, int]:
        """Return term and number of the first bundle that some shard may still ask for."""
        expected = [one.bundle for one in self._expected.values()]
        come = [one.bundle for of in self._state.commit_logs for one in of.undecided_or_open()]
        return min((one.term, one.number) for one in (*expected, *come) if one is not None)

    def _take(self, found: list[Expected]) -> list[Expected]:
        for one in found:
            del self._expected[one.bundle.number]
            given_up = msg.Assemble(one.bundle.term, one.bundle.number, ())
            self._state.effects.append(Send(Role.member(one.bundle.aggregator), given_up))
        return found
