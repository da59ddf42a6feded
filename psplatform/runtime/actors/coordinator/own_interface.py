"""What the interface of the coordinator's own host carries: a server's, most of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.addresses import host_of
from psplatform.core.protocol.messages import Carried
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.workers.counting import COUNTING, Counting
from psplatform.runtime.comms.interfaces import counter_of
from psplatform.runtime.comms.timers import LoopTimers


class OwnInterface:
    """Tells a coordinator what the interface of its host carries, as long as others tell that of theirs.

    Parameters
    ----------
    address
        Of this process.
    clock
        Returns the run's time, in seconds.
    feed
        Takes what is to be said to the coordinator.
    """

    def __init__(self, address: str, clock: Callable[[], float], feed: Callable[[Any], None]) -> None:
        self._clock, self._feed = clock, feed
        host = host_of(address)
        read = counter_of(host)
        self._counting = Counting(COORDINATOR.kind, host, read) if read is not None else None
        self._timers = LoopTimers(clock, self._fire)

    def note(self, event: Any) -> None:
        """Begin to count, if the coordinator has just been told what another host carries."""
        if self._counting is not None and isinstance(event, Carried) and event.source != COORDINATOR.kind:
            self._count_at(self._counting.wake(self._clock()))

    def close(self) -> None:
        """Count no more."""
        self._timers.close()

    def _fire(self, tag: str) -> None:
        if self._counting is not None:
            at, said = self._counting.go_on(self._clock())
            self._count_at(at)
            if said is not None:
                self._feed(said)

    def _count_at(self, at: float | None) -> None:
        if at is not None:
            self._timers.set(COUNTING, at)
