"""Of what the process of a Dask worker died, as far as its nanny tells.

A nanny waits for the process that it started and writes into its log how that ended.  Dask answers with that log
whenever it is asked, so nothing has to be installed before.  Nannies of one program share a log: what is said there is
told apart by the process id.  A Dask worker without a nanny leaves nothing but the output of its terminal.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.errors import ClusterError, ProcessDied, PsplatformError
from psplatform.runtime.calls import Connect, Peer, is_dead

_WAIT_S: Final = 5.0
"""For a nanny to see that its process has ended, and for the kernel to end one that is about to."""

_ASK_S: Final = 2.0
_LOOK_S: Final = 0.1
_ENTRIES: Final = 1000
"""Of the newest entries in a nanny's log: a program may have hundreds of nannies, each of which writes a few lines."""

_ENDED: Final = re.compile(r"Worker process (\d+) (?:was killed by signal (\d+)|exited with status (\d+))")
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
    """

    address: str
    pid: int | None
    code: int | None = None
    over_percent: int = 0
    has_nanny: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the process was asked to end from outside, or nothing shows that it was not."""
        if self.code is None:
            return self.has_nanny
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
            return f"{who} ended" if self.has_nanny else f"{who} died"
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
        if self.code == -signal.SIGKILL:
            return f"give it more memory, or {_SMALLER}; the kernel's log (`dmesg`) says whether that was it"
        if self.is_ordered:
            return "start the run again; if it happens again, look at the output of its `dask worker`"
        if self.code is None:
            return "it has no nanny that could tell more: look at the output of its `dask worker`"
        if self.code >= 0:
            return "look for what calls os._exit or exit in the model, loss, step and data, or in their libraries"
        return f"it happened in compiled code: {_LINE}"


def died(death: Death, doing: str) -> PsplatformError:
    """Return the error that says that a process ended while it was `doing` something in the user's code."""
    said = f"{death} while {doing}; {death.remedy}"
    if death.is_ordered:
        return ClusterError(said, peer=death.address)
    return ProcessDied(said, kind=death.kind, peer=death.address, pid=death.pid, code=death.code)


async def death_of(connect: Connect, address: str, nanny: str, pid: int | None) -> Death | None:
    """Return how the process of the Dask worker at `address` ended; ``None`` where it cannot be seen to have ended.

    Parameters
    ----------
    nanny
        Address of its nanny, "" where it has none.
    """
    deadline = asyncio.get_running_loop().time() + _WAIT_S
    known = bool(nanny) and pid is not None
    while asyncio.get_running_loop().time() < deadline:
        if known and pid is not None:
            try:
                entries = await asyncio.wait_for(connect(nanny).get_logs(n=_ENTRIES), _ASK_S)
            except (OSError, TimeoutError, RuntimeError):
                known = False
            else:
                death = read_log([text for _, text in entries], address, pid)
                if death is not None:
                    return death
        elif await is_dead(Peer(address, "")):
            break
        await asyncio.sleep(_LOOK_S)
    return Death(address, pid, has_nanny=bool(nanny)) if await is_dead(Peer(address, "")) else None


def read_log(entries: Sequence[str], address: str, pid: int) -> Death | None:
    """Return what the log of a nanny says of the end of process `pid`; ``None`` if it has not seen that."""
    code, over_percent = None, 0
    for text in entries:
        ended, large = _ENDED.search(text), _TOO_LARGE.search(text)
        if ended is not None and int(ended[1]) == pid and code is None:
            code = -int(ended[2]) if ended[2] else int(ended[3])
        elif large is not None and int(large[1]) == pid:
            over_percent = int(large[2])
    return Death(address, pid, code, over_percent, has_nanny=True) if code is not None else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
