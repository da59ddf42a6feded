"""A port for a server that is started in a moment, by another process."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from secrets import SystemRandom
from typing import Final

_LOCALHOST: Final = "127.0.0.1"
_LOWEST: Final = 10000
"""Below it are the ports that well-known servers have."""

_USUAL_LOWEST_EPHEMERAL: Final = 32768
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 20


def free_port() -> int:
    """Return a port of this host that nothing listens at, below the ephemeral ones if there is any.

    The system assigns ephemeral ports to connections and to listeners that leave the choice to it; it would assign such
    a port to another process before the server is there.
    """
    found = _first_free(_candidates())
    return _system_choice() if found is None else found


def _candidates() -> list[int]:
    """Draw ports below the ephemeral ones, whatever `random` was seeded with: processes must not draw the same."""
    there = range(_LOWEST, _lowest_ephemeral())
    return SystemRandom().sample(there, min(_TRIES, len(there)))


def _lowest_ephemeral() -> int:
    try:
        return int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_LOWEST_EPHEMERAL


def _first_free(ports: Iterable[int]) -> int | None:
    return next((port for port in ports if _can_be_bound(port)), None)


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((_LOCALHOST, port))
        except OSError:
            return False
    return True


def _system_choice() -> int:
    with socket.socket() as probe:
        probe.bind((_LOCALHOST, 0))
        port: int = probe.getsockname()[1]
    return port
