"""Commands that are started as programs of their own: found again, ended, and nothing is left of them."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from psplatform.client.runs.programs import KEPT, Program, programs, start
from psplatform.errors import ConfigurationError

Until = Callable[..., None]
LIMIT_S = 180.0
ENDLESS = ("simulate", "mlp", "-w", "samples=100", "--workers", "2", "--batch-size", "8", "--updates", "1000000000")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for programs; those that still run are ended with the test."""
    place = tmp_path / "programs"
    yield place
    for one in programs(place):
        one.kill()


@pytest.fixture
def finish(until: Until) -> Callable[[Program], int]:
    """Wait for a program's end; return its exit code."""

    def wait(program: Program) -> int:
        until(lambda: program.returncode is not None, "its exit code is known")
        assert not program.running
        code = program.returncode
        assert code is not None
        return code

    return wait


def test_a_command_is_run_and_what_it_said_is_kept(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(["policies", "--json"], folder)
    assert program.command == (sys.executable, "-m", "psplatform", "policies", "--json")
    assert finish(program) == 0
    found = program.result()
    assert found is not None
    assert "bsp" in str(found)
    assert programs(folder) == [program]


def test_a_command_that_fails_says_why(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(["train", "digits", "--policy", "nosuch"], folder)
    assert finish(program) == 2
    assert "unknown policy 'nosuch'" in program.output()
    assert program.output(lines=1) == program.output().splitlines()[-1]
    assert program.output(lines=0) == ""
    assert program.result() is None


def test_arguments_reach_no_shell(folder: Path, tmp_path: Path, finish: Callable[[Program], int]) -> None:
    program = start(["policies", f"; touch {tmp_path}/touched", "$(id)"], folder)
    assert finish(program) == 2
    assert not (tmp_path / "touched").exists()


def test_what_a_program_says_is_nobody_elses_to_read(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(["policies"], folder)
    finish(program)
    files = sorted(folder.iterdir())
    assert [one.suffix for one in files] == [".err", ".json", ".out"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_program_that_has_ended_is_no_zombie(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(["policies"], folder)
    finish(program)
    assert not Path(f"/proc/{program.process.pid}").exists()


def test_a_program_is_killed(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(ENDLESS, folder)
    assert program.running
    assert program.returncode is None
    assert program.kill()
    assert finish(program) == -signal.SIGKILL
    assert not program.kill()
    assert not program.interrupt()


STARTER = """
import signal, sys
from psplatform.client.runs.programs import start
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(start(sys.argv[2:], sys.argv[1]).process.pid)
"""


def test_a_program_outlives_who_started_it_and_is_found_and_interrupted(folder: Path, until: Until) -> None:
    """Although that one ignored the keyboard, as a program in the background does."""
    command = [sys.executable, "-c", STARTER, str(folder), *ENDLESS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    (program,) = programs(folder)
    assert program.process.pid == int(done.stdout)
    assert program.running
    assert os.getsid(program.process.pid) == program.process.pid
    until(lambda: "loading" in program.output() or "simulating" in program.output(), "it has begun")
    assert program.interrupt()
    until(lambda: not program.running, "it has ended")
    assert programs(folder) == [program]
    assert program.returncode is None, "nobody was told"


def test_a_process_that_has_the_number_of_one_before_is_another(folder: Path) -> None:
    program = start(ENDLESS, folder)
    assert program.running
    before = dataclasses.replace(program.process, began=program.process.began - 1)
    elsewhere = dataclasses.replace(program.process, host="another boot")
    for process in (before, elsewhere):
        other = dataclasses.replace(program, process=process)
        assert not other.running
        assert not other.kill()
    assert program.running


def test_the_newest_programs_are_kept_and_those_that_run(
    folder: Path, finish: Callable[[Program], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.client.runs.programs.KEPT", 2)
    running = start(ENDLESS, folder)
    short = [start(["policies", str(number)], folder) for number in range(2)]
    for one in short:
        finish(one)
    last = start(["policies"], folder)
    finish(last)
    assert programs(folder) == [last, short[1], running]
    assert len(list(folder.iterdir())) == 9, "three files of each, and nothing else"
    assert KEPT == 50


def test_what_is_no_record_is_left_out(folder: Path, finish: Callable[[Program], int]) -> None:
    program = start(["policies"], folder)
    finish(program)
    (folder / "torn.json").write_text('{"command": [')
    (folder / "foreign.json").write_text('{"command": ["x"], "process": 7}')
    assert programs(folder) == [program]


def test_where_nothing_was_started_there_are_no_programs(tmp_path: Path) -> None:
    assert programs(tmp_path / "nowhere") == []


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot start -m psplatform policies .*choose another folder"):
        start(["policies"], tmp_path / "file" / "folder")
    with pytest.raises(ConfigurationError, match="null byte"):
        start(["policies", "\0"], tmp_path / "folder")
