"""Giving way: programs of the dashboard compute in the time that training on the same machine leaves.

A niceness orders the threads of one session only where the kernel shares the processors fairly among sessions first
(autogroups, see sched(7)).  There a program needs a session of its own, whose niceness is set as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final, NoReturn

_GROUPS: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")
_RELAYED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCONT)
_PR_SET_PDEATHSIG: Final = 1


def give_way(niceness: int) -> None:
    """Lower the priority of this thread, of those that it starts, and of the session if this process leads it."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    lower_session(os.getpid(), niceness)


def lower_session(leader: int, niceness: int) -> None:
    """Lower the priority of the session that a process leads; one that leads none changes nothing.

    A kernel that does not group sessions, or a system that does not let it, is left as it is.
    """
    with contextlib.suppress(OSError):
        if os.getsid(leader) == leader:
            Path(f"/proc/{leader}/autogroup").write_text(str(niceness), encoding="ascii")


def lead_session() -> None:
    """Return in a process that leads a session of its own, wherever a niceness counts within a session only.

    That is this process, if it leads its session, or else a child.  This process then passes signals on to the child,
    and ends as the child ends; the child ends if this process is killed.  To be called before threads are started.
    """
    if not _sessions_are_grouped() or os.getsid(0) == os.getpid():
        return
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        _stand_in_for(child)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before this process asked to be told
        os._exit(1)


def _sessions_are_grouped() -> bool:
    try:
        return _GROUPS.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def _stand_in_for(child: int) -> NoReturn:
    for number in _RELAYED:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks for
            signal.signal(number, lambda number, _frame: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
