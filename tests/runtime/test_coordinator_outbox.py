"""Whom a coordinator tells where a worker is that others are to send to, or to pull from."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Release, Route
from psplatform.core.protocol.names import Role
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.runtime.actors.coordinator.outbox import CoordinatorOutbox


class Workers:
    """Notes what workers are sent; all of those in `there` have heard everything."""

    def __init__(self, *there: str) -> None:
        self.there, self.sent = there, list[tuple[str, Any]]()

    def place_of(self, name: str) -> ActorAt | None:
        return ActorAt(name, f"tcp://{name}:1", name, part="worker") if name in self.there else None

    def has_heard_all(self, name: str) -> bool:
        return True

    def send(self, name: str, message: Any) -> None:
        self.sent.append((name, message))


@pytest.fixture
def workers() -> Workers:
    return Workers("a", "b")


@pytest.fixture
def outbox(workers: Workers) -> CoordinatorOutbox:
    parts: Any = None, None, workers, None
    return CoordinatorOutbox(*parts)


def release(relay: str) -> Release:
    return Release(1, 5, 3, None, relay=relay)


@pytest.mark.parametrize("message", [Route(1, 5, 2, "b"), release("b")], ids=["route", "release"])
def test_a_worker_is_told_once_where_another_is_before_it_needs_that(
    outbox: CoordinatorOutbox, workers: Workers, message: Any
) -> None:
    for _ in range(2):
        outbox.send(Send(Role.member("a"), message))
    outbox.send(Send(Role.member("c"), message))
    place = ActorAt("b", "tcp://b:1", "b", part="worker")
    assert workers.sent == [("a", place), ("a", message), ("a", message), ("c", place), ("c", message)]


@pytest.mark.parametrize("message", [Route(1, 5), Route(1, 5, 2, "a"), release(""), release("a")], ids=repr)
def test_a_worker_needs_no_place_of_servers_or_of_itself(
    outbox: CoordinatorOutbox, workers: Workers, message: Any
) -> None:
    outbox.send(Send(Role.member("a"), message))
    assert workers.sent == [("a", message)]


def test_a_worker_that_is_gone_has_no_place_and_may_have_one_later(outbox: CoordinatorOutbox, workers: Workers) -> None:
    message = Route(1, 5, 2, "z")
    outbox.send(Send(Role.member("a"), message))
    workers.there = ("z",)
    outbox.send(Send(Role.member("a"), message))
    assert [one for _, one in workers.sent if isinstance(one, ActorAt)] == [
        ActorAt("z", "tcp://z:1", "z", part="worker")
    ]


def test_a_release_is_not_the_answer_to_a_worker_that_must_be_told_a_place_before(
    outbox: CoordinatorOutbox, workers: Workers
) -> None:
    with outbox.answering("a") as answers:
        outbox.send(Send(Role.member("a"), release("b")))
    assert (answers, len(workers.sent)) == ([], 2)
    with outbox.answering("a") as answers:
        outbox.send(Send(Role.member("a"), release("b")))
    assert answers == [release("b")]
