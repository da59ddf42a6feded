"""Numbers that can be claimed once: a semaphore of one lease on the scheduler, which never expires.

The coordinator that appoints a standby makes the number of its term known before the standby can exist.  Whoever claims
a number makes nothing: one that the scheduler does not know belongs to a run that is over, whose numbers are forgotten
with it (`psplatform.runtime.publication.withdraw`).  So a process that was stopped when its run ended, and wakes up
later, is granted nothing, although the scheduler keeps nothing of the run.

Claiming again under the same name gives the same answer, so a claim whose answer was lost can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from distributed import Client

from psplatform.runtime.hosting import key_of
from psplatform.runtime.program import Program

_PAUSE_S: Final = 0.2
_ANSWER_S: Final = 5.0
_UNKNOWN: Final = "not known"
"""What Dask's error says of a semaphore that nobody has made, or that was closed."""


async def offer(client: Client, program: Program, number: int) -> None:
    """Let term `number` of a run be claimed; asks until the scheduler answers."""
    scheduler: Any = client.scheduler
    name = _name(program, number)
    await _answered(lambda: scheduler.semaphore_register(name=name, max_leases=1, lease_timeout=0))


async def claim(client: Client, program: Program, number: int, claimant: str) -> bool:
    """Claim term `number` of a run for `claimant`; return whether it has it.

    Asks until the scheduler answers: without it nobody can take over, and nobody has.
    """
    scheduler: Any = client.scheduler
    name = _name(program, number)
    try:
        return bool(await _answered(lambda: scheduler.semaphore_acquire(name=name, lease_id=claimant, timeout=0)))
    except RuntimeError as error:
        if _UNKNOWN in str(error):
            return False  # the run is over
        raise


async def _answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await ask()
        except (OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)


def _name(program: Program, number: int) -> str:
    # A run that goes on from its store begins anew: what was claimed before it failed binds nobody.
    return key_of(program.run, program.term, f"term-{number}")
