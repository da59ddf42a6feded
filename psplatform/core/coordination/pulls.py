"""When workers that go on are told so, and from whom they get the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from psplatform.core.coordination.hosts import Hosts
from psplatform.core.coordination.roster import Member
from psplatform.core.coordination.state import PULLS, State
from psplatform.core.protocol.effects import Role, Send, SetTimer
from psplatform.core.protocol.messages import Fetched, Release
from psplatform.core.transfers import PullRequest, TransferPlanner, patience_s


class Pulls:
    """Sends releases: at once, or where transfers are planned, when the servers can send the parameters.

    Workers that wait at the same time may get them through a relay, the process of one of them, which the servers then
    send them once.  Nothing here has to survive a coordinator: the next one tells all workers again what they do.
    """

    def __init__(self, state: State, hosts: Hosts, planner: TransferPlanner | None) -> None:
        self._state, self._hosts = state, hosts
        self._planner = planner if planner is not None and planner.relays else None
        # By worker, the key under which the planner knows its request, and what it is to be sent.
        self._waiting: dict[str, tuple[int, Release]] = {}
        # By worker, what it was sent last: the sequence, and the key under which the planner knows it.
        self._granted: dict[str, tuple[int, int]] = {}
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

    def on_fetched(self, message: Fetched) -> None:
        """Learn how long a pull took, and send others."""
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
        for grant in found.granted:
            name = names[grant.key]
            (_, release), relay = self._waiting.pop(name), helpers.get(grant.relay or "", "")
            self._granted[name] = release.sequence, grant.key
            patient_s = patience_s(grant.end - now) if relay else 0.0
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

    def _settle(self, names: Iterable[str]) -> None:
        """Have nothing expected any more of what those workers were sent."""
        for name in names:
            _, key = self._granted.pop(name, (0, 0))
            if key and self._planner is not None:
                self._planner.settle_pull(key)

    def _tell(self, name: str, release: Release) -> None:
        self._state.effects.append(Send(Role.member(name), release))
