"""What a run survives, from where its roles are."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.core.supervision.survival import (
    HOST,
    NOTHING,
    PROCESS,
    STORE,
    ZONE,
    Place,
    Roles,
    ShardPlaces,
    Survival,
    survives,
)


def at(name: str) -> Place:
    """Return a place of that name: ``a1`` is process 1 on host a, ``xa1`` that in zone x."""
    zone, host = name[:-2], name[-2]
    return Place(name, host, zone)


def roles(coordinator: str, standbys: str, *shards: tuple[str, str]) -> Roles:
    places = tuple(ShardPlaces(at(server), tuple(map(at, replicas.split()))) for server, replicas in shards)
    return Roles(at(coordinator), tuple(map(at, standbys.split())), places)


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        (roles("a1", "b1", ("a1", "b1")), Survival(HOST)),
        (roles("a1", "b1", ("a1", "b1"), ("b1", "a1")), Survival(HOST)),
        (roles("a1", "b1", ("a1", "b1"), ("c1", "b1")), Survival(HOST)),
        (
            roles("a1", "a2", ("a1", "b1")),
            Survival(PROCESS, "the coordinator and its standby are on one host (a)"),
        ),
        (
            roles("a1", "b2", ("a1", "a2")),
            Survival(PROCESS, "the server and the replica of shard 0 are on one host (a)"),
        ),
        (roles("a1", "b1", ("a1", "")), Survival(NOTHING, "shard 0 has no replica in sync")),
        (roles("a1", "", ("a1", "b1")), Survival(NOTHING, "the coordinator has no standby")),
        (
            roles("a1", "a1", ("a1", "a1")),
            Survival(
                NOTHING,
                "the coordinator and its standby are in one process; "
                "the server and the replica of shard 0 are in one process",
            ),
        ),
        (roles("xa1", "yb1", ("xa1", "yb1")), Survival(ZONE)),
        (
            roles("xa1", "yb1", ("xa1", "xb2")),
            Survival(HOST, "the server and the replica of shard 0 are in one zone (x)"),
        ),
    ],
)
def test_the_largest_loss_that_is_survived_and_why_no_larger(placed: Roles, expected: Survival) -> None:
    assert survives(placed) == expected


def test_one_replica_elsewhere_is_enough() -> None:
    assert survives(roles("a1", "a2 b1", ("a1", "a2 b1"))).what == HOST


def test_many_weak_places_are_counted() -> None:
    found = survives(roles("a1", "", *[("a1", "")] * 5))
    assert found.why.endswith("; shard 0 has no replica in sync; shard 1 has no replica in sync; and 3 more")


def test_a_replica_in_the_store_outlives_every_host() -> None:
    placed = Roles(at("a1"), (at("b1"),), (ShardPlaces(at("a1"), (STORE,)),))
    assert survives(placed) == Survival(HOST)


def test_a_server_that_is_only_in_the_store_is_not_lost() -> None:
    """It is being made of what the store keeps: its shard has no process that could be lost."""
    assert survives(Roles(at("a1"), (at("b1"),), (ShardPlaces(STORE),))).what == HOST


PLACES = st.sampled_from([at(zone + host + number) for zone, host, number in product(("x", "y"), "abc", "12")])


@st.composite
def some_roles(draw: st.DrawFn) -> Roles:
    some = st.lists(PLACES, max_size=2).map(tuple)
    shards = draw(st.lists(st.builds(ShardPlaces, PLACES, some), min_size=1, max_size=3))
    return Roles(draw(PLACES), draw(some), tuple(shards))


@given(some_roles())
def test_what_is_said_to_be_survived_is(placed: Roles) -> None:
    """Take each process, host and zone away: something of every shard is left, and a coordinator or standby."""

    def outlives(lost: set[Place]) -> bool:
        seats = [{placed.coordinator, *placed.standbys}, *({one.server, *one.in_sync} for one in placed.shards)]
        return all(seat - lost for seat in seats)

    everywhere = [at(zone + host + number) for zone, host, number in product(("x", "y"), "abc", "12")]
    by = {PROCESS: lambda one: one.process, HOST: lambda one: one.host, ZONE: lambda one: one.zone}
    true = [
        name
        for name, part in by.items()
        if all(outlives({one for one in everywhere if part(one) == lost}) for lost in set(map(part, everywhere)))
    ]
    found = survives(placed)
    assert (found.what in true) or not true
    assert found.what != NOTHING or PROCESS not in true
    if found.what in true and HOST in true and PROCESS in true:
        assert found.what == (ZONE if ZONE in true else HOST)
    assert bool(found.why) == (found.what != ZONE)
