"""What a node is told is handled one after the other, also where an effect leads to the next event at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class InTurn:
    """The order in which a node handles events: one that comes while another is handled waits until that is done."""

    _following: list[tuple[Callable[[Any], None], Any]] | None = None

    def _take_in_turn(self, handle: Callable[[Any], None], event: Any) -> None:
        """Call `handle` with an event, and then the handlers of those that have come meanwhile.

        Raises
        ------
        Exception
            The first that a handler has raised, when all have been called; later ones are added to it as notes.
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
                except Exception as error:  # noqa: BLE001  raised below
                    if failure is not None:
                        failure.add_note(f"then {type(error).__name__}: {error}")
                    failure = failure or error
        finally:
            self._following = None
        if failure is not None:
            raise failure
