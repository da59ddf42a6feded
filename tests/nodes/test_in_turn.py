"""What a node is told while it handles something is handled after that, whatever became of it."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.nodes.in_turn import InTurn


class Node(InTurn):
    """A node that is told of more by what it handles, and fails at what a test says."""

    def __init__(self, leads_to: dict[str, list[str]], fails_at: str = "") -> None:
        self.seen: list[str] = []
        self._leads_to, self._fails_at = leads_to, fails_at

    def feed(self, event: str) -> None:
        self._take_in_turn(self._handle, event)

    def _handle(self, event: str) -> None:
        self.seen.append(f"{event} begins")
        for one in self._leads_to.get(event, []):
            self.feed(one)
        if event in self._fails_at:
            raise ValueError(event)
        self.seen.append(event)


def ended(node: Node) -> list[Any]:
    return [one for one in node.seen if not one.endswith("begins")]


def test_what_comes_meanwhile_is_handled_afterwards_in_its_order() -> None:
    node = Node({"a": ["b", "c"], "b": ["d"]})
    node.feed("a")
    assert node.seen == ["a begins", "a", "b begins", "b", "c begins", "c", "d begins", "d"]


def test_nothing_is_lost_by_a_failure_and_the_first_one_is_raised() -> None:
    node = Node({"a": ["b", "c"], "b": ["d"]}, fails_at="ac")
    with pytest.raises(ValueError, match="a") as raised:
        node.feed("a")
    assert raised.value.__notes__ == ["then ValueError: c"]
    assert ended(node) == ["b", "d"]
    node.feed("e")
    assert ended(node) == ["b", "d", "e"]
