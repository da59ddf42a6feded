"""A job as plain values, and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.distributions import Constant as ConstantTime
from psplatform.jobs.distributions import Distribution, Uniform
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD, Adam, Additive, Group
from psplatform.jobs.planning import description_of, protection_of
from psplatform.jobs.replication import Bounded, Chain, NoReplication
from psplatform.jobs.schedules import Cosine, StepDecay
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.policies.ssp import StaleSynchronous

FULL = {
    "workload": "mlp",
    "options": {"samples": "500"},
    "optimizer": SGD(lr=0.1, momentum=0.9, groups=(Group("*.bias", weight_decay=0.0),)),
    "schedule": StepDecay(milestones=(3, 7), gamma=0.5, warmup=2),
    "clip_norm": 2.0,
    "policy": "ssp",
    "policy_options": {"bound": 5},
    "workers": 4,
    "max_workers": 6,
    "shards": 3,
    "resources": {"worker": {"GPU": 1}},
    "batch_size": 16,
    "micro_batches": 2,
    "sampling": "replacement",
    "seed": 2**62,
    "stop": Stop(updates=50, target_loss=0.25),
    "evaluate_every": None,
    "store": "runs/a.zarr",
    "stragglers": "shifted-exponential:shift=0.02,mean=0.04;slow:chance=0.1,factor=5;factors:1,2",
    "slow_servers": "shards=0+2,seconds=1,chance=0.05",
    "replication": Chain(replicas=2),
    "checkpoints": "200",
    "network": {"fabric": {"tick_s": 0.5}},
}


def through_json(job: Job, **options: Any) -> dict[str, Any]:
    """Return the plain form as a store gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(job.to_plain(**options), allow_nan=False))
    return found


@pytest.mark.parametrize("fields", [{"workload": "digits"}, FULL], ids=["defaults", "everything"])
def test_a_job_of_a_workload_survives_its_plain_form(fields: dict[str, Any]) -> None:
    job = Job(**fields)
    plain = through_json(job)
    assert plain["callables"] == []
    again = Job.from_plain(plain)
    assert {name: getattr(again, name) for name in Job.model_fields} == dict(job)


STORED: dict[str, Any] = {
    "model": None,
    "loss": None,
    "data": None,
    "test": None,
    "task": None,
    "workload": "mlp",
    "options": {"samples": "100", "spread": 2},
    "optimizer": {
        "name": "adam",
        "lr": 1.0,
        "betas": [0.9, 0.999],
        "eps": 1e-08,
        "weight_decay": 0.0,
        "groups": [{"match": "*.bias", "betas": [0.5, 0.6]}],
    },
    "schedule": {"name": "step", "milestones": [3.0, 7.0], "gamma": 0.1, "warmup": 2},
    "clip_norm": None,
    "policy": "ssp",
    "policy_options": {"bound": "2"},
    "workers": None,
    "max_workers": None,
    "shards": 1,
    "block_elements": 65536,
    "resources": {},
    "batch_size": 32,
    "micro_batches": 1,
    "sampling": "epoch",
    "seed": 0,
    "stop": {"updates": 10, "epochs": 2, "seconds": None, "target_loss": None, "target_accuracy": None},
    "evaluate_on": "held-out",
    "evaluate_every": 50,
    "store": None,
    "replication": {
        "mode": "bounded",
        "max_divergence": 3,
        "unit": "updates",
        "replicas": 2,
        "source": "server",
        "target": "replica",
        "on_replica_loss": "continue",
        "on_isolation": "wait",
    },
    "checkpoints": {"every_updates": 5, "every_seconds": 60.0, "keep": 3},
    "device": "auto",
    "transport": "auto",
    "torch_threads": None,
    "stragglers": {
        "distribution": "uniform:low=1,high=2",
        "factors": [1, 2],
        "slow_chance": 0.0,
        "slow_factor": 1.0,
        "trace": None,
    },
    "slow_servers": {"shards": [0, 2], "seconds": 1, "chance": 0.5},
    "worker_lease_s": 15.0,
    "server_lease_s": 30.0,
    "absence_limit_s": 60.0,
    "finish_limit_s": 120.0,
    "replication_asked": True,
    "callables": [],
}


def test_a_plain_form_has_every_field() -> None:
    assert set(Job(workload="digits").to_plain()) == {*Job.model_fields, "replication_asked", "callables"}


def test_a_trace_of_run_times_is_plain() -> None:
    stragglers = Stragglers(trace=((0.1, 0.2), (0.3,)), factors=(2.0,))
    job = Job.from_plain(through_json(Job(workload="digits", stragglers=stragglers)))
    assert job.stragglers == stragglers


@pytest.mark.parametrize(("asked", "fields"), [(False, {}), (True, {"replication": Bounded()})])
def test_whether_replication_was_asked_for_is_remembered(asked: bool, fields: dict[str, Any]) -> None:
    """A replica that nobody asked for is given up where there is no process for it; one that was asked for is not."""
    job = Job(workload="digits", **fields)
    assert (job.replication, job.replication_asked) == (Bounded(), asked)
    assert Job.from_plain(through_json(job)).replication_asked is asked
    assert Job.from_plain(through_json(job), replication="chain").replication_asked


def test_what_has_no_plain_form_is_named_and_must_be_given_again() -> None:
    job = Job(model=list, loss=min, data=[1, 2], test=[3], seed=7)
    plain = through_json(job)
    assert plain["callables"] == ["model", "loss", "data", "test"]
    with pytest.raises(ConfigurationError, match=r"job.s loss, test .* give loss, test again") as caught:
        Job.from_plain(plain, model=list, data=[1, 2])
    assert caught.value.field == "loss"
    again = Job.from_plain(plain, model=list, loss=min, data=[1, 2], test=None)
    assert (again.model, again.test, again.seed) == (list, None, 7)


