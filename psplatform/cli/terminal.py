"""What commands print: texts of any origin, of which a terminal obeys nothing."""

from __future__ import annotations

import re
from typing import Final

import click

_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls: escape sequences begin with one
    r"\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # what turns the direction round, or is unseen
    r"\ud800-\udfff]"  # halves of characters, which no encoding has
)
_BREAK: Final = re.compile(r"[\t\n]")
_SHOWN: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: object, *, lines: bool = False) -> str:
    """Return a text without what a terminal would obey, or show out of its place: each such character is marked.

    Parameters
    ----------
    lines
        Whether it may have several, as a traceback has; else they become one.
    """
    shown = _UNSAFE.sub(_SHOWN, str(text))
    return shown if lines else _BREAK.sub(" ", shown)


def say(text: object, *, err: bool = False) -> None:
    """Print a line."""
    click.echo(printable(text), err=err)
