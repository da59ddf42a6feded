"""The last commits that a server has shown, with what it said of each: asked for again when a role is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol.messages import Applied, Commit, Past, Pull

REMEMBERED: Final = 256
"""Commits kept: more than are under way at a time, and than a standby may lag."""


@dataclass
class Shown:
    """What a shard's copy remembers of its order, the oldest first."""

    _commits: dict[int, Commit] = field(default_factory=dict)
    _said: dict[int, Applied] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._commits)

    def note(self, commit: Commit, applied: Applied) -> None:
        """Remember a commit, behind all others, and what the coordinator is told of it."""
        self._commits[commit.position], self._said[commit.position] = commit, applied
        while len(self._commits) > REMEMBERED:
            oldest = next(iter(self._commits))
            del self._commits[oldest], self._said[oldest]

    def said(self, position: int) -> Applied | None:
        """Return what was said of that position, if it is remembered."""
        return self._said.get(position)

    def after(self, position: int) -> dict[int, Commit]:
        """Return the commits that are remembered, by position, after that one."""
        return {at: one for at, one in self._commits.items() if at > position}

    def past_after(self, position: int) -> tuple[Past, ...]:
        """Return the same as a transfer carries them."""
        return tuple(Past(one, self._said[at].squared_norms) for at, one in self.after(position).items())


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
