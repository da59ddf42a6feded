"""What a run would not survive as it stands: roles that share a place, and roles that nothing would take over from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Place = Callable[[str], str]
"""What a Dask worker's address stands for: its process, or its host."""


def itself(address: str) -> str:
    """Return the address: every Dask worker is a process of its own."""
    return address


def host_of(address: str) -> str:
    """Return the host in a Dask worker's address."""
    return address.rpartition("://")[2].rpartition(":")[0]


def weak_points(standing: Mapping[str, Any], roles: Mapping[str, str], place: Place) -> list[str]:
    """Return in words why the run cannot lose any one `place`; nothing where it can.

    Parameters
    ----------
    standing, roles
        As `Run.standing` and `Run.roles` tell them.
    """
    found = []
    places = {name: place(peer.address) for name, (_, peer) in standing["copies"].items()}
    for shard, one in enumerate(standing["shards"]):
        server = places.get(one["server"], "")
        others = {places[name] for name in one["in_sync"] if name in places}
        if not others:
            found.append(f"shard {shard} has no replica in sync")
        elif others <= {server}:
            found.append(f"server and replica of shard {shard} share {server}")
    lead, standby = place(standing["lead"].address), roles.get("standby")
    if not standing["stands_by"] or standby is None:
        found.append("the coordinator has no standby")
    elif place(standby) == lead:
        found.append(f"coordinator and standby share {lead}")
    return found


def roles_at(standing: Mapping[str, Any], roles: Mapping[str, str], place: Place, where: str) -> list[str]:
    """Return what a place holds, in words: the roles by kind, with their numbers where there are several."""
    serving = {one["server"] for one in standing["shards"]}
    kinds = Counter(_kind(name, standing, serving) for name, address in roles.items() if place(address) == where)
    return [kind if count == 1 else f"{count} {kind}s" for kind, count in sorted(kinds.items())]


def _kind(name: str, standing: Mapping[str, Any], serving: set[str]) -> str:
    if name in standing["copies"]:
        shard = standing["copies"][name][0]
        return f"{'server' if name in serving else 'replica'} {shard}"
    return next((kind for kind in ("coordinator", "standby", "evaluator") if name.startswith(kind)), "worker")
