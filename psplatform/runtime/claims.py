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


async def offer(client: Client, program: Program, number: int) -> None:
    """Let term `number` of a run be claimed; done ahead, it spares whoever claims a call while everybody waits."""
    scheduler: Any = client.scheduler
    await scheduler.semaphore_register(name=_name(program, number), max_leases=1, lease_timeout=0)


async def claim(client: Client, program: Program, number: int, claimant: str) -> bool:
    """Claim term `number` of a run for `claimant`; return whether it has it.

    Asks until the scheduler answers: without it nobody can take over, and nobody has.
    """
    scheduler: Any = client.scheduler
    offered = False
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                if offered:
                    await offer(client, program, number)
                name = _name(program, number)
                return bool(await scheduler.semaphore_acquire(name=name, lease_id=claimant, timeout=0))
        except (OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)
        except RuntimeError:  # nobody has offered it
            if offered:
                raise
            offered = True


def _name(program: Program, number: int) -> str:
    # A run that goes on from its store begins anew: what was claimed before it failed binds nobody.
    return key_of(program.run, program.term, f"term-{number}")
