"""The evaluator of a run: in which process it is, and which takes its place when it is lost: pure.

It is replaced wherever there is a process, but for a while apart from servers where one has died by itself: what killed
it would kill them next.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from psplatform.core.protocol.events import EvaluationLost
from psplatform.core.supervision.decisions import (
    EVALUATOR,
    AskOfDeath,
    Decision,
    LetGo,
    Report,
    Rules,
    StartEvaluator,
    Surroundings,
)

_NEVER: Final = float("inf")


@dataclass(slots=True)
class EvaluatorSupervisor:
    """Decides who evaluates.

    Where a method takes `usable` and `busy`, these are the addresses of processes that can take a role, and of those
    with a gradient worker.

    Attributes
    ----------
    name, address
        Of the evaluator; empty while there is none.
    opened
        Whether it has given a sign of life.
    lost
        The one before, as long as it is not known of what it died.
    wanted_at
        When another is to be started.
    apart_until
        Until when it waits for a process apart from servers: not at all where others have ended the last.
    """

    rules: Rules
    around: Surroundings
    name: str = ""
    address: str = ""
    opened: bool = False
    lost: str = ""
    wanted_at: float = _NEVER
    apart_until: float = -_NEVER

    @property
    def was_never_wanted(self) -> bool:
        """Whether the run has no evaluator and has had none."""
        return not self.name and not self.lost and self.wanted_at == _NEVER

    def adopt(self, name: str, address: str) -> None:
        """Go on with one that a coordinator before has started."""
        self.name, self.address, self.opened = name, address, True

    def start(self, address: str) -> StartEvaluator:
        """Start one there."""
        self.name, self.address, self.opened = self.around.next_name(EVALUATOR), address, False
        self.lost, self.wanted_at, self.apart_until = "", _NEVER, -_NEVER
        return StartEvaluator(self.name, address)

    def start_anywhere(self, usable: Collection[str], busy: Collection[str]) -> StartEvaluator:
        """Start one where it disturbs the fewest: beside a server only where there is no other process."""
        return self.start(self._place(usable, busy))

    def move(self, usable: Collection[str], busy: Collection[str]) -> StartEvaluator:
        """Start it elsewhere: its process lacks what it needs."""
        self.address = self._place(usable, busy)
        return StartEvaluator(self.name, self.address)

    def lose(self, reason: str) -> list[Decision]:
        """Let go of the one that is lost; another is wanted once it was asked of what it died."""
        asked = AskOfDeath(self.name, self.address, is_evaluator=True, opened=self.opened)
        self.name, self.address, self.lost, self.opened = "", "", self.name, False
        self.wanted_at, self.apart_until = _NEVER, -_NEVER
        return [LetGo(asked.name), Report(EvaluationLost(reason)), asked]

    def on_death(self, name: str, now: float, *, by_itself: bool) -> None:
        """Learn of what the one that was lost has died; now another is wanted."""
        if name == self.lost:
            self.lost, self.wanted_at = "", now + self.rules.replace_after_s
            self.apart_until = self.wanted_at + self.rules.deserted_s if by_itself else self.wanted_at

    def replace(self, usable: Collection[str], busy: Collection[str], now: float) -> list[Decision]:
        """Start another if one is wanted now and there is a place for it."""
        if self.name or now < self.wanted_at:
            return []
        apart = set(usable) - set(self.around.copies) - {self.around.home}
        if now < self.apart_until and not apart:
            return []  # a nanny may start a process that no server shares with it
        if self.apart_until > self.wanted_at and apart:
            return [self.start(min(apart, key=lambda one: (one in busy, one)))]
        return [self.start_anywhere(usable, busy)]

    def _place(self, usable: Collection[str], busy: Collection[str]) -> str:
        serving = {*self.around.copies, self.around.home}
        return min(set(usable) - set(busy), key=lambda one: (one in serving, one), default=self.around.home)
