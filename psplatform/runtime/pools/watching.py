"""Noticing at once that a process has ended: calls to it break; before that, one of this host is seen to die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from psplatform.runtime.comms.calls import Connect, Peer, PeerLost, PeerSilent, call, is_dead
from psplatform.runtime.comms.processes import NotSeen, ProcessId, until_dying
from psplatform.runtime.timeouts import TIMEOUTS

ENDED: Final = "process ended"
"""The reason where it is certain that the whole process, with everybody in it, executes nothing any more."""

_PROBE_PAUSES_S: Final = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.08)
"""Between looks whether anybody listens at an address: mostly, the first or the second finds nobody."""

_TRIES: Final = 3
"""Calls that break in a row, in about half a second, after which a peer counts as lost even if something listens at its
address: another process may have taken it, or the actor may be gone."""


async def watch(connect: Connect, peer: Peer, on_lost: Callable[[str], None], process: ProcessId | None = None) -> None:
    """Call `on_lost` once, with the reason, when the peer's process or actor has ended; until then, go on.

    One that is stopped, or out of reach, is not noticed here: its lease runs out.  Where its `process` is known
    already, nothing is asked in the first second, in which a coordinator that has just taken over has other calls to
    make.
    """
    if process is not None and await _dies_at_once(process):
        on_lost(ENDED)
        return
    looks = [
        asyncio.create_task(_until_dying(connect, peer, process)),
        asyncio.create_task(_until_calls_break(connect, peer)),
    ]
    try:
        done, _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for look in looks:
            look.cancel()
    reasons = {look.result() for look in done}
    on_lost(ENDED if ENDED in reasons else reasons.pop())


async def _dies_at_once(process: ProcessId) -> bool:
    try:
        async with asyncio.timeout(TIMEOUTS.thread_s):
            await until_dying(process)
    except (TimeoutError, NotSeen):
        return False
    return True


async def _until_dying(connect: Connect, peer: Peer, process: ProcessId | None) -> str:
    """Return once the kernel ends the peer's process, if that can be seen from here; else wait for ever."""
    try:
        process = process or await call(connect, peer, "alive", 0.0, deadline_s=TIMEOUTS.identify_s)
        if process is not None:
            await until_dying(process)
            return ENDED
    except (PeerLost, NotSeen):
        pass  # calls to it break
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never


async def _until_calls_break(connect: Connect, peer: Peer) -> str:
    broken = 0
    if await is_dead(peer):  # a first call would try to connect until its deadline
        return "closed connection"
    while True:
        try:
            await call(connect, peer, "alive", TIMEOUTS.watch_s, deadline_s=TIMEOUTS.watch_s + TIMEOUTS.identify_s)
            broken = 0
        except PeerSilent:
            broken = 0
        except PeerLost as error:
            broken += 1
            # A connection may break for other reasons; a process that has ended refuses a new one.
            if await _ends(peer):
                return "closed connection"
            if broken >= _TRIES:
                return str(error)


async def _ends(peer: Peer) -> bool:
    """Whether nobody listens at the peer's address, now or very soon: a process closes one socket after the other."""
    for pause_s in _PROBE_PAUSES_S:
        if await is_dead(peer):
            return True
        await asyncio.sleep(pause_s)
    return False
