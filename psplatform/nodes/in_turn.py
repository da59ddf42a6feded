"""What a node is told is handled one after the other, also where an effect leads to the next event at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class InTurn:
    """The order in which a node handles events: one that comes while another is handled waits until that is done."""

    _following: list[tuple[Callable[[Any], None], Any]] | None = None

    def _take_in_turn(self, handle: Callable[[Any], None], event: Any) -> None:
        """Call `handle` with an event, and then with what has come meanwhile.

        All of them are handled; then what the first that failed has raised is raised.
        """
        if self._following is not None:
            self._following.append((handle, event))
            return
        self._following = [(handle, event)]
        failure: Exception | None = None
        try:
            for its_handler, one in self._following:
                try:
                    its_handler(one)
                except Exception as error:  # noqa: BLE001  it is the caller's, once nothing waits for it
                    failure = failure or error
        finally:
            self._following = None
        if failure is not None:
            raise failure
