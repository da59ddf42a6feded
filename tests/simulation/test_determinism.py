"""The same job, conditions and seed give the same log, byte for byte; another seed gives another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.jobs.job import Job
from psplatform.policies.registry import policy_names
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import Simulated, simulate

COMPUTE = "uniform:low=0.05,high=0.15;slow:chance=0.2,factor=5;regime:first=0,last=1,factor=2,from=3,until=9"
NETWORK = "nic:gbps=0.0001,latency=0.01;change:every=0.05,gbps=0.00005+0.0001,chance=0.3+0.7;hosts:workers=2,servers=1"

# What a fresh process prints: digests of simulations under every policy, and of two with gradients.
PROGRAM = f"""
import json, torch
from torch import nn
import psplatform as ps
from psplatform.policies.registry import policy_names

torch.manual_seed(0)
data = torch.randn(60, 6), torch.randint(0, 3, (60,))
loss = nn.functional.cross_entropy
fields = dict(model=lambda: nn.Linear(6, 3), loss=loss, data=data, test=data, workers=5, shards=2)
digests = dict()
for name, timing_only in [(name, True) for name in policy_names()] + [("bsp", False), ("dbw", False)]:
    job = ps.Job(**fields, policy=name, batch_size=8, seed=3, stop=ps.Stop(updates=12))
    run = ps.simulate(job, ps.Conditions({COMPUTE!r}, network={NETWORK!r}, timing_only=timing_only))
    digests[name + str(timing_only)] = run.trace_sha256
print(json.dumps(digests))
"""


def test_two_processes_with_other_hashes_and_threads_agree() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hashes, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hashes, threads in (("1", "1"), ("2", "3"))
    ]
    first, second = (json.loads(one.communicate()[0]) for one in started)
    assert first == second
    assert len(first) == len(policy_names()) + 2


@pytest.fixture
def play(small_job: Callable[..., Job]) -> Callable[..., Simulated]:
    """Simulate the small job, under stragglers and in a network that changes."""

    def run(policy: str, *, timing_only: bool, **given: Any) -> Simulated:
        conditions = Conditions(COMPUTE, network=NETWORK, timing_only=timing_only)
        return simulate(small_job(policy=policy, shards=2, **given), conditions, keep_records=True)

    return run


@pytest.mark.parametrize("timing_only", [True, False], ids=["times", "gradients"])
@pytest.mark.parametrize("policy", policy_names())
def test_a_seed_is_one_log_and_another_seed_another(
    play: Callable[..., Simulated], policy: str, *, timing_only: bool
) -> None:
    """Not only in what the first record says of the seed."""
    first, again, other = (play(policy, timing_only=timing_only, seed=seed) for seed in (1, 1, 2))
    assert first.trace_sha256 == again.trace_sha256
    assert first.records == again.records
    assert first.summary() == again.summary()
    assert first.trace_sha256 != other.trace_sha256
    assert first.records[1:] != other.records[1:]


def test_other_conditions_are_another_log(play: Callable[..., Simulated], small_job: Callable[..., Job]) -> None:
    found = {
        simulate(small_job(), conditions).trace_sha256
        for conditions in (
            Conditions(),
            Conditions(compute="constant:seconds=0.2"),
            Conditions(network="nic:gbps=1,latency=0.001"),
            Conditions(network="server:update=0.001"),
            Conditions(timing_only=True),
        )
    }
    assert len(found) == 5
