"""What must hold once a run is over: nothing more is decided, nothing was done by half, nobody keeps what is void."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from psplatform.core.protocol.events import CopyLost, MemberLost, StopRequested
from psplatform.core.protocol.messages import Join
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.checks.histories import violated
from psplatform.simulation.faults.storage import Storage

_AFTERWARDS_S: Final = 15.0
"""Seconds after the end of a run in which everything that was under way has arrived, and every timer was due."""

_EVENTS: Final = 60_000


def check_after_the_end(run: MemoryRun) -> None:
    """Let what is still under way arrive, and more: the coordinator that has ended the run decides nothing any more."""
    lead, leads, records = run.leads[-1], len(run.leads), len(run.records)
    positions = [one.position for one in run.coordinator.state.commit_logs]
    until = run.agenda.now + _AFTERWARDS_S
    for _ in range(_EVENTS):
        if run.agenda.now >= until or len(run.leads) > leads or not run.agenda.do_next():
            break
    if len(run.leads) > leads:
        return  # it was lost since, and another may not know that the run is over
    decided = [one.position for one in run.coordinator.state.commit_logs]
    if decided != positions or len(run.records) != records:
        raise violated("S10", f"the run is over, and its coordinator logs {run.records[records:]}")
    note, heard = run.processes.on_handled, list[Any]()
    run.processes.on_handled = lambda name, event, effects: heard.append(event)
    for late in _late_events(run):
        lead.node.feed(late)
    run.processes.on_handled = note
    if heard or len(run.records) != records:
        raise violated("S10", f"the run is over, and its coordinator goes on about {heard or run.records[records:]}")


def _late_events(run: MemoryRun) -> list[Any]:
    """Return what may well be said to a coordinator while its process waits for the workers to leave."""
    server = run.coordinator.state.shards[0].server
    gone = [MemberLost(one.name, "its process has ended") for one in run.coordinator.state.roster.members()]
    return [
        StopRequested("asked to stop"),
        Join("late", "memory://late"),
        CopyLost(server, f"memory://{server}", "closed connection"),
        *gone,
    ]


def check_forgotten(run: MemoryRun, dismissed: Collection[str]) -> None:
    """Raise if a server keeps what a member has exposed that was dismissed: it is never written over (S15).

    Only the coordinator that has dismissed a member lets the copies know of it, and only those that it reaches.
    """
    if len(run.leads) > 1:
        return
    for shard in run.coordinator.state.shards:
        if run.processes.is_dead(shard.server) or run.processes.is_stopped(shard.server):
            continue
        kept = run.copies[shard.server].state.held & set(dismissed)
        if kept:
            raise violated("S15", f"{shard.server} keeps what {sorted(kept)} have exposed, who were dismissed")


def check_archived(run: MemoryRun, unwritten: Collection[tuple[str, int]]) -> None:
    """Raise if a copy that lives was to write a part of a checkpoint, and has not even tried to (S7)."""
    for name, number in sorted(unwritten):
        if not (run.copies[name].closed or run.processes.is_dead(name) or run.processes.is_stopped(name)):
            raise violated("S7", f"{name} was to write its part of checkpoint {number}, and has not tried to")


def check_whole_decisions(run: MemoryRun, storage: Storage) -> None:
    """Raise if the run went on after a decision of which only a part could be executed (S10)."""
    if storage.broke and len(run.leads) == 1 and run.finish is not None and run.finish.outcome != "failed":
        raise violated("S10", f"a decision was executed by half, and the run ends by {run.finish.outcome}")
