"""Noticing at once that a process has ended: a call that it never answers breaks when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from psplatform.runtime.calls import Connect, Peer, PeerLost, PeerSilent, call, is_dead

_POLL_S: Final = 20.0
_PROBE_PAUSES_S: Final = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.08)
"""Between looks whether anybody listens at an address: mostly, the first or the second finds nobody."""

_TRIES: Final = 3
"""Calls that break in a row, in about half a second, after which a peer counts as lost even if something listens at its
address: another process may have taken it, or the actor may be gone."""


async def watch(connect: Connect, peer: Peer, on_lost: Callable[[str], None]) -> None:
    """Call `on_lost` once, with the reason, when the peer's process or actor has ended; until then, go on.

    One that is stopped, or out of reach, is not noticed here: its lease runs out.
    """
    broken = 0
    if await is_dead(peer):  # a first call would try to connect until its deadline
        on_lost("closed connection")
        return
    while True:
        try:
            await call(connect, peer, "alive", _POLL_S, deadline_s=_POLL_S + 10.0)
            broken = 0
        except PeerSilent:
            broken = 0
        except PeerLost as error:
            broken += 1
            # A connection may break for other reasons; a process that has ended refuses a new one.
            if await _ends(peer) or broken >= _TRIES:
                on_lost("closed connection" if broken < _TRIES else str(error))
                return


async def _ends(peer: Peer) -> bool:
    """Whether nobody listens at the peer's address, now or very soon: a process closes one socket after the other."""
    for pause_s in _PROBE_PAUSES_S:
        if await is_dead(peer):
            return True
        await asyncio.sleep(pause_s)
    return False
