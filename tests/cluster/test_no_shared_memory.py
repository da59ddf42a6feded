"""A run on hosts whose shared memory is full, as containers often have little: everything is sent instead."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psplatform as ps
from psplatform.runtime.dataplane import segments

LIMIT_S = 180.0


@pytest.mark.parametrize("replication", [ps.Chain(), ps.Bounded()], ids=["chain", "bounded"])
def test_it_learns_the_same_without_room_and_says_so(
    start_here: Any,
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    replication: Any,
) -> None:
    found = []
    with caplog.at_level(logging.WARNING, segments.LOGGER.name), start_here(5) as client:
        for full in (False, True):
            if full:
                monkeypatch.setattr(os, "posix_fallocate", _refuse)
            fields = {"store": str(tmp_path / f"{full}.zarr"), "replication": replication}
            run = ps.train(ps.Job(**small | fields), client)
            assert run.wait(LIMIT_S)["applied"] >= 20
            found.append(run.parameters()[0])
            run.close()
    for name, expected in found[0].items():
        assert np.array_equal(found[1][name], expected), name
    said = [one.getMessage() for one in caplog.records if one.name == segments.LOGGER.name]
    assert said
    assert all("sent instead" in one for one in said)


def _refuse(file: int, start: int, size: int) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")
