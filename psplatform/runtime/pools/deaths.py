"""Of what the process of a Dask worker died, as far as its nanny and its scheduler tell.

A nanny waits for the process that it started and writes into its log how that ended.  Dask answers with that log
whenever it is asked, so nothing has to be installed before.  Nannies of one program share a log: what is said there is
told apart by the process id.  A nanny writes nothing of exit code 0, and nothing at all where the log level of
`distributed` is above INFO.  If it still answers, the scheduler's events decide: a Dask worker that closes in good
order announces that there, one that died by itself does not.

Nothing is known where the nanny has ended too, and where there is none: `dask worker --no-nanny` announces nothing when
it is asked to end, and leaves only the output of its terminal.  Such an end is not taken for the user's mistake.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from distributed import Client

from psplatform.errors import ClusterError, ProcessDied, PsplatformError
from psplatform.runtime.cluster import left_unannounced
from psplatform.runtime.comms.calls import Peer, is_dead
from psplatform.runtime.timeouts import TIMEOUTS

_ENTRIES: Final = 1000
"""Of the newest entries in a nanny's log: a program may have hundreds of nannies, each of which writes a few lines."""

_ENDED: Final = re.compile(
    r"Worker process (\d+) (?:was killed by (?:signal (\d+)|unknown signal)|exited with status (\d+))"
)
_UNKNOWN_SIGNAL: Final = "255"
"""A nanny writes "unknown signal" of exit code 255, which ``os._exit(-1)`` gives too."""

_TOO_LARGE: Final = re.compile(r"\(pid=(\d+)\) exceeded (\d+)% memory budget")

_IN_WORDS: Final = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGILL: "illegal instruction",
    signal.SIGFPE: "arithmetic error",
    signal.SIGABRT: "abort",
    signal.SIGKILL: "most likely by the kernel, because memory ran out",
}
_SMALLER: Final = "take a smaller batch_size or more micro_batches"
_SAYS_NOTHING: Final = "without a word (exit code 0, or a log level above INFO hides how)"
_AGAIN: Final = "start the run again; if it happens again, look at the output of its `dask worker`"
_EXITS: Final = "look for what calls os._exit or exit in the model, loss, step and data, or in their libraries"
_LINE: Final = "one gradient under `python -X faulthandler` shows the line"


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended.

    Attributes
    ----------
    pid
        Its process id, ``None`` where that was not known.
    code
        Its exit code, negative for the signal that killed it; ``None`` where nothing tells.
    over_percent
        Per cent of its memory limit above which its nanny ended it; 0 where it did not.
    has_nanny
        Whether a nanny could have told more: it says nothing of a process that ends in good order, or if it ended too.
    unannounced
        Whether its nanny goes on and its scheduler saw it leave without notice: it died by itself, whatever its code.
    """

    address: str
    pid: int | None
    code: int | None = None
    over_percent: int = 0
    has_nanny: bool = False
    unannounced: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the process was asked to end from outside, or nothing shows that it was not."""
        if self.code is None:
            return not (self.unannounced or self.over_percent)
        return self.code == -signal.SIGTERM and not self.over_percent

    @property
    def kind(self) -> str:
        """What ended it, in a word or two."""
        if self.over_percent:
            return "memory limit"
        if self.code is None:
            return "unknown"
        return f"exit code {self.code}" if self.code >= 0 else _signal_name(-self.code)

    def __str__(self) -> str:
        who = self.address if self.pid is None else f"{self.address} (process {self.pid})"
        if self.over_percent:
            return f"{who} was ended by its nanny for using more than {self.over_percent} % of its memory limit"
        if self.code is None:
            return f"{who} ended" + (f" {_SAYS_NOTHING}" if self.unannounced else "")
        if self.code >= 0:
            return f"{who} ended with exit code {self.code}"
        number = -self.code
        words = {int(one): text for one, text in _IN_WORDS.items()}.get(number)
        return f"{who} was killed by {_signal_name(number)}" + (f" ({words})" if words else "")

    @property
    def remedy(self) -> str:
        """What its user can do."""
        if self.over_percent:
            return f"start Dask workers with a larger --memory-limit, or {_SMALLER}"
        if self.code is None:
            return self._remedy_of_unknown()
        if self.code == -signal.SIGKILL:
            return f"give it more memory, or {_SMALLER}; the kernel's log (`dmesg`) says whether that was it"
        if self.is_ordered:
            return _AGAIN
        return _EXITS if self.code >= 0 else f"it happened in compiled code: {_LINE}"

    def _remedy_of_unknown(self) -> str:
        if self.unannounced:
            return f"{_EXITS}, or start Dask workers with DASK_LOGGING__DISTRIBUTED=info, which shows how they end"
        if self.has_nanny:
            return _AGAIN
        said = "it was asked to end or it crashed, and it has no nanny that could tell"
        return f"{said}: look at the output of its `dask worker`, and start the run again"


def died(death: Death, doing: str) -> PsplatformError:
    """Return the error that says that a process ended while it was `doing` something in the user's code."""
    said = f"{death} while {doing}; {death.remedy}"
    if death.is_ordered:
        return ClusterError(said, peer=death.address)
    return ProcessDied(said, kind=death.kind, peer=death.address, pid=death.pid, code=death.code)


async def death_of(client: Client, address: str, nanny: str, pid: int | None) -> Death | None:
    """Return how the process of the Dask worker at `address` ended; ``None`` where it cannot be seen to have ended.

    Parameters
    ----------
    nanny
        Address of its nanny, "" where it has none.
    """
    deadline = asyncio.get_running_loop().time() + TIMEOUTS.death_s
    known = bool(nanny) and pid is not None
    said: list[str] = []
    while asyncio.get_running_loop().time() < deadline:
        if known and pid is not None:
            try:
                entries = await asyncio.wait_for(client.rpc(nanny).get_logs(n=_ENTRIES), TIMEOUTS.death_ask_s)
            except (OSError, TimeoutError, RuntimeError):
                known = False
            else:
                said = [text for _, text in entries]
                death = read_log(said, address, pid)
                if death is not None:
                    return death
        elif await is_dead(Peer(address, "")):
            break
        await asyncio.sleep(TIMEOUTS.death_look_s)
    if not await is_dead(Peer(address, "")):
        return None
    if known and pid is not None and (death := read_log(said, address, pid, ended=True)) is not None:
        return death
    unannounced = known and await left_unannounced(client, address, TIMEOUTS.death_ask_s)
    return Death(address, pid, has_nanny=bool(nanny), unannounced=unannounced)


def read_log(entries: Sequence[str], address: str, pid: int, *, ended: bool = False) -> Death | None:
    """Return what the log of a nanny says of the end of process `pid`; ``None`` if it says nothing of it.

    Parameters
    ----------
    ended
        Whether that process is known to have ended: then a warning before its end counts, too.
    """
    code, over_percent = None, 0
    for text in entries:
        end, large = _ENDED.search(text), _TOO_LARGE.search(text)
        if end is not None and int(end[1]) == pid and code is None:
            code = -int(end[2]) if end[2] else int(end[3] or _UNKNOWN_SIGNAL)
        elif large is not None and int(large[1]) == pid:
            over_percent = int(large[2])
    told = code is not None or (ended and over_percent)
    return Death(address, pid, code, over_percent, has_nanny=True) if told else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
