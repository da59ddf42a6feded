"""The durations of everything in a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.protocol.messages import GRADIENTS, STATE, UPDATE, Contribution, Pull, Pulled, Transfer, Welcome
from psplatform.core.protocol.names import COORDINATOR, Role, first_server
from psplatform.jobs.stragglers import SlowServers
from psplatform.simulation.network import Links, Network
from psplatform.simulation.run_times import Traced
from psplatform.simulation.world import SimulatedWorld

MEGABYTE = 1e6
WORKER, OTHER, THIRD = (Role.member(f"w{number}") for number in range(3))
SERVER = Role.copy(first_server(0))
EVALUATOR = Role.member("evaluator")


def world(**given: Any) -> SimulatedWorld:
    return SimulatedWorld(Traced(((1.0, 2.0), (3.0,))), seed=5, shard_bytes=(MEGABYTE, MEGABYTE), **given)


def linked(**fields: Any) -> SimulatedWorld:
    """Make a world of interfaces that let a megabyte through in a second."""
    return world(network=Network(Links((0.008,), latency_s=0.25, **fields), 0))


def pulled(shard: int = 0) -> Pulled:
    return Pulled(shard, request=1, version=0, epoch=1)


def test_without_network_and_slow_servers_only_computing_takes_time() -> None:
    one = world()
    assert one.deliver(SERVER, WORKER, pulled(), 0.0) == [0.0]
    assert (one.reach_s("w0", 0, 0.0), one.gather_s(0, 7), one.evaluation_s()) == (0.0, 0.0, 0.0)
    assert [one.compute_s(0, sequence) for sequence in (1, 2, 3)] == [1.0, 2.0, 1.0]


def test_content_takes_its_transfer_and_every_message_the_latency_once() -> None:
    one = linked()
    assert one.deliver(SERVER, WORKER, pulled(), 0.0) == [1.25]
    assert one.deliver(WORKER, SERVER, Pull("w0", 0, 1, 0), 0.0) == [0.25]
    assert one.deliver(COORDINATOR, WORKER, Welcome(1, 0, 1), 0.0) == [0.25]
    assert one.reach_s("w0", 0, now=9.0) == 1.25


def test_a_gradient_leaves_for_its_shards_one_after_the_other() -> None:
    one = linked()
    assert [one.reach_s("w0", shard, 0.0) for shard in range(2)] == [1.25, 2.25]


def test_gradients_that_are_compressed_take_less_time_than_content() -> None:
    one = linked()
    one.gradient_bytes = (MEGABYTE / 2, MEGABYTE / 4)
    assert [one.reach_s("w0", shard, 0.0) for shard in range(2)] == [0.75, 1.0]
    assert one.deliver(SERVER, WORKER, pulled(), 9.0) == [1.25]


def test_workers_of_one_host_share_its_interface() -> None:
    together, apart = linked(workers_per_host=2), linked()
    for one, second in ((together, 2.25), (apart, 1.25)):
        # From two servers, so that these do not stand in each other's way.
        found = [
            one.deliver(Role.copy(first_server(shard)), who, pulled(shard), 0.0)
            for shard, who in enumerate((WORKER, OTHER))
        ]
        assert found == [[1.25], [second]]
        assert one.deliver(SERVER, THIRD, pulled(), 9.0) == [1.25]


def test_servers_of_one_host_share_its_interface() -> None:
    for one, second in ((linked(servers_per_host=2), 2.25), (linked(), 1.25)):
        found = [one.reach_s(f"w{shard}", shard, 0.0) for shard in range(2)]
        assert found == [1.25, second]


def test_a_server_answers_its_workers_one_after_the_other() -> None:
    one = linked()
    assert [one.deliver(SERVER, who, pulled(), 0.0) for who in (WORKER, OTHER)] == [[1.25], [2.25]]


def transfer(kind: str, shard: int = 0, contributions: tuple[Contribution, ...] = ()) -> Transfer:
    return Transfer("s", shard, 1, 1, kind, 7, 7, 0.1, (), contributions=contributions)


REPLICA = Role.copy("replica-0-1")


def test_what_replicas_are_sent_takes_its_transfer_too() -> None:
    """One vector for an update, all of the optimiser's for a state, through the interface that answers pulls."""
    assert linked().deliver(SERVER, REPLICA, transfer(UPDATE), 0.0) == [1.25]
    one = linked()
    one.state_vectors = 3
    assert one.deliver(SERVER, REPLICA, transfer(STATE), 0.0) == [3.25]
    assert one.deliver(SERVER, WORKER, pulled(), 0.0) == [4.25]


