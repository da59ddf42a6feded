"""Roles move apart again when there is a better place for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from psplatform.core.supervision.placement import Process
from psplatform.core.supervision.survival import HOST, Place, Roles, ShardPlaces, survives
from psplatform.runtime.pools.moves import Move, Seats, moves


def at(name: str) -> Process:
    return Process(f"tcp://{name[0]}:{name[1]}", name[0], {})


def address(name: str) -> str:
    return at(name).address


def cluster(names: str) -> list[Process]:
    return [at(name) for name in names.split()]


def seats(lead: str, standby: str, *shards: tuple[str, str], busy: str = "") -> Seats:
    """Return the seats of a run: of each shard the server and its replicas, named by shard and number."""
    replicas = tuple(
        {f"r{shard}{number}": address(name) for number, name in enumerate(names.split())}
        for shard, (_, names) in enumerate(shards)
    )
    copies = [(shard, address(server)) for shard, (server, _) in enumerate(shards)]
    copies += [(shard, place) for shard, group in enumerate(replicas) for place in group.values()]
    return Seats(
        lead=address(lead),
        standbys=tuple(map(address, standby.split())),
        servers=tuple(address(server) for server, _ in shards),
        replicas=replicas,
        copies=tuple(copies),
        busy=frozenset(map(address, busy.split())),
    )


def found(processes: str, placed: Seats, *, wanted: int = 1, able: str | None = None) -> list[Move]:
    known = cluster(processes)
    return list(moves(known, placed, {one.address for one in (known if able is None else cluster(able))}, wanted))


def test_what_is_apart_stays() -> None:
    assert found("a1 a2 b1 b2", seats("a1", "b1", ("a1", "b1"), ("b1", "a1"))) == []


def test_a_replica_on_its_servers_host_moves_to_another() -> None:
    move = Move("r00", address("a2"), address("b1"), "moved away from the host of another copy of shard 0")
    assert found("a1 a2 b1", seats("a1", "b1", ("a1", "a2"))) == [move]


def test_a_standby_on_its_coordinators_host_moves_to_another() -> None:
    move = Move("", address("a2"), address("b1"), "moved away from the host of its coordinator")
    assert found("a1 a2 b1", seats("a1", "a2", ("a1", "b1"))) == [move]


def test_nothing_moves_to_a_process_that_is_cold_or_not_to_be_hired() -> None:
    assert found("a1 a2 b1", seats("a1", "a2", ("a1", "a2")), able="a1 a2") == []


def test_a_replica_beside_a_gradient_worker_moves_to_an_idle_process() -> None:
    (move,) = found("a1 b1 b2", seats("a1", "b1", ("a1", "b1"), busy="b1"))
    assert (move.name, move.to, move.reason) == ("r00", address("b2"), "moved away from a gradient worker")
    assert found("a1 a2 b1", seats("a1", "b1", ("a1", "b1"), busy="b1")) == [], "but not to its server's host"


def test_of_more_replicas_than_wanted_the_nearest_goes() -> None:
    (move,) = found("a1 a2 b1", seats("a1", "b1", ("a1", "a2 b1")))
    assert (move.name, move.to) == ("r00", "")


def test_a_shard_that_lacks_a_replica_keeps_what_it_has() -> None:
    assert found("a1 a2 b1", seats("a1", "b1", ("a1", "a2")), wanted=2) == []


def test_two_replicas_are_on_two_other_hosts() -> None:
    move, *_ = found("a1 b1 b2 c1", seats("a1", "b1", ("a1", "b1 b2")), wanted=2)
    assert move.to == address("c1")


NAMES = st.sampled_from([host + number for host in "abc" for number in "12"])


@st.composite
def runs(draw: st.DrawFn) -> Seats:
    two = st.lists(NAMES, min_size=2, max_size=2, unique=True).map(tuple)
    shards = draw(st.lists(two, min_size=1, max_size=3))
    lead, standby = draw(two)
    return seats(lead, standby, *shards)


def carried_out(placed: Seats, move: Move) -> Seats:
    """Return where everybody is after a move."""
    if not move.name:
        return Seats(placed.lead, (move.to,), placed.servers, placed.replicas, placed.copies, placed.busy)
    shard = int(move.name[1])
    replicas = list(placed.replicas)
    replicas[shard] = {name: place for name, place in replicas[shard].items() if name != move.name}
    replicas[shard] |= {move.name: move.to} if move.to else {}
    copies = [one for one in placed.copies if one != (shard, move.place)] + ([(shard, move.to)] if move.to else [])
    return Seats(placed.lead, placed.standbys, placed.servers, tuple(replicas), tuple(copies), placed.busy)


@given(runs())
def test_moved_one_after_the_other_they_end_up_apart(placed: Seats) -> None:
    """From wherever failovers have left the roles, on three hosts of two processes, to a run that survives any host."""
    processes = cluster("a1 a2 b1 b2 c1 c2")
    able = {one.address for one in processes}
    for _ in range(1 + len(placed.servers)):
        move = next(moves(processes, placed, able, 1), None)
        if move is None:
            break
        placed = carried_out(placed, move)
    assert next(moves(processes, placed, able, 1), None) is None, "it comes to rest"

    def place(told: str) -> Place:
        return Place(told, Process.at(told).host)

    shards = zip(placed.servers, placed.replicas, strict=True)
    told = Roles(
        place(placed.lead),
        tuple(map(place, placed.standbys)),
        tuple(ShardPlaces(place(server), tuple(map(place, group.values()))) for server, group in shards),
    )
    assert survives(told).what == HOST
