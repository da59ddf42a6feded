"""What holds for every value that can be declared, and the nearest word to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

LARGEST: Final = 2**63 - 1
"""Parameters are part of the event log, whose integers have 64 bits."""

_MOST: Final = 12
"""Known words that a sentence lists."""


def nearest(word: str, known: Collection[str]) -> str:
    """Return the end of a sentence about a word that is not among the known ones."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    if not known:
        return "it has none"
    more = ", ..." if len(known) > _MOST else ""
    return f"choose from {', '.join(list(known)[:_MOST])}{more}"
