"""What interfaces of hosts carry, as far as it is counted there, and what is believed of them."""

from __future__ import annotations

from typing import Final

from psplatform.core.coordination.state import State
from psplatform.core.protocol.messages import Carried
from psplatform.core.transfers import TransferPlanner

_CHANGED: Final = 1.25
"""What is believed is logged again when it is so many times more or less than what was logged."""

_UNKNOWN: Final = 1e12
"""Bytes per second that no interface has: nothing is known of one that is believed to."""


class Interfaces:
    """Tells the planner what interfaces carry, and logs what it believes of them; nothing where there is none."""

    def __init__(self, state: State, planner: TransferPlanner | None) -> None:
        self._state, self._planner = state, planner
        self._logged: dict[str, tuple[float, float]] = {}
        """By host, what was logged last."""

    def on_carried(self, message: Carried) -> None:
        """Learn what the interface of a host has carried lately."""
        if self._planner is None or self._state.stopping:
            return
        rates = self._planner.count(message, self._state.now)
        if max(rates) < _UNKNOWN and self._is_news(message.host, rates):
            self._logged[message.host] = rates
            self._state.log("rates", host=message.host, out=rates[0], into=rates[1])

    def _is_news(self, host: str, rates: tuple[float, float]) -> bool:
        before = self._logged.get(host)
        return before is None or any(
            max(new, old) > _CHANGED * min(new, old) for new, old in zip(rates, before, strict=True)
        )