def test_gradients_reach_a_replica_from_their_workers_once_it_is_told_which() -> None:
    one = linked()
    named = tuple(Contribution(f"w{slot}", slot, 1) for slot in range(2))
    assert one.deliver(SERVER, REPLICA, transfer(GRADIENTS, contributions=named), 0.0) == [2.5]
    assert one.deliver(SERVER, WORKER, pulled(), 0.0) == [1.25]  # the server's interface carried nothing
    assert one.reach_s("w0", 0, 0.0) == 2.25  # the workers' did, once they were asked
    assert one.deliver(SERVER, REPLICA, transfer(GRADIENTS), 9.0) == [0.25]


def test_replicas_have_hosts_of_their_own_as_many_on_each_as_servers() -> None:
    """Four shards, two servers on a host: the replicas of the first and third share one, if two share one."""
    for per_host, second in ((2, 2.25), (1, 1.25)):
        one = linked(servers_per_host=per_host)
        one.shard_bytes = (MEGABYTE,) * 4
        found = [
            one.deliver(Role.copy(first_server(shard)), Role.copy(f"replica-{shard}"), transfer(UPDATE, shard), 0.0)
            for shard in (0, 2)
        ]
        assert found == [[1.25], [second]]


def test_a_late_answer_takes_its_place_at_the_interface_when_it_is_sent() -> None:
    """Two are late together, one behind the other; what goes before them is not held up."""
    one = linked()
    one.slow_servers = SlowServers((0,), seconds=10.0, chance=1.0)
    assert [one.deliver(SERVER, who, pulled(), 0.0) for who in (WORKER, OTHER)] == [[11.25], [12.25]]
    assert one.deliver(SERVER, REPLICA, transfer(UPDATE), 5.0) == [1.25]


def test_answers_are_late_in_the_requests_in_which_those_of_a_real_run_are() -> None:
    slow = SlowServers((1,), seconds=2.0, chance=0.4)
    one = world(slow_servers=slow)
    found = [one.deliver(Role.copy(first_server(1)), WORKER, pulled(1), 0.0)[0] for _ in range(30)]
    assert found == [slow.delay(5, 1, request) for request in range(30)]
    assert set(found) == {0.0, 2.0}
    assert one.deliver(SERVER, WORKER, pulled(0), 0.0) == [0.0]
    assert one.deliver(WORKER, Role.copy(first_server(1)), Pull("w0", 1, 1, 0), 0.0) == [0.0]


def test_the_evaluator_costs_nothing_and_changes_nothing() -> None:
    one = linked()
    one.slow_servers = SlowServers((0,), seconds=10.0, chance=1.0)
    assert one.deliver(SERVER, EVALUATOR, pulled(), 0.0) == [0.0]
    assert one.deliver(EVALUATOR, SERVER, Pull("evaluator", 0, 1, 0), 0.0) == [0.0]
    one.slow_servers = None
    assert one.deliver(SERVER, WORKER, pulled(), 0.0) == [1.25]


@pytest.mark.parametrize("gradients", [1, 6])
def test_a_server_adds_up_gradients_one_after_the_other(gradients: int) -> None:
    assert world(update_s=0.5).gather_s(0, gradients) == 0.5 * gradients
