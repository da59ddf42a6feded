"""Options that several commands have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Decorator = Callable[[Any], Any]


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Return a decorator that adds click's `options` to a command, in the order in which its help shows them."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add
