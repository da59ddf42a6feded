"""Measuring a rival in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

from psplatform.bench.measuring.rounds import Measured
from psplatform.client.clusters.forking import BEFORE_START
from psplatform.errors import ClusterError
from psplatform.runtime.allocation import environment_that_keeps

_LIMIT_S: Final = 240.0


def run_rival(name: str, workers: int, what: int | str, seconds: float, device: str = "cpu") -> Measured:
    """Return what a rival takes whose workers compute on a device; see `psplatform.bench.rivals` for what is measured.

    Raises
    ------
    ClusterError
        If it fails, or does not end in time.
    """
    arguments = ["-m", "psplatform.bench.rivals", name, str(workers), str(what), str(seconds)]
    arguments += [] if device == "cpu" else [device]
    environment = environment_that_keeps({**BEFORE_START, **os.environ})  # as our own processes that compute have it
    try:
        done = subprocess.run(  # noqa: S603  our own module
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S + seconds,
            check=True,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{name} did not end within {_LIMIT_S + seconds:g} s; leave it out of --baselines"
        raise ClusterError(text) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ClusterError(f"{name} failed ({last}); leave it out of --baselines") from error
    return Measured(**json.loads(done.stdout.splitlines()[-1]))
