"""A thread that looks at a run from beside, again and again, as a program that is attached to it would."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.bench.faults.weak_points import Place, itself, weak_points
from psplatform.client.run import Run
from psplatform.errors import PsplatformError

_POLL_S: Final = 0.2
_END_S: Final = 2.0
"""A look may last a minute, while a coordinator is searched for; it ends with the client at the latest."""


@dataclass(frozen=True, slots=True)
class Look:
    """The run at one moment.

    Attributes
    ----------
    began, at
        When it was begun and what it found was known, by this machine's monotonic clock.
    phase
        As `Run.status` tells it.
    weak, weak_hosts
        Why it could not lose any one process, or any one host; nobody knows where there is no `standing`.
    standing, roles
        As `Run.standing` and `Run.roles` tell them; empty where the coordinator could not be asked.
    """

    began: float
    at: float
    phase: str
    weak: list[str]
    weak_hosts: list[str]
    standing: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the run could lose any one process."""
        return bool(self.standing) and not self.weak

    @property
    def is_spread(self) -> bool:
        """Whether it could lose any one host."""
        return bool(self.standing) and not self.weak_hosts


class Onlooker:
    """Looks at a run until it is over, or until `close`.

    Parameters
    ----------
    run
        For the thread alone: what else looks at the run needs a handle of its own.
    place
        Which host an address is on.
    """

    def __init__(self, run: Run, place: Place) -> None:
        self._run, self._place = run, place
        self._looks: list[Look] = []
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._go_on, name="onlooker", daemon=True)
        self._thread.start()

    def since(self, at: float) -> list[Look]:
        """Return the looks that were taken after `at`, in order."""
        with self._changed:
            return [one for one in self._looks if one.at > at]

    def newest(self) -> Look | None:
        """Return the last look, if there is one."""
        with self._changed:
            return self._looks[-1] if self._looks else None

    def wait(self, seconds: float) -> None:
        """Wait for another look, but not for longer."""
        with self._changed:
            self._changed.wait(seconds)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()
        self._thread.join(_END_S)

    def _go_on(self) -> None:
        while not self._closing.wait(_POLL_S):
            look = self._look()
            with self._changed:
                self._looks.append(look)
                self._changed.notify_all()
            if look.phase == "over":
                return

    def _look(self) -> Look:
        began = time.monotonic()
        try:
            status = self._run.status()
            phase, failure = status["phase"], status["failure"]
        except (PsplatformError, OSError, TimeoutError, RuntimeError) as error:
            return Look(began, time.monotonic(), "unknown", [str(error)], [str(error)])
        if phase == "over":
            told = str(failure) if failure is not None else str(status["summary"]["detail"])
            return Look(began, time.monotonic(), phase, [], [], failure=told)
        try:
            standing, roles = self._run.standing(), self._run.roles()
        except (PsplatformError, OSError, TimeoutError) as error:
            return Look(began, time.monotonic(), phase, [str(error)], [str(error)])
        weak, weak_hosts = (weak_points(standing, roles, place) for place in (itself, self._place))
        return Look(began, time.monotonic(), phase, weak, weak_hosts, standing, roles)


def seconds_until(looks: list[Look], begin: float, *, of_hosts: bool) -> float | None:
    """Return the seconds from `begin` until the run was safe for good, 0 where it always was.

    ``None`` where it was not by the last look.
    """
    spans = spans_of(looks, math.inf, of_hosts=of_hosts)
    if not spans:
        return 0.0 if looks else None
    end = spans[-1][1]
    return end - begin if math.isfinite(end) else None


def spans_of(looks: list[Look], end: float, *, of_hosts: bool) -> list[tuple[float, float]]:
    """Return from when to when a run could not have lost any one process, or any one host; the last may last to `end`.

    A span begins with the begin of the first look that found it so, and ends with the first that found it otherwise.
    """
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for one in looks:
        if one.is_spread if of_hosts else one.is_safe:
            if since is not None:
                spans.append((since, one.at))
            since = None
        elif since is None:
            since = one.began
    return spans if since is None else [*spans, (since, max(since, end))]
