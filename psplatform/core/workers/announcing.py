"""What a worker says of the gradient at hand, until every shard can reach it, and what it has said last."""

from __future__ import annotations

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Computed
from psplatform.core.shards.server import MOST_AHEAD


class Announcing:
    """The announcements of one worker.

    Parameters
    ----------
    member
        Its name.
    shards
        Number of shards.
    per_block
        Whether each block is announced when its shard can reach it.

    Attributes
    ----------
    computed
        The gradient at hand; ``None`` before it is computed, and once it is announced as a whole.
    wait_s, pull_s
        How long it waited, and how long pulling took.
    """

    __slots__ = (
        "_member",
        "_most_said",
        "_per_block",
        "_said",
        "_shards",
        "_unreached",
        "computed",
        "pull_s",
        "wait_s",
    )

    def __init__(self, member: str, shards: int, *, per_block: bool) -> None:
        self._member, self._shards, self._per_block = member, shards, per_block
        self.computed: Computed | None = None
        self.wait_s = self.pull_s = 0.0
        self._unreached = shards
        # What a coordinator that takes over may not have heard of: block by block a worker runs ahead of its servers.
        self._said: list[msg.Announce] = []
        self._most_said = shards * (MOST_AHEAD + 1) if per_block else 1

    @property
    def said(self) -> tuple[msg.Announce, ...]:
        """The last announcements, the oldest first."""
        return tuple(self._said)

    def take(self, computed: Computed) -> None:
        """Turn to the gradient that was computed, which no shard can reach yet."""
        self.computed, self._unreached = computed, self._shards

    def announce(
        self, release: msg.Release, label: msg.Label, shards: tuple[int, ...], push_s: float
    ) -> msg.Announce | None:
        """Return the announcement of the gradient at hand, which these shards can reach; ``None`` if there is none."""
        said = self.describe(release, label, shards, push_s)
        if said is not None:
            self._said.append(said)
            del self._said[: -self._most_said]
            self._unreached -= len(shards) if self._per_block else self._unreached
            if not self._unreached:
                self.computed = None
        return said

    def describe(
        self, release: msg.Release, label: msg.Label, shards: tuple[int, ...] = (), push_s: float = 0.0
    ) -> msg.Announce | None:
        """Return what there is to say of the gradient at hand, if there is one."""
        computed = self.computed
        if computed is None:
            return None
        return msg.Announce(
            member=self._member,
            sequence=computed.sequence,
            label=label,
            samples=computed.samples,
            loss=computed.loss,
            squared_norm=computed.squared_norm,
            compute_s=computed.seconds,
            pull_s=self.pull_s,
            push_s=push_s,
            wait_s=self.wait_s,
            shards=shards,
            counter=release.version,
            flaw=computed.flaw,
            assignment=release.assignment,
        )
