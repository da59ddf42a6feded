"""Programs of the dashboard give way to training, in whichever session either of them was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from process_states import has_ended

from psplatform.dashboard import launcher, priority, server
from psplatform.dashboard.priority import lower_session, lower_session_soon
from psplatform.dashboard.settings import Settings

_LIMIT_S = 60.0

_LEADING = """
import os, pathlib, signal, sys, time
from psplatform.dashboard import priority

priority._GROUPS = pathlib.Path(sys.argv[1])
before = os.getpid()
priority.lead_session()
print(before, os.getpid(), os.getsid(0), flush=True)
{then}
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    """A kernel's word that it shares the processors among sessions."""
    said = tmp_path / "sched_autogroup_enabled"
    said.write_text("1\n")
    return said


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python programs, and end those that are left, with their children."""
    begun: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str, own_session: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # so that `input` waits
        one = subprocess.Popen(command, **pipes, text=True, start_new_session=own_session)
        begun.append(one)
        return one

    yield start
    for one in begun:
        one.terminate()
        one.communicate(timeout=_LIMIT_S)


def _said(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def _niceness(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])
    except (OSError, IndexError):
        pytest.skip("this kernel does not group sessions")


def test_the_session_of_a_program_gives_way_and_no_other(start: Start) -> None:
    waiting = "print(1, flush=True); input()"
    leader, member = start(waiting, own_session=True), start(waiting)
    _said(leader), _said(member)
    here = _niceness(member.pid)
    lower_session(leader.pid, 15)
    lower_session(member.pid, 15)
    assert (_niceness(leader.pid), _niceness(member.pid)) == (15, here)


def test_a_program_that_has_ended_is_left_alone(start: Start) -> None:
    ended = start("", own_session=True)
    ended.wait(_LIMIT_S)
    lower_session(ended.pid, 15)


def test_a_child_leads_a_session_of_its_own_and_its_exit_code_is_that_of_the_program(
    start: Start, grouped: Path
) -> None:
    program = start(_LEADING.format(then="sys.exit(7)"), str(grouped))
    before, pid, session = _said(program)
    assert before == program.pid
    assert pid == session != before
    assert program.wait(_LIMIT_S) == 7


@pytest.mark.parametrize("own_session", [True, False])
def test_no_child_is_made_where_it_would_change_nothing(start: Start, grouped: Path, *, own_session: bool) -> None:
    if not own_session:
        grouped.write_text("0\n")
    program = start(_LEADING.format(then=""), str(grouped), own_session=own_session)
    before, pid, _ = _said(program)
    assert before == pid == program.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_child(start: Start, grouped: Path, number: signal.Signals) -> None:
    # Many short pauses: a signal that comes just before a pause is heeded after it.
    wait = f"[time.sleep(0.01) for _ in range({int(_LIMIT_S / 0.01)})]"
    then = f"signal.signal({int(number)}, lambda *_: sys.exit(9)); print(0, flush=True); {wait}"
    heeded = f"import signal; signal.signal({int(number)}, signal.SIG_DFL)\n"  # under nohup one of them is ignored
    program = start(heeded + _LEADING.format(then=then), str(grouped))
    _said(program), _said(program)
    program.send_signal(number)
    assert program.wait(_LIMIT_S) == 9


def test_a_signal_that_ends_the_child_is_told_as_a_shell_does(start: Start, grouped: Path) -> None:
    program = start(_LEADING.format(then=f"time.sleep({_LIMIT_S})"), str(grouped))
    _, child, _ = _said(program)
    os.kill(child, signal.SIGKILL)
    assert program.wait(_LIMIT_S) == 128 + signal.SIGKILL


def test_a_signal_that_the_program_was_told_to_ignore_is_ignored(start: Start, grouped: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    program = start(ignoring + _LEADING.format(then="input(); sys.exit(4)"), str(grouped))
    _, child, _ = _said(program)
    program.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGHUP)
    program.send_signal(signal.SIGTERM)
    assert program.wait(_LIMIT_S) == 128 + signal.SIGTERM


def test_the_child_ends_when_the_program_is_killed(start: Start, grouped: Path) -> None:
    program = start(_LEADING.format(then=f"time.sleep({_LIMIT_S})"), str(grouped))
    _, child, _ = _said(program)
    program.kill()
    program.wait(_LIMIT_S)
    give_up_at = time.monotonic() + _LIMIT_S
    while not has_ended(child) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert has_ended(child)


def test_a_change_that_the_kernel_puts_off_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux takes one change of a session's niceness in 100 ms."""
    written: list[str] = []
    pauses: list[float] = []

    def write(path: Path, text: str, encoding: str) -> None:
        if len(pauses) < 3:
            raise BlockingIOError
        written.append(f"{path} {text}")

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr(os, "getsid", lambda leader: leader)
    monkeypatch.setattr(priority.time, "sleep", pauses.append)
    lower_session_soon(7, 10).join()
    assert written == ["/proc/7/autogroup 10"]
    assert min(pauses) > 0.1


def test_a_change_that_the_kernel_never_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def write(path: Path, text: str, encoding: str) -> None:
        raise BlockingIOError

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr(os, "getsid", lambda leader: leader)
    monkeypatch.setattr(priority.time, "sleep", pauses.append)
    lower_session(7, 10)
    assert 1 < len(pauses) < 100


def test_a_signal_after_the_childs_end_raises_nothing(start: Start, grouped: Path) -> None:
    """The program is about to end as the child did."""
    late = "whole = os.waitstatus_to_exitcode\n"
    late += "os.waitstatus_to_exitcode = lambda status: os.kill(os.getpid(), signal.SIGTERM) or whole(status)\n"
    program = start(_LEADING.replace("before =", f"{late}before =").format(then="sys.exit(7)"), str(grouped))
    _said(program)
    assert program.wait(_LIMIT_S) == 7


def test_the_program_and_its_child_are_paused_and_go_on_together(start: Start, grouped: Path) -> None:
    program = start(_LEADING.format(then=f"time.sleep({_LIMIT_S})"), str(grouped))
    both = _said(program)[:2]
    for number, paused in ((signal.SIGTSTP, True), (signal.SIGCONT, False)):
        program.send_signal(number)
        give_up_at = time.monotonic() + _LIMIT_S
        while [_is_paused(one) for one in both] != [paused] * 2 and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert [_is_paused(one) for one in both] == [paused] * 2


def _is_paused(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_pages_are_loaded_before_the_process_gives_way_and_served_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loaded at a low priority they would take a minute beside training on a busy machine."""
    bootstrap = pytest.importorskip("streamlit.web.bootstrap")
    order: list[str] = []
    for place, name in (
        (server, "_load_pages"),
        (server, "give_way"),
        (bootstrap, "run"),
        (server, "lead_session"),
        (server, "install"),
        (launcher, "begin"),
        (server, "require_port"),
        (bootstrap, "load_config_options"),
        (server.gc, "freeze"),
        (server.gc, "set_threshold"),
        (server.logging.getLogger("distributed"), "setLevel"),
    ):
        monkeypatch.setattr(place, name, lambda *_, name=name, **__: order.append(name))
    server.serve(Settings(folder=str(tmp_path)))
    told = [one for one in order if one in ("begin", "_load_pages", "give_way", "run")]
    assert told == ["begin", "_load_pages", "give_way", "run"]
