"""Programs are started from one thread, and what keeps it busy is said in a sentence."""

from __future__ import annotations

from threading import Event

import pytest

from psplatform.dashboard import launcher
from psplatform.errors import ConfigurationError


def test_a_start_that_takes_too_long_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when it is over, the next one is taken."""
    monkeypatch.setattr(launcher, "_STARTS_S", 0.01)
    release = Event()
    try:
        with pytest.raises(ConfigurationError, match="took longer than 0.01 s"):
            launcher.launch(release.wait)
    finally:
        release.set()
    monkeypatch.setattr(launcher, "_STARTS_S", 30.0)
    assert launcher.launch(lambda: 7) == 7
