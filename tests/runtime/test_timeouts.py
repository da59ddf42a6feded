"""The deadlines and pauses of the Dask driver."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from psplatform.runtime.timeouts import TIMEOUTS, Timeouts

ROOT = Path(__file__).resolve().parents[2] / "psplatform"


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="beat_s must be below shortest_lease_s: a lease is renewed by beats"):
        replace(TIMEOUTS, beat_s=TIMEOUTS.shortest_lease_s)


def test_each_is_used() -> None:
    source = "\n".join(path.read_text() for path in ROOT.rglob("*.py"))
    used = set(re.findall(r"TIMEOUTS\.(\w+)", source))
    assert used == {one.name for one in fields(Timeouts)}
