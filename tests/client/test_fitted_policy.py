"""A policy with a fitted model: read where the job is started, and carried from there to the coordinator's process."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from psplatform.client.starting.prepared import Prepared, prepare, program_of
from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.replication import NoReplication
from psplatform.policies.cutoff import Cutoff
from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.state_space import Shape, first_weights
from psplatform.runtime.trial import Trial


@pytest.fixture
def model() -> bytes:
    """Make a model of three workers, of no use, in a moment."""
    shape = Shape(3, state=2, hidden=3)
    return FittedModel(shape, first_weights(shape, np.full((20, 3), 0.5), np.random.default_rng(0))).to_bytes()


@pytest.fixture
def prepared(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Prepare a job that names a model by a relative path, and remove the file."""
    monkeypatch.chdir(tmp_path)
    Path("model.npz").write_bytes(model)
    options = {"predictor": "generative", "model": "model.npz"}
    job = Job(workload="digits", policy="cutoff", policy_options=options, workers=3, stop=Stop(updates=1))
    found = prepare(job)
    Path("model.npz").unlink()
    return found


def content_of(policy: object) -> bytes:
    assert isinstance(policy, Cutoff)
    policy.check(3)
    assert policy._fitted is not None
    return policy._fitted.to_bytes()


def test_the_policy_keeps_the_model_when_it_is_pickled(prepared: Prepared, model: bytes) -> None:
    assert content_of(cloudpickle.loads(cloudpickle.dumps(prepared.policy))) == model


def test_the_program_that_processes_get_brings_the_model(prepared: Prepared, model: bytes) -> None:
    """Whoever runs it needs neither the file nor the folder that the job was started in."""
    trial = Trial(samples=100, parameters=650, evaluates=True, gradient_bytes=(2600,))
    program = program_of(prepared, trial, workers=3, replication=NoReplication())
    assert content_of(cloudpickle.loads(cloudpickle.dumps(program)).policy) == model
