"""A planner that knows nothing: what a run promises must hold whatever is planned."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from psplatform.core.protocol.messages import Carried
from psplatform.core.transfers import Grant, Offer, PullGrant, PullPlan, PullRequest, TransferPlan

_LONGEST_S: Final = 0.3
"""A grant begins after so long at the latest."""

_ENDS_S: Final = (0.0, 0.1, 2.0)
_SUMMED: Final = (1, 2, 2, 3, 4)
_SKIPPED: Final = 0.7


class RandomPlanner:
    """Lets offers go alone, together or not yet, and workers pull from anybody, by chance; drops none.

    Parameters
    ----------
    seed
        Of its chances: the same offers at the same times get the same grants.
    aggregators
        Hosts that may sum what others send.
    tick_s
        Seconds until the next plan.
    """

    def __init__(self, seed: int, aggregators: Sequence[str], tick_s: float) -> None:
        self._chance = random.Random(f"plans {seed}")
        self._aggregators, self.tick_s = aggregators, tick_s
        self._sooner = random.Random(f"sooner {seed}")
        self._later: dict[int, float] = {}
        """When gradients are sent that are not sent at once, by key."""

    @property
    def servers(self) -> Sequence[tuple[str, float]]:
        """None: it does not care where they are."""
        return ()

    @property
    def sums(self) -> bool:
        """Whether there are aggregators."""
        return bool(self._aggregators)

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        """Grant nothing, mostly, so that offers meet; else cut them, in any order, into groups."""
        chance, granted = self._chance, list[Grant]()
        if chance.random() < (_SKIPPED if len(offers) > 1 else 0.9):
            return TransferPlan((), (), tuple(one.key for one in offers))
        left = chance.sample(list(offers), len(offers))
        while left:
            size = chance.choice(_SUMMED)
            some, left = left[:size], left[size:]
            hosts = [host for host in self._aggregators if able is None or host in able]
            aggregator = chance.choice([None, *hosts, *hosts])
            groups = [some] if aggregator else [[one] for one in some]
            granted += [self._grant(each, aggregator, now) for each in groups]
        return TransferPlan(tuple(granted), (), ())

    @property
    def relays(self) -> bool:
        """Whether any host may hand parameters on: those that may sum, too."""
        return bool(self._aggregators)

    def plan_pulls(self, waiting: Sequence[PullRequest], now: float, able: Collection[str] | None = None) -> PullPlan:
        """Let half of those that wait be sent the parameters now, most of them through a relay."""
        chance, hosts = self._chance, [host for host in self._aggregators if able is None or host in able]
        granted = [
            PullGrant(one.key, chance.choice([None, *hosts, *hosts]), now + chance.choice(_ENDS_S))
            for one in waiting
            if chance.random() < 0.5
        ]
        return PullPlan(tuple(granted), now + self.tick_s)

    def pulled(self, key: int, begin: float, end: float) -> None:
        """Learn nothing."""

    def settle_pull(self, key: int) -> None:
        """Learn nothing."""

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        """Grant one offer in eight at once."""
        return self._grant([offer], None, now) if self._chance.random() < 0.125 else now + self._chance.random()

    def _grant(self, offers: Sequence[Offer], aggregator: str | None, now: float) -> Grant:
        begins = tuple(now + self._chance.choice([0.0, self._chance.uniform(0, _LONGEST_S)]) for _ in offers)
        end = max(begins) + self._chance.choice(_ENDS_S)
        keys = tuple(one.key for one in offers)
        self._later.update(zip(keys, begins, strict=True))
        return Grant(keys, begins, aggregator, end)

    def begins(self, now: float) -> dict[int, tuple[float, float]]:
        """Let half of what has not begun begin sooner, or at once."""
        self._later = {key: begin for key, begin in self._later.items() if begin > now}
        chosen = [key for key in self._later if self._sooner.random() < 0.5]
        found = {key: self._sooner.choice([now, self._sooner.uniform(now, self._later[key])]) for key in chosen}
        self._later.update(found)
        return {key: (begin, math.inf) for key, begin in found.items()}

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        """Learn nothing."""

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None:
        """Learn nothing."""

    def count(self, count: Carried, now: float) -> tuple[float, float]:
        """Learn nothing."""
        return math.inf, math.inf

    def settle(self, key: int) -> None:
        """Forget nothing."""

    def serve(self, shard: int, host: str, now: float) -> None:
        """Learn nothing."""
