"""What can be done to a Dask worker's process on purpose, from within it: the caller may be on another host."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Final, cast

from psplatform.runtime.timeouts import TIMEOUTS

_READY: Final = "ready\n"

# A program of its own, which nothing but SIGKILL ends before the process goes on.  It knows the process by a handle of
# the kernel's, so that no other which gets the same number later is meant.
_HELPER: Final = f"""
import os, signal, sys, time
for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(ignored, signal.SIG_IGN)
process = os.pidfd_open(int(sys.argv[1]))
sys.stdout.write({_READY!r})
sys.stdout.flush()
sys.stdin.read()
try:
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    time.sleep(float(sys.argv[2]))
    signal.pidfd_send_signal(process, signal.SIGCONT)
except ProcessLookupError:
    pass
"""


def kill_this_process() -> None:
    """End this process at once, by SIGKILL: nothing in it is told."""
    os.kill(os.getpid(), signal.SIGKILL)


def pause_this_process(seconds: float) -> int:
    """Stop this process, by SIGSTOP, as soon as it has returned its process id; it goes on after `seconds`.

    That is seen to by a process in a session of its own, which outlives this one and the caller.  Must be called on
    the event loop that sends the answer.

    Raises
    ------
    OSError
        If that process cannot be started, or processes have no handles on this system.
    """
    command = [sys.executable, "-I", "-S", "-c", _HELPER, str(os.getpid()), str(seconds)]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    helper = subprocess.Popen(  # noqa: S603  our own interpreter, and two numbers
        command, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True, cwd="/", text=True
    )
    # Whenever it ends, it leaves no zombie.
    threading.Thread(target=helper.wait, name="psplatform-pause", daemon=True).start()
    said, order = cast("IO[str]", helper.stdout), cast("IO[str]", helper.stdin)
    with said:
        ready = said.readline() == _READY
    if not ready:
        order.close()
        raise OSError("no process could be started that lets this one go on; handles of processes need Linux 5.3")
    asyncio.get_running_loop().call_later(TIMEOUTS.reply_s, order.close)
    return os.getpid()
