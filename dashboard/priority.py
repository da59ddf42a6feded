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
import time
from pathlib import Path
from typing import Final, NoReturn

_GROUPS: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")
_RELAYED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT)
_PAUSE_S: Final = 0.11
_TRIES: Final = 20
"""Of a change that Linux puts off; each pause is a little longer than it asks for."""

_PR_SET_PDEATHSIG: Final = 1


def give_way(niceness: int) -> None:
    """Lower the priority of this thread, of those that it starts, and of the session if this process leads it."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    lower_session(os.getpid(), niceness)


def lower_session(leader: int, niceness: int) -> None:
    """Lower the priority of the session that a process leads; one that leads none changes nothing.

    A kernel that does not group sessions, or a system that does not let it, is left as it is.  Linux takes one such
    change in 100 ms of all users together, so this may take some pauses.
    """
    with contextlib.suppress(OSError):
        for _ in range(_TRIES):
            if os.getsid(leader) != leader:
                return
            try:
                Path(f"/proc/{leader}/autogroup").write_text(str(niceness), encoding="ascii")
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            else:
                return


def lower_session_soon(leader: int, niceness: int) -> threading.Thread:
    """Lower the priority of the session that a process leads in a thread of its own, which is returned: it may wait."""
    thread = threading.Thread(target=lower_session, args=(leader, niceness), name="giving way", daemon=True)
    thread.start()
    return thread


def lead_session() -> None:
    """Return in a process that leads a session of its own, wherever a niceness counts within a session only.

    That is this process, if it leads its session, or else a child.  This process then passes signals on to the child,
    is paused and goes on with it, and ends as the child ends; the child ends if this process is killed.  To be called
    before threads are started.
    """
    if not _sessions_are_grouped() or os.getsid(0) == os.getpid():
        return
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    # Blocked signals wait until they are asked for: none comes between two steps and is missed.
    signals = {one for one in _RELAYED if signal.getsignal(one) is not signal.SIG_IGN}  # as nohup asks for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGCHLD})
    child = os.fork()
    if child:
        _stand_in_for(child, signals | {signal.SIGCHLD})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before this process asked to be told
        os._exit(1)


def _sessions_are_grouped() -> bool:
    try:
        return _GROUPS.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def _pause_with(child: int) -> None:
    """Stop the child and this process, as Ctrl-Z does; SIGCONT lets both go on.

    The child is told with SIGSTOP: without a parent in its session it would not hear of SIGTSTP.
    """
    os.kill(child, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def _stand_in_for(child: int, signals: set[signal.Signals]) -> NoReturn:
    """Pass the signals, which are blocked here, on to the child, and end as it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        number = signal.sigwait(signals)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
        elif number == signal.SIGTSTP:
            _pause_with(child)
        else:
            os.kill(child, number)  # it is there until it is waited for
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
