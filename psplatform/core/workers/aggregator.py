"""Sums gradients of several workers on their way to the servers, so that these receive one instead of all.

Parts come straight from the workers, in any order, and perhaps before it is known what they are parts of.  As soon as
all of a bundle are here they are summed in the order that the coordinator says, whoever came first; and the sum is
sent to every server, and kept until all of them show what was made of it, because one may be replaced before.  Nothing
here has to survive: a worker keeps its gradient until its fate is decided, and sends it again if the coordinator hears
nothing of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, ForgetParts, ForgetSum, Send, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.core.protocol.names import COORDINATOR


@dataclass(slots=True)
class _Open:
    """A bundle that is not summed yet: what it consists of, once that is known, and what has come of it."""

    gradients: tuple[Contribution, ...] = ()
    arrived: dict[tuple[str, int], float] = field(default_factory=dict)
    begun: bool = False

    @property
    def can_begin(self) -> bool:
        wanted = {(one.member, one.sequence) for one in self.gradients}
        return bool(wanted) and not self.begun and wanted <= self.arrived.keys()


class Aggregator:
    """What one worker's process does for others.

    Parameters
    ----------
    member
        The worker.
    """

    def __init__(self, member: str) -> None:
        self._member = member
        self._open: dict[Bundle, _Open] = {}
        # What was given up, and what was summed: of this the sums are kept.
        self._given_up: set[Bundle] = set()
        self._summed: set[Bundle] = set()
        self._now = 0.0
        self._term = 0
        # Term and number of the first bundle that is not over.
        self._oldest = 0, 0

    @property
    def bundles(self) -> int:
        """Number of bundles of which parts are kept here."""
        return len(self._open)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; what belongs to a bundle that is over changes nothing."""
        self._now = now
        return _HANDLERS[type(event)](self, event)

    def _on_assemble(self, message: msg.Assemble) -> list[Effect]:
        bundle = Bundle(self._member, message.term, message.number)
        self._oldest = max(self._oldest, (message.oldest_term, message.oldest))
        forgotten = self._forget(message.term)
        if not message.gradients:
            return forgotten if message.term < self._term else [*forgotten, *self._give_up(bundle)]
        if self._is_over(bundle):
            return forgotten
        found = self._open.setdefault(bundle, _Open())
        found.gradients = message.gradients
        return forgotten + self._sum_up(bundle, found)

    def _on_part(self, event: PartArrived) -> list[Effect]:
        if self._is_over(event.bundle):
            return [ForgetParts(event.bundle)]
        found = self._open.setdefault(event.bundle, _Open())
        found.arrived.setdefault((event.member, event.sequence), self._now)
        return self._sum_up(event.bundle, found)

    def _sum_up(self, bundle: Bundle, found: _Open) -> list[Effect]:
        if not found.can_begin:
            return []
        found.begun = True
        return [SumUp(bundle, found.gradients)]

    def _on_sum_reachable(self, event: SumReachable) -> list[Effect]:
        found = self._open.pop(event.bundle, None)
        if found is None:
            return []
        self._summed.add(event.bundle)
        ages_s = tuple(self._now - found.arrived[one.member, one.sequence] for one in found.gradients)
        return [ForgetParts(event.bundle), Send(COORDINATOR, msg.Bundled(event.bundle, event.push_s, ages_s))]

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        """Forget what other coordinators would have had summed: this one has all of it offered again.

        Not what has been summed, because commits that it goes on with may be of that.
        """
        return self._forget(message.term)

    def _forget(self, term: int) -> list[Effect]:
        """Obey the coordinator of that term, if no later one was heard; forget what is over."""
        self._term = max(self._term, term)
        effects: list[Effect] = []
        for bundle in [one for one in self._open if self._precedes(one)]:
            effects += self._give_up(bundle)
        shown = [bundle for bundle in self._summed if self._is_shown(bundle)]
        self._summed.difference_update(shown)
        self._given_up = {one for one in self._given_up if not self._precedes(one)}
        return effects + [ForgetSum(bundle) for bundle in sorted(shown, key=_age)]

    def _give_up(self, bundle: Bundle) -> list[Effect]:
        found = self._open.pop(bundle, None)
        if not self._precedes(bundle):
            self._given_up.add(bundle)
        if bundle in self._summed:
            self._summed.remove(bundle)
            return [ForgetSum(bundle)]
        if found is None:
            return []
        return [ForgetSum(bundle), ForgetParts(bundle)] if found.begun else [ForgetParts(bundle)]

    def _is_over(self, bundle: Bundle) -> bool:
        return bundle in self._given_up or bundle in self._summed or self._precedes(bundle)

    def _precedes(self, bundle: Bundle) -> bool:
        return bundle.term < self._term or self._is_shown(bundle)

    def _is_shown(self, bundle: Bundle) -> bool:
        return _age(bundle) < self._oldest


def _age(bundle: Bundle) -> tuple[int, int]:
    return bundle.term, bundle.number


_HANDLERS: dict[type, Callable[[Aggregator, Any], list[Effect]]] = {
    msg.Assemble: Aggregator._on_assemble,
    msg.StateRequest: Aggregator._on_state_request,
    PartArrived: Aggregator._on_part,
    SumReachable: Aggregator._on_sum_reachable,
}

OWN: Final = frozenset(_HANDLERS) - {msg.StateRequest}
"""The events that are for the aggregator alone."""
