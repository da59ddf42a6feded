"""Sums gradients of several workers on their way to the servers, so that these receive one instead of all.

Parts come straight from the workers, in any order, and perhaps before it is known what they are parts of.  As soon as
all of a bundle are here they are summed in the order that the coordinator says, whoever came first; and the sum is
sent to every server.  Nothing here has to survive: a worker keeps its gradient until its fate is decided, and sends it
again if the coordinator hears nothing of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import COORDINATOR, Effect, ForgetParts, Send, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Bundle, Contribution


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
        self._done: set[Bundle] = set()
        self._now = 0.0
        # Term of the coordinator that is obeyed, and the lowest number of its bundles that are not over.
        self._oldest = 0, 0

    @property
    def bundles(self) -> int:
        """Number of bundles of which something is kept here."""
        return len(self._open)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; what belongs to a bundle that is over changes nothing."""
        self._now = now
        return _HANDLERS[type(event)](self, event)

    def _on_assemble(self, message: msg.Assemble) -> list[Effect]:
        bundle = Bundle(self._member, message.term, message.number)
        forgotten = self._forget_before(message.term, message.oldest)
        if self._is_over(bundle):
            return forgotten
        if not message.gradients:
            self._done.add(bundle)
            return [*forgotten, ForgetParts(bundle)] if self._open.pop(bundle, None) is not None else forgotten
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
        self._done.add(event.bundle)
        ages_s = tuple(self._now - found.arrived[one.member, one.sequence] for one in found.gradients)
        return [ForgetParts(event.bundle), Send(COORDINATOR, msg.Bundled(event.bundle, event.push_s, ages_s))]

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        """Forget what other coordinators had summed: this one has all of it offered again."""
        return self._forget_before(message.term, 0)

    def _forget_before(self, term: int, number: int) -> list[Effect]:
        self._oldest = max(self._oldest, (term, number))
        self._done = {bundle for bundle in self._done if not self._precedes(bundle)}
        over = [bundle for bundle in self._open if self._precedes(bundle)]
        for bundle in over:
            del self._open[bundle]
        return [ForgetParts(bundle) for bundle in over]

    def _is_over(self, bundle: Bundle) -> bool:
        return bundle in self._done or self._precedes(bundle)

    def _precedes(self, bundle: Bundle) -> bool:
        return (bundle.term, bundle.number) < self._oldest


_HANDLERS: dict[type, Callable[[Aggregator, Any], list[Effect]]] = {
    msg.Assemble: Aggregator._on_assemble,
    msg.StateRequest: Aggregator._on_state_request,
    PartArrived: Aggregator._on_part,
    SumReachable: Aggregator._on_sum_reachable,
}

OWN: Final = frozenset(_HANDLERS) - {msg.StateRequest}
"""The events that are for the aggregator alone."""
