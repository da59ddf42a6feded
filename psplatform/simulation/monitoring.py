"""What monitors tell of a simulated network: the rates of all interfaces, some seconds late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psplatform.network.counters import Count
from psplatform.network.rates import Rates
from psplatform.network.sightings import Sighting
from psplatform.network.state import Interface, NetworkState
from psplatform.simulation.network import Network


@dataclass(frozen=True, slots=True)
class Reports:
    """`psplatform.network.planner.Knowledge` of monitors on every host.

    Parameters
    ----------
    network
        What they look at.
    lag_s
        Seconds by which what is known is older than now.
    """

    network: Network
    lag_s: float

    def observe(self, seen: Sighting) -> None:
        """Learn nothing: monitors know more."""

    def count(self, count: Count, now: float, ways: Iterable[tuple[str, str]] = ()) -> None:
        """Learn nothing here either."""

    def state(
        self, hosts: Iterable[str], now: float, running: Iterable[Sighting] = (), beside: Iterable[Sighting] = ()
    ) -> NetworkState:
        """Return what the interfaces of these hosts could carry when they were last heard of, with nothing reserved."""
        then = max(0.0, now - self.lag_s)
        return NetworkState(
            {
                host: Interface(*(Rates.steady(rate, now) for rate in self.network.capacity(host, then)))
                for host in hosts
            }
        )
