"""Hurting a run on purpose, to see it survive: the processes of its roles, killed or stopped for a while.

A process hosts whatever Dask has placed in it: two roles may share one, and so may two runs on the same cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from distributed import Client

from psplatform.client.clusters.connecting import ANSWER_S, ask
from psplatform.client.run import Run
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.runtime.actors.hurting import kill_this_process, pause_this_process
from psplatform.runtime.cluster import seen_by

Kind = Literal["worker", "server", "replica", "coordinator", "evaluator", "standby"]

SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 600.0

_ORDER_S: Final = 5.0
"""For a process to take an order; one that computes is not kept from it for as long."""

_GONE_S: Final = 15.0
"""For the scheduler to notice the end of a process: the kernel unmaps its memory first."""

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """A role of a run, and the address of the Dask worker that hosts it."""

    role: str
    kind: Kind
    address: str


def targets(run: Run) -> list[Target]:
    """Return the roles of a run that can be hurt now, in the order of their names.

    Raises
    ------
    ConfigurationError
        If the run is over.
    ClusterError
        If it is still starting, or its coordinator cannot be asked.
    """
    phase = run.status()["phase"]  # which also finds a coordinator that has taken over
    if phase == "over":
        raise ConfigurationError(f"run {run.run} is over; there is nothing left of it to hurt", field="run")
    if phase == "starting":
        raise ClusterError(f"run {run.run} is still starting; hurt it when it trains")
    roles, standing = run.roles(), run.standing()
    return [Target(role, _kind(role, standing), address) for role, address in sorted(roles.items())]


def kill(run: Run, role: str) -> int:
    """Kill the process that hosts a role of the run, by SIGKILL, and see that it is gone; return its process id.

    Raises
    ------
    ConfigurationError
        If the run is over, or has no such role; those it has are named.
    ClusterError
        If the process does not end, because it is stopped for example: then it ends when it goes on.
    """
    client, address = _reach(run, role)
    pid = _pid_at(client, address)
    if pid is None:
        raise ClusterError(f"the Dask worker {address} of {role} has just left; look again", peer=address)
    with contextlib.suppress(ClusterError):  # the process that takes this order does not answer
        ask(client, _run_there, address, kill_this_process, deadline_s=_ORDER_S + ANSWER_S)
    give_up_at = time.monotonic() + _GONE_S
    while _pid_at(client, address) == pid:
        if time.monotonic() > give_up_at:
            text = f"the process {pid} of {role} at {address} does not end; if it is stopped, it will when it goes on"
            raise ClusterError(text, peer=address)
        time.sleep(_LOOK_S)
    return pid


def pause(run: Run, role: str, seconds: float) -> int:
    """Stop the process that hosts a role of the run, by SIGSTOP; return its process id.

    After `seconds` it goes on, by SIGCONT, whatever becomes of this program: a process beside it sees to that.

    Parameters
    ----------
    seconds
        1 to 600.

    Raises
    ------
    ConfigurationError
        If `seconds` is out of range, the run is over, or it has no such role; those it has are named.
    ClusterError
        If the process does not answer, because it is stopped already for example.
    """
    if not SHORTEST_PAUSE_S <= seconds <= LONGEST_PAUSE_S:
        text = f"a pause takes {SHORTEST_PAUSE_S:g} to {LONGEST_PAUSE_S:g} seconds, not {seconds:g}"
        raise ConfigurationError(text, field="seconds")
    client, address = _reach(run, role)
    pid: int = ask(client, _run_there, address, pause_this_process, float(seconds), deadline_s=_ORDER_S + ANSWER_S)
    return pid


def _kind(role: str, standing: Mapping[str, Any]) -> Kind:
    if role in standing["copies"]:
        serving = any(shard["server"] == role for shard in standing["shards"])
        return "server" if serving else "replica"
    known: tuple[Kind, ...] = ("coordinator", "standby", "evaluator")
    return next((kind for kind in known if role.startswith(kind)), "worker")


def _reach(run: Run, role: str) -> tuple[Client, str]:
    """Return the client of a run, and the address of one of its roles."""
    found = {target.role: target.address for target in targets(run)}
    if role not in found:
        raise ConfigurationError(f"run {run.run} has no {role!r}; it has {', '.join(found)}", field="role")
    if run.client is None:
        raise ClusterError(f"no coordinator of run {run.run} is known here; attach to it with a client")
    return run.client, found[role]


def _pid_at(client: Client, address: str) -> int | None:
    """Return the id of the process that the scheduler knows at an address; it is not asked, for it may be stopped."""

    async def look(client: Client) -> int | None:
        seen: dict[str, tuple[int, float]] = await client.run_on_scheduler(seen_by)
        return seen[address][0] if address in seen else None

    return ask(client, look)


async def _run_there(client: Client, address: str, function: Any, *arguments: Any) -> Any:
    """Return what a function returns in the process of a Dask worker."""
    try:
        async with asyncio.timeout(_ORDER_S):
            found = await client.run(function, *arguments, workers=[address], on_error="return")
    except TimeoutError:
        text = f"the Dask worker {address} did not answer within {_ORDER_S:g} s; it may be stopped, or gone"
        raise ClusterError(text, peer=address) from None
    answer = found[address]
    if isinstance(answer, Exception):
        raise ClusterError(f"the Dask worker {address} did not do as it was told ({answer})", peer=address)
    return answer
