"""Numbers that can be claimed once: a semaphore of one lease on the scheduler, which never expires.

Claiming again under the same name gives the same answer, so a claim whose answer was lost can be repeated.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from distributed import Client

from psplatform.runtime.hosting import key_of
from psplatform.runtime.program import Program

_PAUSE_S: Final = 0.2
_ANSWER_S: Final = 5.0


async def claim(client: Client, program: Program, number: int, claimant: str) -> bool:
    """Claim term `number` of a run for `claimant`; return whether it has it.

    Asks until the scheduler answers: without it nobody can take over, and nobody has.
    """
    # A run that goes on from its store begins anew: what was claimed before it failed binds nobody.
    name = key_of(program.run, program.term, f"term-{number}")
    scheduler: Any = client.scheduler
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await scheduler.semaphore_register(name=name, max_leases=1, lease_timeout=0)
                return bool(await scheduler.semaphore_acquire(name=name, lease_id=claimant, timeout=0))
        except (OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)