class OwnSchedule:
    def factor(self, updates: int, epochs: float) -> float:
        return 1.0


class OwnTime(ConstantTime):
    pass


def test_own_policies_schedules_and_distributions_have_no_plain_form() -> None:
    slow = Stragglers(distribution=OwnTime(0.1))
    job = Job(
        workload="digits",
        policy=StaleSynchronous(bound=2),
        schedule=OwnSchedule(),
        stragglers=slow,
        options={"x": object()},
    )
    assert job.to_plain()["callables"] == ["options", "schedule", "policy", "stragglers"]


def test_a_registered_policy_is_plain_under_its_name() -> None:
    plain = through_json(Job(workload="digits", policy=StaleSynchronous(bound=2)), policy="ssp")
    assert (plain["policy"], plain["policy_options"]["bound"], plain["callables"]) == ("ssp", 2, [])


def test_another_policy_does_not_inherit_the_parameters() -> None:
    job = Job.from_plain(through_json(Job(**FULL)), policy="bsp")
    assert (job.policy, job.policy_options) == ("bsp", {})


def test_the_same_policy_named_again_keeps_its_parameters() -> None:
    job = Job.from_plain(through_json(Job(**FULL)), policy=FULL["policy"])
    assert job.policy_options == FULL["policy_options"]


def test_what_is_given_overrides_the_description() -> None:
    job = Job.from_plain(through_json(Job(**FULL)), shards=1, store="elsewhere")
    assert (job.shards, job.store, job.workers) == (1, "elsewhere", 4)


def test_a_path_becomes_its_text() -> None:
    assert Job(workload="mnist", options={"folder": Path("data")}).to_plain()["options"] == {"folder": "data"}


def test_an_option_without_a_number_in_json_becomes_a_text() -> None:
    assert Job(workload="digits", policy_options={"bound": math.inf}).to_plain()["policy_options"] == {"bound": "inf"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stragglers": {"factor": [1]}}, 'stragglers have no "factor"; did you mean "factors"?'),
        ({"stragglers": {"factors": 3}}, "factors must be finite numbers above 0, not 3"),
        ({"stragglers": {"factors": ["fast"]}}, "factors must be finite numbers above 0, not ['fast']"),
        ({"stragglers": {"trace": [3]}}, "trace must be tuples of finite numbers of at least 0, not [3]"),
        ({"stragglers": {"distribution": "gamma"}}, '"gamma" is no distribution'),
        (
            {"slow_servers": {"shards": [0]}},
            "slow_servers: seconds is missing: seconds by which they answer later; give it a value",
        ),
        ({"slow_servers": {"shard": 0}}, 'slow servers have no "shard"'),
    ],
)
def test_a_wrong_description_of_slowness_is_refused_by_field(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Job(workload="digits", **fields)
    assert sentence in str(caught.value)
    assert caught.value.field == next(iter(fields))


def test_slow_servers_survive_their_plain_form() -> None:
    slow = SlowServers((0, 2), 1.0, 0.5)
    assert SlowServers.from_plain(slow.to_plain()) == slow


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam(), Additive()])
def test_workers_may_send_to_copies_whatever_the_optimizer_is(optimizer: Any) -> None:
    """A copy takes the same step from the same gradients."""
    job = Job(workload="digits", optimizer=optimizer, replication=Chain(source="workers"))
    protection = protection_of(job.replication, job.shards)
    assert protection is not None
    assert protection.from_workers


def test_replication_and_checkpoints_can_be_given_in_words() -> None:
    job = Job(workload="digits", replication="none", checkpoints="none", schedule=Cosine(10))
    assert (job.replication, job.checkpoints) == (NoReplication(), Checkpoints.never())


def test_the_log_tells_how_a_run_is_protected() -> None:
    job = Job(workload="digits", replication=Bounded(max_divergence=0.5), checkpoints=200)
    described = description_of(job, "r1", "digits", 2)
    assert described["replication"] == Bounded(max_divergence=0.5).to_plain()
    assert described["checkpoints"] == {"every_updates": 200, "every_seconds": None, "keep": 3}
    assert description_of(job, "r1", "digits", 2, replication={"mode": "none"})["replication"] == {"mode": "none"}


def test_a_distribution_is_what_its_words_say() -> None:
    """`OwnTime` says the words of its base, which is why it must be given again."""
    assert isinstance(OwnTime(0.1), Distribution)
    assert str(OwnTime(0.1)) == str(ConstantTime(0.1))


def test_a_description_that_an_earlier_version_stored_is_read() -> None:
    """Numbers may be whole where they are floats now, options texts, and the order of names another."""
    assert Job.from_plain(STORED) == Job(
        workload="mlp",
        options={"samples": "100", "spread": 2},
        optimizer=Adam(lr=1.0, groups=(Group("*.bias", betas=(0.5, 0.6)),)),
        schedule=StepDecay((3.0, 7.0), warmup=2),
        policy="ssp",
        policy_options={"bound": "2"},
        stop=Stop(updates=10, epochs=2.0),
        replication=Bounded(max_divergence=3, unit="updates", replicas=2),
        checkpoints=Checkpoints(5, 60.0),
        stragglers=Stragglers(Uniform(1.0, 2.0), factors=(1.0, 2.0)),
        slow_servers=SlowServers((0, 2), 1.0, 0.5),
    )
