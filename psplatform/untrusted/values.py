"""Plain values of bounded depth: walking through them by recursion comes to an end."""

from __future__ import annotations

import json
from typing import Any, Final

import msgpack

DEEPEST: Final = 32
"""Lists and maps inside each other: what psplatform writes has at most eight."""


class Refused(ValueError):
    """Something is not read any further; the message says in a few words why."""


def from_json(data: bytes | str, deepest: int = DEEPEST) -> Any:
    """Return the value that JSON text describes.

    Raises
    ------
    ValueError
        If it is no JSON; `Refused` if it is nested deeper than that.  The message is one line.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise Refused(_too_deep(deepest)) from None
    require_shallow(value, deepest)
    return value


def from_msgpack(data: bytes, deepest: int = DEEPEST) -> Any:
    """Return the value that msgpack bytes describe.

    Raises
    ------
    Refused
        If they are none, or nested deeper than that.
    """
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise Refused(f"it is no msgpack ({type(error).__name__})") from None
    require_shallow(value, deepest)
    return value


def require_shallow(value: Any, deepest: int = DEEPEST) -> None:
    """Refuse lists and maps that are nested deeper than that, those that contain themselves included.

    Raises
    ------
    Refused
        If they are.
    """
    level: list[Any] = [value]
    for _ in range(deepest + 1):
        level = [one for inner in level for one in _parts(inner)]
        if not level:
            return
    raise Refused(_too_deep(deepest))


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return [one for one in value.values() if isinstance(one, dict | list | tuple)]
    if isinstance(value, list | tuple):
        return [one for one in value if isinstance(one, dict | list | tuple)]
    return ()


def _too_deep(deepest: int) -> str:
    return f"it is nested more than {deepest} levels deep"
