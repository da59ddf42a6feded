"""What an actor answers its coordinator with the acknowledgment: nothing overtakes it, and it is not lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from psplatform.core.protocol.messages import Applied, Beat, InSync
from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.core.protocol.wire import encode
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.lines import Line

OTHER = InSync(0, 1, "replica-0-0", 1)
BEAT = Beat("server-0", 1.0)


def applied(position: int) -> Applied:
    return Applied(0, 1, position, position, ())


class ALine:
    """Keeps what it is given; nothing of it is acknowledged as long as it is not idle."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.is_idle = True

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def retarget(self, peer: Peer) -> None:
        self.sent.append(peer.address)


class AnActor:
    """Says what it is told to whenever it hears something."""

    def __init__(self) -> None:
        self.line = ALine()
        self.coordinator = CoordinatorLine(Peer("tcp://first", "key"))
        self.coordinator.open(cast(Line, self.line))

    def hear(self, said: Any, *messages: Any, sender: str = "coordinator-1") -> Sequence[Any]:
        with self.coordinator.answering(sender, said) as answers:
            for message in messages:
                if isinstance(message, CoordinatorAt):
                    self.coordinator.turn_to(message)
                else:
                    self.coordinator.send(message)
        return answers


@pytest.fixture
def actor() -> AnActor:
    return AnActor()


def test_what_was_applied_at_once_is_answered_and_not_sent(actor: AnActor) -> None:
    assert actor.hear(b"1", applied(1), applied(2)) == [applied(1), applied(2)]
    assert actor.hear(b"2", applied(3)) == [applied(3)]
    assert actor.hear(b"3") == []
    assert actor.line.sent == []


def test_what_is_applied_later_is_sent(actor: AnActor) -> None:
    actor.hear(b"1")
    actor.coordinator.send(applied(1))
    assert actor.line.sent == [applied(1)]


def test_nothing_is_answered_before_what_was_sent_is_heard(actor: AnActor) -> None:
    actor.line.is_idle = False
    assert actor.hear(b"1", applied(1)) == []
    assert actor.line.sent == [applied(1)]


def test_an_answer_is_repeated_before_whatever_is_sent_as_long_as_it_may_not_be_heard(actor: AnActor) -> None:
    actor.hear(b"1", applied(1))
    actor.coordinator.send(OTHER)
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), OTHER, OTHER]
    actor.hear(b"2", applied(2))
    actor.hear(b"3")  # so the answer to the second was heard
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), OTHER, OTHER, OTHER]


def test_what_is_sent_meanwhile_takes_along_what_was_to_be_answered(actor: AnActor) -> None:
    assert actor.hear(b"1", applied(1), OTHER, applied(2)) == [applied(2)]
    assert actor.line.sent == [applied(1), OTHER]


@pytest.mark.parametrize("said", [b"1", encode((applied(7),))])
def test_what_is_said_again_is_answered_again(actor: AnActor, said: bytes) -> None:
    """The answer was lost; what was done then is not done again, and may have nothing to say."""
    assert actor.hear(said, applied(1)) == [applied(1)]
    assert actor.hear(said) == [applied(1)]
    assert actor.hear(said, applied(1)) == [applied(1)], "once, as it says it again as well"
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), OTHER]


def test_a_delivery_that_comes_late_once_more_changes_nothing(actor: AnActor) -> None:
    for number in (1, 2):
        actor.hear(b"%d" % number, applied(number))
    assert actor.hear(b"1") == [applied(1)]
    assert actor.hear(b"2") == [applied(2)]
    actor.hear(b"1")
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(2), OTHER]


def test_one_that_was_not_answered_changes_nothing_either_when_it_comes_late(actor: AnActor) -> None:
    actor.hear(b"1")
    actor.hear(b"2", applied(1))
    assert actor.hear(b"1") == []
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), OTHER]


def test_what_is_applied_when_something_is_said_again_is_answered_as_well(actor: AnActor) -> None:
    actor.hear(b"1", applied(1))
    assert actor.hear(b"1", applied(1), applied(2)) == [applied(1), applied(2)]
    assert actor.hear(b"1") == [applied(1), applied(2)]
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), applied(2), OTHER]


def test_within_a_process_an_answer_is_heard_at_once(actor: AnActor) -> None:
    """Messages need not be hashable there, and nothing is repeated."""
    said = (applied(7), {"a": "dictionary"})
    for _ in range(2):
        assert actor.hear(said, applied(1)) == [applied(1)]
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [OTHER]


def test_a_sign_of_life_repeats_nothing(actor: AnActor) -> None:
    actor.hear(b"1", applied(1))
    actor.coordinator.send(BEAT)
    assert actor.line.sent == [BEAT]


def test_no_more_than_a_few_answers_are_kept(actor: AnActor) -> None:
    for number in range(100):
        actor.hear(b"%d" % number, applied(number))
    assert len(actor.coordinator._answered) == 8
    assert actor.hear(b"99") == [applied(99)]


def test_a_successor_hears_what_the_one_before_may_not_have_heard(actor: AnActor) -> None:
    actor.hear(b"1", applied(1))
    successor = CoordinatorAt(2, "tcp://second", "key")
    assert actor.hear(b"1", successor, sender="coordinator-2") == []
    assert actor.line.sent == ["tcp://second", applied(1)]


def test_what_another_coordinator_says_does_not_show_that_an_answer_was_heard(actor: AnActor) -> None:
    actor.hear(b"1", applied(1))
    assert actor.hear(b"1", sender="coordinator-2") == []
    actor.coordinator.send(OTHER)
    assert actor.line.sent == [applied(1), OTHER]


def test_without_a_line_nothing_is_answered() -> None:
    coordinator = CoordinatorLine(Peer("tcp://first", "key"))
    with coordinator.answering("coordinator-1", b"") as answers:
        coordinator.send(applied(1))
    assert answers == []
