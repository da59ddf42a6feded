"""How long each worker takes for a gradient, told from when it was released and when it pushed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(slots=True)
class Pace:
    """What is known of the worker in a slot.

    Attributes
    ----------
    started_at
        Time of its last release.
    pushed_at
        Time of its last push, or ``None`` before the first.
    interval_s
        Seconds from the release to that push: the distance of its last two pushes, had it not waited in between.
    pushes
        Pushes since it joined.
    """

    started_at: float
    pushed_at: float | None = None
    interval_s: float | None = None
    pushes: int = 0


class Paces:
    """The pace of every slot; another process in a slot begins with none.

    Policies call `forget` for a worker that was never released, `start` when they release it and `push` when its
    gradient comes.  A slot nobody is in keeps its last pace until then, so readers ask for live workers only.
    """

    def __init__(self) -> None:
        self._by_slot: dict[int, Pace] = {}

    def forget(self, slot: int) -> None:
        """Know nothing of `slot`: its process is a new one."""
        self._by_slot.pop(slot, None)

    def start(self, slot: int, now: float) -> None:
        """Begin to measure the worker in `slot`, which goes on."""
        self._by_slot.setdefault(slot, Pace(now)).started_at = now

    def push(self, slot: int, now: float) -> None:
        """Count a push of the worker in `slot`."""
        pace = self._by_slot.get(slot)
        if pace is not None:
            pace.pushed_at, pace.interval_s, pace.pushes = now, now - pace.started_at, pace.pushes + 1

    def of(self, slot: int) -> Pace | None:
        """Return the pace of the worker in `slot`, or ``None`` if it was never released."""
        return self._by_slot.get(slot)

    def state(self) -> list[list[float | int | None]]:
        """Return one row of plain values per slot."""
        return [[slot, *astuple(self._by_slot[slot])] for slot in sorted(self._by_slot)]

    def restore(self, rows: Sequence[Sequence[float | int | None]]) -> None:
        """Continue from what `state` returned."""
        self._by_slot = {int(row[0]): Pace(*row[1:]) for row in rows}  # type: ignore[arg-type]  # as `state` wrote it
