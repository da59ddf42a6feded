"""Gathering the parameters from all shards; where a policy asks for it, at exactly one version.

Servers answer with the newest version they show, which may be newer than the one asked for.  An exact pull therefore
chases: shards that answered with an older version than the newest answer are asked again for that one, until all
agree.  It ends because a shard shows a version until it has the next, and all shards apply the same commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from psplatform.core.messages import Label, Pull, Pulled


@dataclass
class Pulling:
    """One member's pulls, one after the other.

    Parameters
    ----------
    member
        Name the answers are sent to.
    shards
        Number of shards.
    exact
        Whether all shards must show the same version.
    """

    member: str
    shards: int
    exact: bool
    _request: int = 0
    _open: dict[int, int] = field(default_factory=dict)
    _answers: dict[int, Pulled] = field(default_factory=dict)

    def begin(self, version: int) -> list[Pull]:
        """Return the requests for `version` or newer; whatever was open before is void."""
        self._open.clear()
        self._answers.clear()
        return [self._ask(shard, version) for shard in range(self.shards)]

    def on_pulled(self, answer: Pulled) -> list[Pull]:
        """Take an answer; return the requests it makes necessary.  Answers to void requests change nothing."""
        if self._open.get(answer.shard) != answer.request:
            return []
        del self._open[answer.shard]
        self._answers[answer.shard] = answer
        if self._open or not self.exact:
            return []
        newest = max(one.version for one in self._answers.values())
        return [self._ask(shard, newest) for shard, one in self._answers.items() if one.version < newest]

    def expects(self, answer: Pulled) -> bool:
        """Whether `answer` is one that is waited for."""
        return self._open.get(answer.shard) == answer.request

    def cancel(self) -> None:
        """Make every open request void."""
        self._open.clear()

    @property
    def waiting_for(self) -> list[int]:
        """The shards that have not answered yet."""
        return sorted(self._open)

    @property
    def label(self) -> Label | None:
        """The versions and epochs at hand once every shard has answered."""
        if self._open or len(self._answers) < self.shards:
            return None
        answers = [self._answers[shard] for shard in range(self.shards)]
        return Label(tuple(one.version for one in answers), tuple(one.epoch for one in answers))

    def _ask(self, shard: int, version: int) -> Pull:
        self._request += 1
        self._open[shard] = self._request
        return Pull(self.member, shard, self._request, version)
