"""What coordinators hear of gradients is what checks go by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from psplatform.core.protocol.messages import Announce, Label
from psplatform.simulation.faults.checks.announced import AnnouncedGradients


def lead(term: int, member: str) -> Any:
    """Return a coordinator of that term, in whose second slot that member is."""
    roster = SimpleNamespace(by_name={member: SimpleNamespace(slot=1, interrupted=())})
    coordinator = SimpleNamespace(state=SimpleNamespace(roster=roster), takeover=SimpleNamespace(awaited_shards=()))
    return SimpleNamespace(name=f"coordinator-{term}", lead=SimpleNamespace(term=term, coordinator=coordinator))


def announce(member: str, version: int) -> Announce:
    return Announce(member, 3, Label((version,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)


def test_what_one_that_is_cut_off_hears_of_a_worker_of_its_own_does_not_count() -> None:
    gradients = AnnouncedGradients()
    gradients.judge(lead(2, "w-2.1"), announce("w-2.1", 2), ())
    gradients.judge(lead(3, "w-2"), announce("w-2", 3), ())
    gradients.judge(lead(2, "w-2.1"), announce("w-2.1", 2), ())
    assert gradients.labels == {(1, 3): Label((3,), (1,))}
    gradients.judge(lead(3, "w-2"), announce("w-2", 4), ())
    assert gradients.labels == {(1, 3): Label((4,), (1,))}, "it has computed it again"
