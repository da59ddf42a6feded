"""What a relay hands on, and when it asks for something newer."""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import HandOn, Send
from psplatform.core.workers.relay import Relay


def handed_on(effects: list[Any]) -> list[tuple[str, msg.Pulled]]:
    return [(one.member, one.answer) for one in effects if isinstance(one, HandOn)]


def asked(effects: list[Any]) -> list[msg.Pull]:
    return [one.message for one in effects if isinstance(one, Send)]


def test_what_a_server_said_of_its_version_travels_unchanged() -> None:
    relay = Relay("r", 2)
    (pull,) = asked(relay.handle(msg.Pull("a", 1, 7, 4), 0.0))
    assert (pull.member, pull.shard, pull.version) == ("r", 1, 4)
    effects = relay.handle(msg.Pulled(1, pull.request, 5, 2, 3), 0.0)
    assert handed_on(effects) == [("a", msg.Pulled(1, 7, 5, 2, 3))]
    assert handed_on(relay.handle(msg.Pull("b", 1, 9, 5, 2), 0.0)) == [("b", msg.Pulled(1, 9, 5, 2, 3))]


def test_it_asks_once_for_all_who_wait_and_again_for_what_is_newer() -> None:
    relay = Relay("r", 1)
    (pull,) = asked(relay.handle(msg.Pull("a", 0, 1, 4), 0.0))
    assert asked(relay.handle(msg.Pull("b", 0, 1, 4), 0.0)) == []
    effects = relay.handle(msg.Pulled(0, pull.request, 4, 1, 1), 0.0)
    assert [member for member, _ in handed_on(effects)] == ["a", "b"]
    assert [one.version for one in asked(relay.handle(msg.Pull("a", 0, 2, 5), 0.0))] == [5]
