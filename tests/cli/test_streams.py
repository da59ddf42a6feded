"""Standard error is only for people, and a command goes on without it; a result that cannot be written is a failure.

In processes of their own, whose streams are full, closed, or pipes that are not read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from psplatform.replication.stores.store import create_run

RUN = """
import sys, types
from psplatform.client import launch
from psplatform.cli.main import main
from tests.cli.conftest import FakeRun

def train(job, client=None, *, report):
    report("starting servers")
    return FakeRun(steps=("one", "two"))

launch.train = train
sys.argv[0] = "psplatform"
main()
"""
TRAIN = ("-c", RUN, "train", "mlp", "-w", "samples=100", "--store", "run.zarr")
POLICIES = ("-m", "psplatform", "policies")
FULL = "cannot write to standard output (No space left on device)"
HAS_FULL = Path("/dev/full").exists()

Streams = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Streams:
    """Run Python with arguments and redirections of a shell in a folder of the test's own."""
    root = str(Path(__file__).parents[2])

    def run(arguments: tuple[str, ...], redirections: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f'"$@" {redirections}', "bash", sys.executable, *arguments]
        environment = {**os.environ, "PYTHONPATH": root}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run


needs_full = pytest.mark.skipif(not HAS_FULL, reason="the system has no /dev/full")
BROKEN = [
    pytest.param("2>/dev/full", id="full", marks=needs_full),
    pytest.param("2>&-", id="closed"),
    pytest.param("2> >(exec true)", id="unread"),
]


@pytest.mark.parametrize("redirection", BROKEN)
def test_a_training_goes_on_without_a_standard_error(shell: Streams, redirection: str) -> None:
    """The process of a pipe that is not read is over before Python has loaded what trains."""
    done = shell((*TRAIN, "--json"), redirection)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1])["outcome"] == "updates"


@pytest.mark.parametrize("redirection", BROKEN)
def test_a_store_is_verified_without_a_standard_error(shell: Streams, tmp_path: Path, redirection: str) -> None:
    create_run(str(tmp_path / "run.zarr"), {"run": "digits-bsp-1a2b3c"})
    done = shell(("-m", "psplatform", "runs", "run.zarr", "--verify"), redirection)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all that is there is as it was written" in done.stdout


@pytest.mark.parametrize("redirection", BROKEN)
def test_a_command_that_is_refused_is_refused_without_a_standard_error(shell: Streams, redirection: str) -> None:
    for arguments in (("train", "mlp", "--policy", "nosuch"), ("trian",)):
        done = shell(("-m", "psplatform", *arguments), redirection)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_what_standard_error_takes_again_is_shown(shell: Streams) -> None:
    """Only what could not be written is lost; here the stream is given another place meanwhile."""
    code = (
        "import os, sys; from psplatform.cli.terminal import guard_streams, say; said = os.dup(2); guard_streams();"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 2); say('lost', err=True);"
        "os.dup2(said, 2); say('shown', err=True)"
    )
    done = shell(("-c", code), "")
    assert (done.returncode, done.stderr) == (0, "shown\n")


def test_no_file_takes_the_place_of_a_closed_stream(shell: Streams) -> None:
    """A child process would write to it."""
    code = (
        "from psplatform.cli.terminal import guard_streams; guard_streams(); file = open('file', 'w');"
        "assert file.fileno() > 2; import subprocess;"
        "subprocess.run(['sh', '-c', 'echo out; echo err >&2'], check=True)"
    )
    done = shell(("-c", code), "<&- >&- 2>&-")
    assert done.returncode == 0


@needs_full
@pytest.mark.parametrize(
    "arguments", [POLICIES, (*POLICIES, "--json"), (*POLICIES, "--help"), ("-m", "psplatform", "runs", "."), TRAIN]
)
def test_a_result_that_cannot_be_written_fails_the_command_in_one_sentence(
    shell: Streams, arguments: tuple[str, ...]
) -> None:
    done = shell(arguments, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Error: {FULL}"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@needs_full
def test_nothing_can_be_said_where_neither_stream_can_be_written(shell: Streams) -> None:
    assert shell(POLICIES, ">/dev/full 2>/dev/full").returncode == 1


def test_a_reader_that_has_seen_enough_is_told_nothing(shell: Streams) -> None:
    done = shell(POLICIES, "| head -1; exit ${PIPESTATUS[0]}")
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")
    assert done.returncode in (0, 1)  # as the pipe takes all of it, or not
