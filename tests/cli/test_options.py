"""The flags of commands say what the declarations behind them say, and are looked up when help is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.cli.options import CONDITION_FLAGS, JOB_FLAGS, Flag
from psplatform.core.parameters import parameters_of
from psplatform.core.plan import Stop

Command = Callable[..., Any]

REPORT = """
import sys
from click.testing import CliRunner
from psplatform.cli.main import cli
done = CliRunner().invoke(cli, sys.argv[1:])
assert done.exit_code == 0, done.output
print(*sorted({name.partition('.')[0] for name in sys.modules}))
"""


def loaded(*arguments: str) -> set[str]:
    """Name the top-level packages that a fresh process holds after a command."""
    done = subprocess.run([sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def told(psplatform: Command, command: str) -> str:
    """Return a command's help in one line."""
    return re.sub(r"\s+", " ", psplatform(command, "--help").output)


@pytest.mark.parametrize("flag", [*JOB_FLAGS, *CONDITION_FLAGS], ids=lambda flag: flag.flag)
def test_help_is_the_declarations(psplatform: Command, flag: Flag) -> None:
    text = flag.parameter.help.partition("; none: ")[0]
    assert text[1:] in told(psplatform, "simulate")
    assert flag.help() in told(psplatform, "simulate")


@pytest.mark.parametrize(
    "line",
    [
        "--shards S Parts the parameters are divided into, at most one for each of them. [1]",
        "--seed N Seed of everything random. [0]",
        "--workers N Gradient workers to start with. [all there are]",
        "--keep-checkpoints K Checkpoints that are kept, the newest ones; 0 where none is written. [3]",
        "--replication-source WHO Who sends updates to the copies: server or workers. [server]",
        "--target-loss X Stop when the evaluated loss is at most this.",
    ],
)
def test_a_flag_shows_what_holds_without_it(psplatform: Command, line: str) -> None:
    assert line in told(psplatform, "train")


def test_in_a_recovered_run_what_no_flag_speaks_of_stays(psplatform: Command) -> None:
    said = told(psplatform, "recover")
    assert "--shards S Parts the parameters are divided into, at most one for each of them. [as before]" in said
    assert "[0]" not in said
    assert "--optimizer" not in said


def test_every_condition_to_stop_has_a_flag() -> None:
    assert {flag.words for flag in JOB_FLAGS} >= {one.name for one in parameters_of(Stop)}


def test_the_list_of_commands_loads_no_declarations() -> None:
    assert not loaded("--help") & {"pydantic", "numpy", "torch", "dask", "distributed"}


@pytest.mark.parametrize("command", ["train", "simulate", "recover"])
def test_help_of_a_command_loads_neither_torch_nor_dask(command: str) -> None:
    assert not loaded(command, "--help") & {"torch", "dask", "distributed", "zarr"}
