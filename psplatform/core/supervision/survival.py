"""What a run survives as its roles are placed now: the loss of any one process, of any one host, of any one zone.

A loss is survived if it leaves for each shard its server or a replica in sync, and the coordinator or a standby.  The
scheduler's process is no role of the run: its loss ends the run wherever the roles are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

NOTHING: Final = "nothing"
PROCESS: Final = "any one process"
HOST: Final = "any one host"
ZONE: Final = "any one zone"

_COORDINATOR: Final = "the coordinator"
_NAMED: Final = 3
"""Weak places that are named; the others are counted."""


class Place(NamedTuple):
    """Where a role is: a process, its host and its zone (empty where none was given)."""

    process: str
    host: str
    zone: str = ""


STORE: Final = Place("the store", "the store", "the store")
"""Where a replica is that is kept in the store: no loss of a process, host or zone takes it away."""


@dataclass(frozen=True, slots=True)
class ShardPlaces:
    """Where the copies of a shard are that count: its server, and the replicas in sync."""

    server: Place
    in_sync: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Roles:
    """Where the roles of a run are, in the order of the shards."""

    coordinator: Place
    standbys: tuple[Place, ...] = ()
    shards: tuple[ShardPlaces, ...] = ()


@dataclass(frozen=True, slots=True)
class Survival:
    """The largest loss that a run survives, and why it survives no larger one.

    Attributes
    ----------
    what
        `NOTHING`, `PROCESS`, `HOST` or `ZONE`.
    why
        The places that would have to change for more, in words; empty where there is no more to survive.
    """

    what: str
    why: str = ""


def survives(roles: Roles) -> Survival:
    """Return the largest loss that a run survives whose roles are where `roles` says."""
    if flaws := _flaws(roles, lambda place: place.process, "in one process"):
        return Survival(NOTHING, flaws)
    if flaws := _flaws(roles, lambda place: place.host, "on one host ({})"):
        return Survival(PROCESS, flaws)
    if not any(place.zone for seat in _seats(roles).values() for place in seat if place != STORE):
        return Survival(HOST)
    if flaws := _flaws(roles, lambda place: place.zone, "in one zone ({})"):
        return Survival(HOST, flaws)
    return Survival(ZONE)


def _seats(roles: Roles) -> dict[str, tuple[Place, ...]]:
    """Return by its words each part of the run that must outlive a loss, and the places that have it."""
    seats = {_COORDINATOR: (roles.coordinator, *roles.standbys)}
    return seats | {f"shard {shard}": (one.server, *one.in_sync) for shard, one in enumerate(roles.shards)}


def _flaws(roles: Roles, part: Callable[[Place], str], where: str) -> str:
    """Return in words what the loss of one `part` of the cluster may take away whole; empty where there is nothing."""
    found = []
    for what, places in _seats(roles).items():
        parts = {part(place) for place in places} - {""}
        if STORE in places or len(parts) > 1:
            continue
        leads, plural = what == _COORDINATOR, "s" if len(places) > 2 else ""
        if len(places) == 1:
            found.append(f"{what} has no {'standby' if leads else 'replica in sync'}")
            continue
        all_of_them = f"{what} and its standby{plural}" if leads else f"the server and the replica{plural} of {what}"
        found.append(f"{all_of_them} are {where.format(parts.pop()) if parts else 'in no zone that is known'}")
    more = len(found) - _NAMED
    return "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
