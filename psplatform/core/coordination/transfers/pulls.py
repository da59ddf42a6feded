"""When workers that go on are told so, and from whom they get the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from psplatform.core.coordination.members.hosts import Hosts
from psplatform.core.coordination.members.roster import Member
from psplatform.core.coordination.state import PULLS, State
from psplatform.core.protocol.effects import Send, SetTimer
from psplatform.core.protocol.messages import Announce, Fetched, Release
from psplatform.core.protocol.names import Role
from psplatform.core.transfers import PullRequest, TransferPlanner, patience_s


@dataclass(eq=False)
class _Sending:
    """What the servers send once: to a worker, or to a relay for all that it hands it on to."""

    logged: bool = False


@dataclass(eq=False)
class _Pull:
    """How a worker gets the parameters for gradient `sequence`: through the relay on a host, or from the servers."""

    sequence: int
    relay: str | None = None
    planned_s: float | None = None
    sending: _Sending = field(default_factory=_Sending)
    logged: bool = False


class Pulls:
    """Sends releases: at once, or where transfers are planned, when the servers can send the parameters.

    Workers that wait at the same time may get them through a relay, the process of one of them, which the servers then
    send them once.  That a worker has got them is logged where transfers are planned: when it says so, or where it need
    not, when it speaks of its gradient.

    Nothing here has to survive a coordinator: the next one tells all workers again what they do.
    """

    def __init__(self, state: State, hosts: Hosts, planner: TransferPlanner | None) -> None:
        self._state, self._hosts = state, hosts
        self._logs = planner is not None
        self._planner = planner if planner is not None and planner.relays else None
        # By worker, the key under which the planner knows its request, and what it is to be sent.
        self._waiting: dict[str, tuple[int, Release]] = {}
        # By worker, what it was sent last: the sequence, and the key under which the planner knows it.
        self._granted: dict[str, tuple[int, int]] = {}
        self._pulls: dict[str, _Pull] = {}
        """By worker, the newest that is known."""
        self._number = 0

    @property
    def waiting(self) -> int:
        """Number of releases that are not sent yet."""
        return len(self._waiting)

    def send(self, member: Member, release: Release) -> None:
        """Tell a worker to go on, as soon as that makes sense."""
        if self._planner is None or not self._hosts.of(member.name):
            self._tell(member.name, release)
            return
        self._settle([member.name])  # it may never have got what it was sent before
        self._number += 1
        self._waiting[member.name] = self._number, release
        self.plan()

    def on_computed(self, announce: Announce) -> None:
        """Learn of a worker's pull from the gradient that came of it."""
        self._log(announce.member, announce.sequence, announce.pull_s)

    def on_fetched(self, message: Fetched) -> None:
        """Learn how long a pull took, and send others."""
        self._log(message.member, message.sequence, message.pull_s)
        sequence, key = self._granted.get(message.member, (0, 0))
        if self._planner is not None and sequence == message.sequence:
            del self._granted[message.member]
            self._planner.pulled(key, self._state.now - message.pull_s, self._state.now)
            self.plan()

    def plan(self) -> None:
        """Send what can be sent now, and look again when more can be."""
        self._forget_closed()
        planner, now = self._planner, self._state.now
        if planner is None or self._state.stopping or not self._waiting:
            return
        names, helpers = {key: name for name, (key, _) in self._waiting.items()}, self._hosts.helpers()
        requests = [PullRequest(key, self._hosts.of(name)) for key, name in names.items()]
        found = planner.plan_pulls(requests, now, helpers)
        through: dict[str, _Sending] = {}
        for grant in found.granted:
            name = names[grant.key]
            (_, release), relay = self._waiting.pop(name), helpers.get(grant.relay or "", "")
            self._granted[name] = release.sequence, grant.key
            patient_s = patience_s(grant.end - now) if relay else 0.0
            pull = self._begin(name, release.sequence)
            pull.planned_s = max(0.0, grant.end - now) if grant.end < math.inf else None
            if relay and grant.relay is not None:
                pull.relay, pull.sending = grant.relay, through.setdefault(grant.relay, pull.sending)
            self._tell(name, replace(release, relay=relay, patience_s=patient_s, tell=True))
        if self._waiting:
            self._state.effects.append(SetTimer(PULLS, found.again_at))

    def forget(self) -> None:
        """Forget what was to be sent: a coordinator that takes over tells all workers what they do."""
        self._waiting.clear()
        self._settle(list(self._granted))

    def _forget_closed(self) -> None:
        roster = self._state.roster.by_name
        for name, (_, release) in list(self._waiting.items()):
            member = roster.get(name)
            if member is None or not member.busy or member.sequence != release.sequence:
                del self._waiting[name]
        self._settle([name for name in self._granted if name not in roster])

    def _begin(self, name: str, sequence: int) -> _Pull:
        """Return a new pull of a worker; with the first of each, forget those of workers that are gone."""
        if name not in self._pulls:
            roster = self._state.roster.by_name
            self._pulls = {known: pull for known, pull in self._pulls.items() if known in roster}
        self._pulls[name] = pull = _Pull(sequence)
        return pull

    def _log(self, name: str, sequence: int, took_s: float) -> None:
        """Log that a worker has got the parameters for a gradient, once."""
        member = self._state.roster.by_name.get(name) if self._logs else None
        if member is None:
            return
        pull = self._pulls.get(name)
        if pull is None or pull.sequence < sequence:
            pull = self._begin(name, sequence)
        if pull.logged or pull.sequence > sequence:
            return
        self._state.log(
            "pull",
            slot=member.slot,
            sequence=sequence,
            host=self._hosts.of(name),
            relay=pull.relay,
            sent=not pull.sending.logged,
            took_s=took_s,
            planned_s=pull.planned_s,
        )
        pull.logged = pull.sending.logged = True

    def _settle(self, names: Iterable[str]) -> None:
        """Have nothing expected any more of what those workers were sent."""
        for name in names:
            _, key = self._granted.pop(name, (0, 0))
            if key and self._planner is not None:
                self._planner.settle_pull(key)

    def _tell(self, name: str, release: Release) -> None:
        self._state.effects.append(Send(Role.member(name), release))
