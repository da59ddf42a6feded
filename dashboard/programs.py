"""The programs that this dashboard has started: each a psplatform command of its own, that goes on without the page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from psplatform.client.runs import programs
from psplatform.client.runs.programs import Program
from psplatform.dashboard.launcher import launch
from psplatform.dashboard.priority import lower_session_soon
from psplatform.dashboard.settings import current


def start(arguments: Sequence[str], *, niceness: int = 0) -> Program:
    """Start a psplatform command as a program of its own; the nicer it is, the more it gives way to others.

    Raises
    ------
    ConfigurationError
        If it cannot be started.
    """
    folder = str(current().record_folder)
    program = launch(lambda: programs.start(arguments, folder))
    if niceness:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, program.process.pid, niceness)
        lower_session_soon(program.process.pid, niceness)
    return program


def started() -> list[Program]:
    """Return the programs that were started from here, the newest first, those of an earlier dashboard included."""
    found = programs.programs(str(current().record_folder))
    return sorted(found, key=lambda one: -one.started)


def arguments_of(program: Program) -> list[str]:
    """Return what comes after ``psplatform`` in a program's command."""
    command = list(program.command)
    return command[command.index("psplatform") + 1 :] if "psplatform" in command else command


def program_of(store: str) -> Program | None:
    """Return the program that trains or recovers the run in a store, if it was started from here and goes on."""
    for one in started():
        arguments = arguments_of(one)
        if store in arguments and arguments[0] in ("train", "recover") and one.running:
            return one
    return None


def stores() -> list[str]:
    """Return the stores of the runs that were started from here, whether they were written yet or not."""
    found = [arguments_of(one) for one in started()]
    return [one[one.index("--store") + 1] for one in found if one[:1] == ["train"] and "--store" in one[:-1]]
