"""A trial is the same in every process: no order hangs on how Python hashes names."""

from __future__ import annotations

import subprocess
import sys

# Copies of two shards fall silent at one moment; they were lost in another order in each process.
TRIAL = """
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.threads import one_thread
with one_thread():
    run = Execution(draw(82820))
    verdict = run.to_its_end()
print(verdict.invariant, verdict.events, run.run.records)
"""


def told(hash_seed: int) -> str:
    command = [sys.executable, "-c", TRIAL]
    environment = {"PYTHONHASHSEED": str(hash_seed), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trial_is_the_same_whatever_names_hash_to() -> None:
    assert told(1) == told(2)
