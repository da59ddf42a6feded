"""What the network interface of this host has carried, and what waits to go out."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from psplatform.core.workers.counting import Counted
from psplatform.runtime.comms.queues import waiting_at

_LOOPBACK = ("127.", "::1")


def counter_of(host: str) -> Callable[[], Counted] | None:
    """Return what reads the counters of an interface, or ``None`` where there is none.

    Parameters
    ----------
    host
        The address of the interface.  What this host sends to itself passes none.
    """
    if host.startswith(_LOOPBACK):
        return None
    found = (name for name, addresses in psutil.net_if_addrs().items() if any(one.address == host for one in addresses))
    name = next(found, None)
    if name is None or name not in psutil.net_io_counters(pernic=True, nowrap=False):
        return None

    waiting = waiting_at(name)

    def read() -> Counted:
        counted = psutil.net_io_counters(pernic=True, nowrap=False).get(name)
        sent, received = (counted.bytes_sent, counted.bytes_recv) if counted is not None else (0, 0)
        return Counted(sent, received, waiting() if waiting is not None else None)

    return read
