"""Numbers of standbys that can be claimed once: a semaphore of one lease on the scheduler, which never expires.

The coordinator that appoints a standby makes its number known before that can exist.  A claim makes nothing: a number
that the scheduler does not know belongs to a run that is over, whose numbers are forgotten with it
(`psplatform.runtime.comms.publication.withdraw`).  So a process that was stopped when its run ended, and wakes up
later, is granted nothing, although the scheduler keeps nothing of the run.

Claiming again under the same name gives the same answer, so a claim whose answer was lost can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from distributed import Client

from psplatform.core.protocol.events import Claimed, Consulted
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.comms.hosting import key_of
from psplatform.runtime.program import Program
from psplatform.runtime.timeouts import TIMEOUTS

_UNKNOWN: Final = "not known"
"""What Dask's error says of a semaphore that was never made, or that was closed."""

_Answer = TypeVar("_Answer")


class Candidate(Employer, Protocol):
    """The process of a coordinator of that `term`."""

    term: int

    def announce(self) -> None:
        """Let programs know whether another would take over."""


class Election:
    """What a coordinator asks of the scheduler, which is no part of the run: numbers, and whether it is heard."""

    def __init__(self, host: Candidate, client: Client) -> None:
        self._host = host
        self._client = client
        self._background = host.new_background()

    def claim(self, number: int) -> None:
        """Claim the number of a standby of this coordinator in the background."""
        self._background.do(self._claim(number))

    async def _claim(self, number: int) -> None:
        host = self._host
        granted = await claim(self._client, host.program, host.term, number, host.sender)
        host.feed(Claimed(number, granted))
        if granted:  # else another leads, and says so itself
            host.announce()

    def consult(self, number: int) -> None:
        """Ask the scheduler in the background whether it is there, until it answers."""
        self._background.do(self._consult(number))

    async def _consult(self, number: int) -> None:
        text = "neither the last replica nor the scheduler answers, so its server waits for one (on_isolation: wait)"
        note = {"kind": "note", "text": text}
        await consult(self._client, lambda: self._host.note({**note, "at": self._host.elapsed_s}))
        self._host.feed(Consulted(number))

    def close(self) -> None:
        """Ask nothing more."""
        self._background.close()


async def offer(client: Client, program: Program, term: int, number: int) -> None:
    """Let the number of a standby of the coordinator of `term` be claimed; asks until the scheduler answers."""
    name = _name(program, term, number)
    await _answered(client, lambda scheduler: scheduler.semaphore_register(name=name, max_leases=1, lease_timeout=0))


async def claim(client: Client, program: Program, term: int, number: int, claimant: str) -> bool:
    """Claim the number of a standby of the coordinator of `term` for `claimant`; return whether it has it.

    Asks until the scheduler answers: without it no standby can take over, and none has.
    """
    name = _name(program, term, number)
    try:
        return bool(
            await _answered(
                client, lambda scheduler: scheduler.semaphore_acquire(name=name, lease_id=claimant, timeout=0)
            )
        )
    except RuntimeError as error:
        if _UNKNOWN in str(error):
            return False  # the run is over
        raise


async def consult(client: Client, on_silence: Callable[[], None]) -> None:
    """Wait until the scheduler has answered anything; `on_silence` is called once if it does not within seconds."""
    telling = asyncio.get_running_loop().call_later(TIMEOUTS.scheduler_silent_s, on_silence)
    try:
        await _answered(client, lambda scheduler: scheduler.identity(n_workers=0))
    finally:
        telling.cancel()


async def _answered(client: Client, ask: Callable[[Any], Awaitable[_Answer]]) -> _Answer:
    while True:
        try:
            async with asyncio.timeout(TIMEOUTS.claim_s):
                if client.scheduler is not None:  # else Dask has given it up
                    return await ask(client.scheduler)
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(TIMEOUTS.claim_retry_s)


def _name(program: Program, term: int, number: int) -> str:
    # A run that goes on from its store begins anew: what was claimed before it failed binds nobody.
    return key_of(program.run, program.term, f"term-{term}-{number}")
