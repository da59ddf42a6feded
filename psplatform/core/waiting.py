"""Pulls that wait for a version, at most one of each member."""

from __future__ import annotations

from dataclasses import dataclass, field

from psplatform.core.messages import Pull


@dataclass
class WaitingPulls:
    """What a server has been asked for and does not show yet, in the order of asking."""

    _pulls: dict[str, Pull] = field(default_factory=dict)

    def take(self, pull: Pull) -> None:
        """Let a pull wait; it makes those that its member sent before it void, and is void after a later one."""
        # Partial pulls, which are not waited for, would leave more and more of them here.
        kept = self._pulls.get(pull.member)
        if kept is None or kept.request < pull.request:
            self._pulls[pull.member] = pull

    def withdraw(self, member: str, request: int) -> None:
        """Forget that request of the member, and no other."""
        kept = self._pulls.get(member)
        if kept is not None and kept.request == request:
            del self._pulls[member]

    def due(self, version: int) -> list[Pull]:
        """Take out and return what `version` answers."""
        members = [member for member, pull in self._pulls.items() if pull.version <= version]
        return [self._pulls.pop(member) for member in members]
