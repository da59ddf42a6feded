"""Which role would be better off elsewhere, now that there are other processes or other roles than before: pure.

After a failover roles go where there is room, which may be the host of what they are to outlive.  Only replicas and
standbys are moved: another one is made in the better place first, or at once after.  A server stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.core.supervision.placement import (
    Apart,
    Process,
    apart_from_all,
    process_for_copy,
    process_for_standby,
    seats_of,
)

_PARTS: Final[Mapping[Apart, str]] = {Apart.NOT: "process", Apart.PROCESS: "host", Apart.HOST: "zone"}


@dataclass(frozen=True, slots=True)
class Seats:
    """Where the roles of a run are: addresses of processes.

    Attributes
    ----------
    servers
        By shard.
    replicas
        By shard, those in sync by their names.
    copies
        Shard and address of every copy, those that are only being made included.
    busy
        Processes with a gradient worker.
    """

    lead: str
    standbys: tuple[str, ...]
    servers: tuple[str, ...]
    replicas: tuple[Mapping[str, str], ...]
    copies: tuple[tuple[int, str], ...]
    busy: frozenset[str]


@dataclass(frozen=True, slots=True)
class Move:
    """A replica, or a standby, that would be further apart elsewhere.

    Attributes
    ----------
    name
        The replica's, empty for the standby.
    place, to
        Addresses of the processes where it is and where it would go; `to` is empty for one that only goes.
    """

    name: str
    place: str
    to: str
    reason: str


def moves(processes: Sequence[Process], seats: Seats, able: Collection[str], wanted: int) -> Iterator[Move]:
    """Return what should move, one after the other.

    Parameters
    ----------
    processes
        All that are known.
    able
        Those that are warm, and in which a role can be made.
    wanted
        Replicas that each shard shall have; of more, the nearest to another copy is to go.
    """
    unable = {one.address for one in processes}.difference(able)
    for shard, replicas in enumerate(seats.replicas):
        if len(replicas) > wanted:
            yield _surplus(processes, seats, shard)
        elif len(replicas) == wanted:
            for replica in replicas.items():
                if move := _replica_move(processes, seats, shard, replica, unable):
                    yield move
    for standby in seats.standbys:
        if move := _standby_move(processes, seats, standby, unable):
            yield move


def _replica_move(
    processes: Sequence[Process], seats: Seats, shard: int, replica: tuple[str, str], unable: Collection[str]
) -> Move | None:
    name, place = replica
    copies = [one for one in seats.copies if one != (shard, place)]
    to = process_for_copy(processes, shard, copies, seats.busy, but={place, *unable})
    others = [address for held, address in copies if held == shard]
    return _if_better(processes, (name, place, to), others, seats.busy, f"another copy of shard {shard}")


def _surplus(processes: Sequence[Process], seats: Seats, shard: int) -> Move:
    def worth(name: str) -> tuple[Apart, bool, str]:
        place = seats.replicas[shard][name]
        others = [address for held, address in seats.copies if held == shard and address != place]
        (one,) = seats_of([place], processes)
        return apart_from_all(one, seats_of(others, processes)), place not in seats.busy, name

    worst = min(seats.replicas[shard], key=worth)
    return Move(worst, seats.replicas[shard][worst], "", "let go of: another replica took its place")


def _standby_move(processes: Sequence[Process], seats: Seats, place: str, unable: Collection[str]) -> Move | None:
    replicas = {address for group in seats.replicas for address in group.values()}
    to = process_for_standby(
        processes,
        lead=seats.lead,
        standbys=[one for one in seats.standbys if one != place],
        servers=seats.servers,
        replicas=replicas,
        busy=seats.busy,
        but={place, *unable},
    )
    return _if_better(processes, ("", place, to), [seats.lead], (), "its coordinator")


def _if_better(
    processes: Sequence[Process],
    move: tuple[str, str, str | None],
    others: Sequence[str],
    busy: Collection[str],
    whose: str,
) -> Move | None:
    name, place, to = move
    if to is None:
        return None
    away = seats_of(others, processes)
    here, there = (apart_from_all(one, away) for one in seats_of([place, to], processes))
    if there > here:
        return Move(name, place, to, f"moved away from the {_PARTS[here]} of {whose}")
    if there == here and place in busy and to not in busy:
        return Move(name, place, to, "moved away from a gradient worker")
    return None
