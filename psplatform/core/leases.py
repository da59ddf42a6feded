"""Who has been silent for too long.

A member holds a lease that every sign of life renews.  Silence is judged on the receiver's clock alone.  Whoever may
not act once it is replaced asks for a *lease* of so many seconds and counts them from the moment at which it asked, on
its own clock and with a margin; who gave it counts from the later moment at which it heard.  So the holder stops before
the giver goes on without it, as long as their clocks run equally fast within the margin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MARGIN: Final = 0.1
"""By which part of its lease a holder stops early: clocks of two hosts, drifting or slewed, differ by far less."""


def entitlement(sent_at: float, seconds: float, margin: float = MARGIN) -> float:
    """Return until when, on its own clock, the holder may act that asked at `sent_at` and was given `seconds`."""
    return sent_at + seconds * (1.0 - margin)


@dataclass
class Leases:
    """Leases by name.

    Parameters
    ----------
    duration_s
        Silence after which a lease is over.
    """

    duration_s: float
    _heard_at: dict[str, float] = field(default_factory=dict)

    def renew(self, name: str, now: float) -> None:
        """Note a sign of life of `name`, which gets a lease if it had none."""
        # Reinserting keeps the dictionary ordered by age, so that the next to expire is always the first.
        self._heard_at.pop(name, None)
        self._heard_at[name] = now

    def forget(self, name: str) -> None:
        """Note that `name` is gone for another reason."""
        self._heard_at.pop(name, None)

    def expire(self, now: float) -> list[str]:
        """Take out and return the names whose lease is over, longest silent first."""
        over = []
        for name, heard_at in self._heard_at.items():
            if now - heard_at < self.duration_s:
                break
            over.append(name)
        for name in over:
            del self._heard_at[name]
        return over

    def silence(self, name: str, now: float) -> float:
        """Return for how many seconds `name` has been silent."""
        return now - self._heard_at.get(name, now)
