"""The standby's node: what it says, claims and becomes goes to whom it concerns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from psplatform.core.protocol.effects import Claim, Depart, Send, TakeOver
from psplatform.core.protocol.messages import Acknowledged
from psplatform.core.protocol.names import COORDINATOR
from psplatform.nodes.standby import StandbyNode


def test_what_a_standby_asks_for_is_done_by_whom_it_concerns() -> None:
    effects = [Send(COORDINATOR, Acknowledged(2, 5)), Claim(2), TakeOver(2), Depart("the run is over")]
    done: list[Any] = []
    seen: list[Any] = []

    def handle(event: Any, now: float) -> list[Any]:
        seen.append((event, now))
        return effects

    node = StandbyNode(
        SimpleNamespace(handle=handle),  # type: ignore[arg-type]
        lambda: 4.0,
        send=done.append,
        claim=done.append,
        take_over=lambda: done.append("takes over"),
        depart=done.append,
    )
    node.feed("an event")
    assert seen == [("an event", 4.0)]
    assert done == [effects[0], effects[1], "takes over", "the run is over"]
