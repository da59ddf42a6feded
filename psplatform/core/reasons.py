"""Why a gradient was not applied.  The kinds are counted, the details are read by people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STALE: Final = "stale"
NON_FINITE: Final = "non-finite"
ABORTED: Final = "aborted"
STOPPED: Final = "stopped"
LOST: Final = "lost"
OVERTAKEN: Final = "overtaken"
LOST_VERSION: Final = "lost version"
DUPLICATE: Final = "duplicate"
NOT_SENT: Final = "not sent"

MEANINGS: Final[Mapping[str, str]] = {
    STALE: "It was computed on an old version, and the policy takes the present one only.",
    NON_FINITE: "Its loss or norm was not a finite number.",
    ABORTED: "Its worker was told to stop: the model had moved on.",
    STOPPED: "It was under way when the run ended.",
    LOST: "Its worker was lost before every shard could reach it.",
    OVERTAKEN: "It was held until a later gradient of the same worker was applied.",
    LOST_VERSION: "It was computed on a version that was lost with a server.",
    DUPLICATE: "Its batch was dealt twice, by coordinators that took over from each other, and counts once.",
    NOT_SENT: "It would have come too late, or held up others; it was dropped where it was computed.",
}
"""What each kind means, in a sentence."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A countable kind and one clause in words.

    Attributes
    ----------
    kind
        ``stale`` (computed on an old version), ``non-finite``, ``aborted`` (interrupted because the model moved on),
        ``stopped`` (arrived after the last commit), ``lost`` (its worker died first), ``overtaken`` (held until a later
        one of its slot was applied), ``lost version`` (computed on a version that was lost with a server),
        ``duplicate`` (its batch was dealt twice, by coordinators that took over from each other), ``not sent``
        (dropped where it was computed, because it would have come too late or held up others), or a kind of a policy's
        own.
    detail
        What happened, with the figures that decided.
    """

    kind: str
    detail: str


def stale(label: int, version: int) -> Reason:
    """Return the reason for a gradient of version `label` that meets a model at `version`."""
    what = f"version {label}" if label >= 0 else "a version that nobody knows any more"
    return Reason(STALE, f"computed on {what}, the model is at {version}")
