"""Messages, events and effects: nobody changes them, and where Python runs in its development mode, nobody can."""

from __future__ import annotations

import subprocess
import sys

from psplatform.core.protocol.messages import Label

LIMIT_S = 180.0

CHANGES_ONE = """
from dataclasses import FrozenInstanceError
from psplatform.core.protocol.messages import Label
try:
    Label((1,), (0,)).versions = (2,)
except FrozenInstanceError:
    print("refused")
"""


def in_development_mode(*arguments: str) -> str:
    """Return what Python prints in its development mode, given these arguments."""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return ended.stdout


def test_they_are_equal_and_keys_by_what_they_hold() -> None:
    assert Label((1,), (0,)) == Label((1,), (0,))
    assert len({Label((1,), (0,)), Label((1,), (0,)), Label((2,), (0,))}) == 2


def test_in_development_mode_they_cannot_be_changed() -> None:
    assert in_development_mode("-c", CHANGES_ONE).split() == ["refused"]


def test_nobody_changes_them_in_runs_with_faults() -> None:
    assert "0 violations" in in_development_mode(
        "-m", "psplatform", "simulate", "digits", "--fuzz", "40", "--seed", "3710000"
    )
