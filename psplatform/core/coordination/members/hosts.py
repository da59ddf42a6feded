"""Where workers are, and whose processes may be asked to do something for others."""

from __future__ import annotations

from collections.abc import Iterable

from psplatform.core.coordination.members.roster import Roster


class Hosts:
    """The hosts of workers, as they name them themselves.

    A worker that did not do in time what it was asked for is not asked again before something is heard of it.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._hosts: dict[str, str] = {}
        self._suspects: set[str] = set()

    def heard(self, member: str, host: str = "") -> None:
        """Note that a worker lives, and on which host, if it says so."""
        self._suspects.discard(member)
        if host:
            self._hosts[member] = host

    def suspect(self, members: Iterable[str]) -> None:
        """Ask those workers for nothing, for now."""
        self._suspects.update(members)

    def of(self, member: str) -> str:
        """Return the host of a worker; empty where it is not known."""
        return self._hosts.get(member, "")

    def helpers(self) -> dict[str, str]:
        """Return for each host a worker whose process may be asked: the one of the lowest slot, which orders hosts."""
        roster = self._roster.by_name
        known = [one for one in self._hosts if one in roster and one not in self._suspects]
        found: dict[str, str] = {}
        for one in sorted(known, key=lambda one: roster[one].slot):
            found.setdefault(self._hosts[one], one)
        return found

    def forget_the_gone(self) -> None:
        """Forget workers that have left."""
        roster = self._roster.by_name
        self._hosts = {name: host for name, host in self._hosts.items() if name in roster}
        self._suspects &= roster.keys()
