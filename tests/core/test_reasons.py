"""Every kind of reason says what it means."""

from __future__ import annotations

from psplatform.core import reasons


def test_every_kind_has_words() -> None:
    """One sentence, in the order in which the kinds are named."""
    kinds = [value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)]
    assert len(kinds) >= 7
    assert list(reasons.MEANINGS) == kinds
    assert all(one.endswith(".") and "\n" not in one for one in reasons.MEANINGS.values())
