"""A standby: executes what its state machine asks for until it takes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.effects import Claim, Depart, Send, TakeOver
from psplatform.core.supervision.standby import Standby


class StandbyNode:
    """Executes the effects of one standby, in their order.

    Parameters
    ----------
    standby
        The state machine.
    clock
        Returns the time by which it measures leases, in seconds.
    send
        Takes what it says to the coordinator.
    claim
        Takes claims of numbers; `Claimed` answers.
    take_over
        Makes it the coordinator.
    depart
        Takes the reason for which it goes away.
    """

    def __init__(
        self,
        standby: Standby,
        clock: Callable[[], float],
        *,
        send: Callable[[Send], None],
        claim: Callable[[Claim], None],
        take_over: Callable[[], None],
        depart: Callable[[str], None],
    ) -> None:
        self.standby = standby
        self._clock = clock
        self._table: dict[type, Callable[[Any], None]] = {
            Send: send,
            Claim: claim,
            TakeOver: lambda effect: take_over(),
            Depart: lambda effect: depart(effect.reason),
        }

    def feed(self, event: Any) -> None:
        """Hand an event to the standby, and execute what it answers."""
        for effect in self.standby.handle(event, self._clock()):
            self._table[type(effect)](effect)
