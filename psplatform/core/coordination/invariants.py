"""What must hold after every event, whatever fails: checked by the in-memory driver's tests and by simulators.

=====  ==============================================================================================================
S1     a gradient (slot, sequence) enters at most one commit, and each shard applies it at most once
S3     every server stands at a prefix of the coordinator's order
S9     every position applies the same gradients on every shard of its order
S10    no server has heard of a higher term than its coordinator's
order  positions grow by one, versions by the updates of a commit, staleness is never negative
tally  the counts that policies read equal a recount
=====  ==============================================================================================================

A violation is a bug in psplatform, never the user's fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.coordination.order.epochs import BatchScheduler
from psplatform.core.coordination.state import State
from psplatform.core.shards.server import Server
from psplatform.errors import InvariantViolation


@dataclass
class _Order:
    """The commits of one commit log so far."""

    versions: list[int] = field(default_factory=lambda: [0])
    applied_at: dict[tuple[int, int], int] = field(default_factory=dict)
    highest: list[dict[int, int]] = field(default_factory=lambda: [{}])


@dataclass
class Invariants:
    """The checker of one run; it remembers the orders decided so far."""

    _orders: dict[int, _Order] = field(default_factory=lambda: defaultdict(_Order))
    _read: int = 0

    def check(self, state: State, servers: Sequence[Server], records: Sequence[Mapping[str, Any]]) -> None:
        """Check everything.

        Parameters
        ----------
        state
            The coordinator's.
        records
            The event log so far; only what is new since the last check is read.

        Raises
        ------
        InvariantViolation
            Naming the invariant and the figures.
        """
        for record in records[self._read :]:
            if record["kind"] == "commit":
                _check_commit(self._orders[record.get("block", 0)], record)
        self._read = len(records)
        check_tally(state)
        for server in servers:
            commit_log = state.commit_log_of(server.shard)
            _check_server(self._orders[commit_log.block], server, commit_log.position, state.term)


def check_tally(state: State) -> None:
    """Raise `InvariantViolation` unless the counts that policies read equal a recount, and no batch is forgotten."""
    members = state.roster.members()
    busy = sum(member.busy for member in members)
    _require(state.busy == busy, "tally", f"{state.busy} workers count as busy, {busy} are")
    if members:
        lowest = min(member.clock for member in members)
        _require(state.minimum_clock == lowest, "tally", f"minimum clock {state.minimum_clock}, it is {lowest}")
    if state.batch_scheduler is not None:
        _check_dealt(state, state.batch_scheduler)


def _check_dealt(state: State, batch_scheduler: BatchScheduler) -> None:
    busy = {(one.slot, one.sequence) for one in state.roster.members() if one.busy}
    held = {(one.slot, one.sequence) for commit_log in state.commit_logs for one in commit_log.held}
    for key in sorted(batch_scheduler.out - busy - held - state.block_outcomes.open):
        pooled = any(commit_log.pool.holds(*key) for commit_log in state.commit_logs)
        _require(pooled, "tally", f"batch {batch_scheduler.assignment(*key)} is out to gradient {key}, which has ended")


def _check_commit(order: _Order, record: Mapping[str, Any]) -> None:
    position, version = record["position"], record["version"]
    _require(position == len(order.versions), "order", f"position {position} follows {len(order.versions) - 1}")
    _require(version == order.versions[-1] + record["versions"], "order", f"version {version} at {position}")
    _require(
        min(record["staleness"], default=0) >= 0, "order", f"staleness {record['staleness']} at position {position}"
    )
    highest = dict(order.highest[-1])
    for identity in zip(record["slots"], record["sequences"], strict=True):
        before = order.applied_at.setdefault(identity, position)
        _require(before == position, "S1", f"gradient {identity} is in positions {before} and {position}")
        highest[identity[0]] = max(highest.get(identity[0], 0), identity[1])
    order.versions.append(version)
    order.highest.append(highest)


def _check_server(order: _Order, server: Server, decided: int, term: int) -> None:
    where = f"shard {server.shard} at position {server.position}"
    _require(server.position <= decided, "S3", f"{where}, decided are {decided}")
    _require(server.version == order.versions[server.position], "S3", f"{where} shows version {server.version}")
    _require(server.applied == order.highest[server.position], "S9", f"{where} applied other gradients")
    _require(server.term <= term, "S10", f"{where} has heard of term {server.term}, not {term}")


def _require(holds: bool, name: str, found: str) -> None:
    if not holds:
        raise InvariantViolation(f"{name} is violated: {found}")
