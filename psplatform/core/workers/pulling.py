"""Gathering the parameters from all shards: at exactly one version, or from as many as a policy wants to wait for.

Servers answer with the newest version they show, which may be newer than the one asked for.  An exact pull therefore
chases: shards that answered with an older version than the newest answer are asked again for that one, until all
agree.  It ends because a shard shows a version until it has the next, and all shards apply the same commits.

A partial pull is content with a fraction of the shards, after a short wait for the others; of those that did not come
the member keeps what it had.  The first pull is always whole, because before it there is nothing to keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol.messages import Label, Pull, Pulled
from psplatform.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PullRule:
    """How much of the model a worker waits for.

    Attributes
    ----------
    fraction
        Share of the shards, above 0 and at most 1; the count is rounded up.
    timeout_s
        Seconds it waits for further shards once it has that many.
    subset
        Whether only that many shards are asked, drawn at random for each pull.

    Raises
    ------
    ConfigurationError
        If a value is out of its range.
    """

    fraction: float = 1.0
    timeout_s: float = 0.0
    subset: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigurationError(
                f"the fraction of shards to pull must be above 0 and at most 1, not {self.fraction!r}", field="pull"
            )
        if not (math.isfinite(self.timeout_s) and self.timeout_s >= 0):
            raise ConfigurationError(f"the pull's timeout must be 0 s or more, not {self.timeout_s!r}", field="timeout")

    def count(self, shards: int) -> int:
        """Return how many of `shards` shards are waited for."""
        # A fraction such as 0.9 of 30 must give 27, whatever the last bit of the product.
        return max(1, math.ceil(self.fraction * shards - 1e-9))


_DRAWS: Final = 31  # stream of random numbers

WHOLE: Final = PullRule()


@dataclass(slots=True)
class Pulling:
    """One member's pulls, one after the other.

    Parameters
    ----------
    member
        Name the answers are sent to.
    shards
        Number of shards.
    exact
        Whether all shards must show the same version; only with the rule `WHOLE`.
    rule
        How many shards are waited for.
    seed
        Of the drawing of shards (`PullRule.subset`).
    """

    member: str
    shards: int
    exact: bool
    rule: PullRule = WHOLE
    seed: int = 0
    _request: int = 0
    _open: dict[int, int] = field(default_factory=dict)
    _wanted: dict[int, int] = field(default_factory=dict)
    _content: dict[int, Pulled] = field(default_factory=dict)
    _whole: bool = False
    _missing: int = 0
    _version: int = 0
    _epochs: dict[int, int] = field(default_factory=dict)

    def begin(self, version: int, gradient: tuple[int, int] = (0, 0)) -> list[Pull]:
        """Return the requests for `version` or newer; whatever was open before is void.

        Parameters
        ----------
        gradient
            Slot and sequence of what it is for, on which alone and the seed it depends which shards are drawn.
        """
        self._open.clear()
        self._version = version
        self._whole = len(self._content) < self.shards
        asked = self._asked(gradient)
        self._missing = len(asked) if self._whole else min(len(asked), self.rule.count(self.shards))
        return [self._ask(shard, version) for shard in asked]

    def again(self) -> list[Pull]:
        """Return requests that take the place of those that are not answered."""
        return [self._ask(shard, self._wanted[shard]) for shard in list(self._open)]

    def on_pulled(self, answer: Pulled) -> list[Pull]:
        """Take an answer; return the requests it makes necessary.  Answers to void requests change nothing."""
        if not self.expects(answer):
            return []
        del self._open[answer.shard]
        self._content[answer.shard] = answer
        self._missing -= 1
        if self._open or not self.exact or self.shards == 1:
            return []
        newest = max(one.version for one in self._content.values())
        behind = [shard for shard, one in self._content.items() if one.version < newest]
        self._missing = len(behind)
        return [self._ask(shard, newest) for shard in behind]

    def expects(self, answer: Pulled) -> bool:
        """Whether `answer` is one that is waited for."""
        return self._open.get(answer.shard) == answer.request and answer.epoch >= self._epochs.get(answer.shard, 0)

    def moved(self, shard: int, epoch: int, *, pulling: bool) -> list[Pull]:
        """Turn to the shard's new server, under `epoch`; return what must be asked of it.

        Parameters
        ----------
        pulling
            Whether the parameters are still being fetched: then what the server before it has answered is asked again.
        """
        if epoch <= self._epochs.get(shard, 0):
            return []
        self._epochs[shard] = epoch
        answered = self._content.get(shard)
        if shard in self._open:
            return [self._ask(shard, self._version)]
        if pulling and answered is not None and answered.epoch < epoch:
            self._missing += 1
            return [self._ask(shard, self._version)]
        return []

    def cancel(self) -> None:
        """Make every open request void."""
        self._open.clear()

    @property
    def enough(self) -> bool:
        """Whether as many shards have answered as the rule asks for."""
        return self._missing <= 0

    @property
    def complete(self) -> bool:
        """Whether every shard that was asked has answered."""
        return not self._open and len(self._content) == self.shards

    @property
    def waiting_for(self) -> list[int]:
        """The shards that have not answered yet."""
        return sorted(self._open)

    @property
    def label(self) -> Label | None:
        """The versions and epochs at hand once every shard has answered, or the pull is content without the others."""
        if not self.complete:
            return None
        answers = [self._content[shard] for shard in range(self.shards)]
        return Label(tuple(one.version for one in answers), tuple(one.epoch for one in answers))

    @property
    def decided_in(self) -> int:
        """The highest term in which a version at hand may have been decided."""
        return max([one.decided_in for one in self._content.values()], default=0)

    def _asked(self, gradient: tuple[int, int]) -> list[int]:
        everybody = range(self.shards)
        if self._whole or not self.rule.subset:
            return list(everybody)
        # Here, because a pull needs no numpy.
        from numpy.random import Generator, Philox, SeedSequence  # noqa: PLC0415

        random = Generator(Philox(SeedSequence(self.seed, spawn_key=(_DRAWS, *gradient))))
        return sorted(random.permutation(self.shards)[: self.rule.count(self.shards)].tolist())

    def _ask(self, shard: int, version: int) -> Pull:
        self._request += 1
        self._open[shard] = self._request
        self._wanted[shard] = version
        return Pull(self.member, shard, self._request, version, self._epochs.get(shard, 0))
