"""What is out of date, or was handled before, changes nothing (S14).

Looked at from outside: the state of a role before and after it handles a message that it must recognise as old.  Most
such messages would do no harm where they arrive, because something else guards against them; a role that takes them for
new is wrong all the same, and one day nothing else will.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Final

from psplatform.core.coordination import Coordinator
from psplatform.core.protocol import messages as msg
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.supervision.standby import Standby
from psplatform.core.workers.aggregator import OWN
from psplatform.core.workers.session import Activity, WorkerSession
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.checks.histories import violated
from psplatform.simulation.faults.checks.probing import (
    ORDERS,
    REPORTS,
    check_answers_successors,
    check_applies_once,
    check_begun,
    check_guards,
    check_holds_back,
    epoch_of,
    old_ones,
    term_of,
    told_too_early,
)

_AGAIN: Final = (
    msg.Pull,  # is answered again
    msg.Cut,  # the part is written again
    msg.Join,  # is welcomed again
    msg.StateRequest,  # is answered again
    msg.Beat,
    msg.Lease,
    msg.LogEntry,
    msg.Acknowledged,
)
"""What may be heard twice: who says it asks for an answer, or counts by itself what it has heard."""

_SELDOM: Final = (msg.Promote, msg.Promoted, msg.InSync)
"""What is probed whenever it comes."""

_TAKEN_OVER: Final = (msg.ServerState, msg.Promoted)
"""Before these, a coordinator that takes over is told what it must not count yet."""

_ONE_IN: Final = 8
"""Probes of which one tries the dearest: a server is copied for it."""

_UNSAID: Final = frozenset({"now", "_now", "_pulls", "_state", "_checkpoints"})
"""Fields in which every message leaves its trace: when it came, and who waits for an answer."""

_PLAIN: Final = (str, bytes, int, float, type(None), Enum, range)


class Staleness:
    """Checks S14 wherever a message arrives.

    Parameters
    ----------
    seed, probed
        Which messages, and how large a share of them, are followed by probes: old ones that were not sent, and the
        message itself once more (`psplatform.simulation.faults.checks.probing`).

    Attributes
    ----------
    met
        How many old messages arrived.
    probed
        After how many messages what is old was tried.
    """

    def __init__(self, run: MemoryRun, seed: int = 0, probed: float = 0.0) -> None:
        self.met = self.probed = 0
        self._run, self._share = run, probed
        self._random = random.Random(f"probes {seed}")
        self._handled: dict[str, dict[int, Any]] = defaultdict(dict)

    def hand_over(self, name: str, message: Any, handle: Callable[[], None]) -> None:
        """Let the role of that name handle a message by `handle`, and see that an old one changes nothing."""
        role = self._role(name)
        why = self._why_old(name, role, message) if role is not None else ""
        self._handled[name][id(message)] = message
        probed = role is not None and type(message) not in OWN and self._is_probed(role, message)
        if probed:
            self._try_old_ones(name, role, message)
        if self._share and isinstance(role, Coordinator) and isinstance(message, _TAKEN_OVER):
            self._try_too_early(name, role)
        idle = isinstance(role, WorkerSession) and role.activity is not Activity.COMPUTING
        if why:
            self.met += 1
            self._require_unchanged(name, role, message, why, handle)
        else:
            handle()
        if self._share and isinstance(message, msg.Welcome):
            check_answers_successors(name, role, self._run.processes.clock(name))
        if idle and role.activity is Activity.COMPUTING:
            check_begun(name, role)
        if probed:
            self._probe(name, role, message)

    def _is_probed(self, role: Any, message: Any) -> bool:
        if not self._share:
            return False
        rising = (
            isinstance(role, ShardCopy) and isinstance(role.part, Server) and role.part._promotion.order is not None
        )
        return rising or isinstance(message, _SELDOM) or self._random.random() < self._share

    def _require_unchanged(self, name: str, role: Any, message: Any, why: str, handle: Callable[[], object]) -> None:
        before = _of_role(role)
        handle()
        after = _of_role(role)
        if after != before:
            raise violated("S14", f"{name} has changed {_changed(before, after)} about {message}, which is {why}")

    def _probe(self, name: str, role: Any, message: Any) -> None:
        self.probed += 1
        now = self._run.processes.clock(name)
        check_guards(name, role, now)
        check_holds_back(name, role, now)
        check_answers_successors(name, role, now)
        if not self.probed % _ONE_IN:
            check_applies_once(name, role, now)
        if isinstance(role, ShardCopy | WorkerSession) and not isinstance(message, _AGAIN):
            self._require_unchanged(name, role, message, "repeated", partial(role.handle, message, now))
        self._try_old_ones(name, role, message)

    def _try_old_ones(self, name: str, role: Any, message: Any) -> None:
        leads = isinstance(role, Coordinator)
        now = self._run.agenda.now if leads else self._run.processes.clock(name)
        for old in old_ones(role, message):
            if why := self._why_old(name, role, old):
                # What a coordinator keeps for later, or counts, is not looked at: a copy of it is tried.
                tried = deepcopy(role) if leads else role
                self._require_unchanged(name, tried, old, why, partial(tried.handle, old, now))

    def _try_too_early(self, name: str, role: Coordinator) -> None:
        for early in told_too_early(role):
            tried = deepcopy(role)
            why = "said before that copy obeys this coordinator as the server"
            self._require_unchanged(name, tried, early, why, partial(tried.handle, early, self._run.agenda.now))

    def _role(self, name: str) -> Any:
        """Return the state machine of a role that still hears; of coordinators, what its standbys have as well."""
        run = self._run
        if name in run.copies:
            return None if run.copies[name].closed else run.copies[name].control
        if name in run.workers.nodes:
            return None if run.workers.nodes[name].closed else run.workers.nodes[name].session
        standby = next((one.standby for one in run.standbys.all if one.name == name), None)
        lead = run.leads[-1]
        return lead.lead.coordinator if lead.name == name else standby

    def _why_old(self, name: str, role: Any, message: Any) -> str:
        if id(message) in self._handled[name] and not isinstance(message, _AGAIN):
            return "repeated"
        if isinstance(role, ShardCopy):
            return _why_old_for_copy(role.part, message)
        if isinstance(role, WorkerSession):
            if isinstance(message, msg.Pulled) and message.epoch < epoch_of(role, message.shard):
                return f"below epoch {epoch_of(role, message.shard)}"
            return _below(term_of(role), message)
        if isinstance(role, Standby):
            return "" if role.follows or not isinstance(message, msg.LogEntry) else "said by one that was given up"
        return self._why_old_for_coordinator(role, message)

    def _why_old_for_coordinator(self, role: Coordinator, message: Any) -> str:
        if isinstance(message, REPORTS):
            return _of_another_epoch(role.state.shards[message.shard].epoch, message)
        if isinstance(message, msg.Written):
            cut = role.checkpoints._cut
            expected = cut is not None and (cut.number, cut.positions.get(message.shard))
            return "" if expected == (message.number, message.position) else "not of the checkpoint under way"
        return ""


def _why_old_for_copy(part: Server | Replica, message: Any) -> str:
    follows = part._promotion.order if isinstance(part, Server) else part.promotion
    if isinstance(message, msg.Promote) and follows is not None and _comes_late(follows, message):
        return "an order that was given before the one it follows"
    if isinstance(part, Server):
        told = isinstance(message, (*ORDERS, msg.Replicated))
        return _below(part.term, message) or (_of_another_epoch(part.epoch, message) if told else "")
    if isinstance(message, msg.Promote) and message.epoch <= part.epoch:
        return f"an order to serve under no higher epoch than {part.epoch}"
    if isinstance(message, msg.Transfer) and (message.epoch < part.epoch or part.promotion is not None):
        return f"of a server that was replaced under epoch {part.epoch}"
    return _below(part.term, message)


def _comes_late(follows: msg.Promote, order: msg.Promote) -> bool:
    """Whether an order was given before another of the same coordinator: successors become only fewer."""
    same = (order.term, order.epoch) == (follows.term, follows.epoch)
    return same and len(order.successors) > len(follows.successors)


def _below(term: int, message: Any) -> str:
    return f"below term {term}" if getattr(message, "term", term) < term else ""


def _of_another_epoch(epoch: int, message: Any) -> str:
    return f"not of epoch {epoch}" if message.epoch != epoch else ""


def _of_role(role: Any) -> Any:
    """Return what the state of a role says; of a coordinator, what its decisions rest on, and no statistics."""
    if isinstance(role, Coordinator):
        awaited = ("awaited", frozenset(role.takeover.awaited_shards))
        return [
            awaited,
            ("state", _said(role.state)),
            ("checkpoints", _said(role.checkpoints)),
            ("ending", _said(role.ending)),
        ]
    return _said(role)


def _said(value: Any, above: frozenset[int] = frozenset()) -> Any:
    """Return all that a state says as plain values that can be compared; what leads back to itself is left out."""
    kind: Any = type(value)
    if _is_whole(kind):
        return value
    if id(value) in above:
        return None
    above |= {id(value)}
    if issubclass(kind, Mapping):
        return [(key, _said(one, above)) for key, one in value.items()]
    if issubclass(kind, AbstractSet):
        return frozenset(value)
    if issubclass(kind, list | tuple | deque):
        return [_said(one, above) for one in value]
    kept = {name: getattr(value, name) for name in _slots(kind)} | getattr(value, "__dict__", {})
    return [(key, _said(one, above)) for key, one in kept.items() if key not in _UNSAID] if kept else id(value)


@cache
def _is_whole(kind: type) -> bool:
    """Whether values of that type never change."""
    return issubclass(kind, _PLAIN) or (is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


@cache
def _slots(kind: type) -> list[str]:
    return [one.name for one in fields(kind)] if is_dataclass(kind) and hasattr(kind, "__slots__") else []


def _changed(before: Any, after: Any, path: str = "") -> str:
    """Return the path to the first difference of two states."""
    pairs = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if not pairs:
        return f"{path.removeprefix('.')} from {before!r} to {after!r}"
    number = next(number for number, one in enumerate(before) if one != after[number])
    one, other = before[number], after[number]
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other) == 2:
        return _changed(one[1], other[1], f"{path}.{one[0]}") if one[0] == other[0] else f"{path} at {one[0]}"
    return _changed(one, other, f"{path}[{number}]")
