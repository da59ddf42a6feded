"""Whole simulations of jobs: the model they learn, the time they take, what is refused beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import psplatform as ps
from psplatform.core.plan import Plan, Stop
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.schedules import Constant
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.memory import MemoryRun
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.asp import Asynchronous
from psplatform.policies.registry import make_policy
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import prepare, simulate
from psplatform.simulation.threads import one_thread
from psplatform.tasks.data.sampling import gradient_seed, replacement
from psplatform.tasks.supervised import SupervisedTask

SmallJob = Callable[..., Job]

STRAGGLING = Conditions(compute="shifted-exponential:shift=0.05,mean=0.1;slow:chance=0.2,factor=5")
LINKED = Conditions(
    compute="uniform:low=0.1,high=0.3", network="nic:gbps=0.0001,latency=0.01;hosts:workers=2,servers=1"
)


def commit_times(run: Any) -> list[float]:
    return [one["at"] for one in run.records if one["kind"] == "commit"]


# --- the model ---


def serial(job: Job) -> dict[str, Tensor]:
    """Return what plain training in one loop learns: batches one after the other, averaged, one step of torch's SGD."""
    inputs, targets = job.data
    with torch.random.fork_rng():
        torch.manual_seed(job.seed)
        model = job.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        for number in range(1, job.stop.updates + 1):
            gradients = []
            for slot in range(job.workers):
                torch.manual_seed(gradient_seed(job.seed, slot, number))
                batch = replacement(job.seed, slot, number, len(inputs), job.batch_size)
                model.zero_grad()
                job.loss(model(torch.from_numpy(inputs[batch])), torch.from_numpy(targets[batch])).backward()
                gradients.append([parameter.grad.clone() for parameter in model.parameters()])
            for parameter, parts in zip(model.parameters(), zip(*gradients, strict=True), strict=True):
                total = parts[0].clone()
                for part in parts[1:]:
                    total += part
                parameter.grad = total / len(parts)
            optimizer.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def in_memory(job: Job) -> dict[str, Tensor]:
    """Return what the in-memory driver learns, where every gradient takes a second."""
    task = SupervisedTask(job.model, job.loss, job.data, job.test)
    arithmetic = TensorArithmetic(task, SGD(lr=0.1), shards=job.shards, batch_size=job.batch_size, seed=job.seed)
    plan = Plan("memory", job.workers, job.shards, arithmetic.samples, job.batch_size, job.stop, Constant())
    run = MemoryRun(plan, make_policy("bsp"), arithmetic=arithmetic)
    for number in range(job.workers):
        run.join(f"w{number}")
    run.run()
    return arithmetic.saved


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("conditions", [Conditions(), STRAGGLING, LINKED], ids=["plain", "straggling", "linked"])
def test_bsp_learns_what_the_in_memory_driver_and_a_serial_loop_learn_bit_for_bit(
    small_job: SmallJob, shards: int, conditions: Conditions
) -> None:
    job = small_job(shards=shards, sampling="replacement", optimizer=SGD(lr=0.1))
    found = simulate(job, conditions).model
    with one_thread():
        others = in_memory(job), serial(job)
    for expected in others:
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), name


def test_computing_is_in_one_thread_and_afterwards_there_are_as_many_as_before(small_job: SmallJob) -> None:
    seen: set[int] = set()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        seen.add(torch.get_num_threads())
        return nn.functional.cross_entropy(output, target)

    before = torch.get_num_threads()
    digests = set()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            digests.add(simulate(small_job(loss=loss), STRAGGLING).trace_sha256)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
    assert len(digests) == 1


def test_the_jobs_own_policy_learns_nothing_from_a_simulation(small_job: SmallJob) -> None:
    @dataclass
    class Counting(Asynchronous):
        commits = 0

        def on_commit(self, commit: Any, view: Any) -> None:
            self.commits += 1

    policy = Counting()
    job = small_job(policy=policy)
    assert simulate(job).trace_sha256 == simulate(job).trace_sha256
    assert policy.commits == 0


# --- the time ---


def test_evaluations_and_losses_take_no_time(small_job: SmallJob) -> None:
    often, never = (simulate(small_job(evaluate_every=every), LINKED, keep_records=True) for every in (1, None))
    assert commit_times(often) == commit_times(never)
    assert often.virtual_seconds == never.virtual_seconds
    assert len(often.view.evaluations) == 6
    assert [one.version for one in often.view.evaluations.items] == [1, 2, 3, 4, 5, 6]


def test_times_are_the_same_with_and_without_gradients(small_job: SmallJob) -> None:
    for policy in ("bsp", "asp", "ssp", "backup", "elastic-bsp", "psp"):
        real, timed = (
            simulate(
                small_job(policy=policy, shards=2),
                Conditions(STRAGGLING.compute, network=LINKED.network, timing_only=only),
                keep_records=True,
            )
            for only in (False, True)
        )
        assert commit_times(real) == commit_times(timed), policy
        assert real.model
        assert not timed.model


def test_content_and_gradients_queue_at_the_servers_interface() -> None:
    """A tensor of a megabyte takes a second: two pulls one after the other, then two gradients."""
    job = ps.Job(
        model=lambda: nn.Linear(249_999, 1),
        loss=nn.functional.mse_loss,
        data=(np.zeros((4, 249_999), np.float32), np.zeros((4, 1), np.float32)),
        workers=2,
        batch_size=1,
        stop=Stop(updates=1),
    )
    conditions = Conditions("constant:seconds=1", network="nic:gbps=0.008,latency=0", timing_only=True)
    run = simulate(job, conditions, keep_records=True)
    gradients = [one for one in run.records if one["kind"] == "gradient"]
    assert [(one["pull_s"], one["compute_s"], one["push_s"]) for one in gradients] == [(1, 1, 1), (2, 1, 1)]
    assert run.virtual_seconds == 4.0


@pytest.mark.parametrize(
    ("given", "clause", "seconds"),
    [
        # A model that counts as two megabytes: pulls end at 2 and 4 s, gradients at 5 and 7.
        ({}, ";model:mb=2", 7.0),
        # As above, and the version is visible once the replica has the update, a second later.
        ({"replication": ps.Chain()}, "", 5.0),
    ],
)
def test_transfers_are_as_large_as_is_said_and_replicas_are_sent_theirs(
    given: dict[str, Any], clause: str, seconds: float
) -> None:
    job = ps.Job(
        model=lambda: nn.Linear(249_999, 1),
        loss=nn.functional.mse_loss,
        data=(np.zeros((4, 249_999), np.float32), np.zeros((4, 1), np.float32)),
        workers=2,
        batch_size=1,
        stop=Stop(updates=1),
        **given,
    )
    conditions = Conditions("constant:seconds=1", network=f"nic:gbps=0.008,latency=0{clause}", timing_only=True)
    assert simulate(job, conditions).virtual_seconds == seconds


def test_stragglers_and_slow_servers_of_the_job_are_those_of_the_simulation(small_job: SmallJob) -> None:
    stragglers = Stragglers(trace=((0.5,), (0.25,), (0.75,)))
    job = small_job(stragglers=stragglers, slow_servers=SlowServers((0,), 2.0, 1.0), stop=Stop(updates=2))
    assert simulate(job).virtual_seconds == 2 * (2.0 + 0.75)


def test_a_target_is_reached_or_missed(small_job: SmallJob) -> None:
    assert simulate(small_job(stop=Stop(updates=4, target_accuracy=0.01), evaluate_every=1)).reached_target is True
    assert simulate(small_job(stop=Stop(updates=4, target_loss=-1.0), evaluate_every=1)).reached_target is False
    assert simulate(small_job()).reached_target is None


def test_a_job_that_names_no_number_of_workers_gets_eight(small_job: SmallJob) -> None:
    assert simulate(small_job(workers=None)).summary()["workers"] == 8


def test_the_summary_is_plain_and_says_what_came_of_it(small_job: SmallJob) -> None:
    run = simulate(small_job(policy="backup", policy_options={"k": 2}))
    found = run.summary()
    expected = {"policy": "backup", "outcome": "updates", "updates": 6, "store": None, "reached_target": None}
    assert expected.items() <= found.items()
    assert found["policy_parameters"]["k"] == 2
    assert found["virtual_seconds"] == pytest.approx(0.6)
    assert found["events"] == run.events > 6
    assert found["trace_sha256"] == run.trace_sha256


def test_a_fabric_drops_at_the_source_what_would_be_late(small_job: SmallJob) -> None:
    """Four workers share a server's interface, on which a gradient takes as long as it takes to compute two."""
    fields = {"policy": "delay-bounded", "policy_options": {"max_delay": 3}, "workers": 4, "stop": Stop(updates=60)}
    conditions = Conditions(compute="uniform:low=0.02,high=0.1", network="nic:gbps=1,latency=0.0001;model:mb=12.5")
    plain, planned = (
        simulate(small_job(**fields, network=network), conditions).summary() for network in ({}, {"fabric": {}})
    )
    assert "network" not in plain
    assert "not sent" not in plain["dropped"]["by_reason"]
    assert planned["updates"] == 60
    assert planned["network"]["dropped_at_source"] == planned["dropped"]["by_reason"]["not sent"] > 0
    assert planned["network"]["delay"]["max"] < 3
    assert planned["dropped"]["by_reason"].get("delay", 0) < plain["dropped"]["by_reason"]["delay"]


@pytest.mark.parametrize("policy", ["asp", "bsp", "delay-bounded", "ssp"])
@pytest.mark.parametrize(("clause", "least"), [("", 1.15), (";report:lag=0.2", 1.3)])
def test_sums_on_the_way_make_more_updates_where_the_server_is_the_bottleneck(
    small_job: SmallJob, policy: str, clause: str, least: float
) -> None:
    """Sixteen workers of equal interfaces, through which a gradient takes as long as it takes to compute.

    Without reports the rates are learned first.
    """
    conditions = Conditions("constant:seconds=0.1", network=f"nic:gbps=1,latency=0.0001;model:mb=12.5{clause}")
    stop = Stop(updates=160 if policy != "bsp" else 10)
    plain, summed = (
        simulate(
            small_job(policy=policy, workers=16, stop=stop, network={"fabric": {"aggregators": number}}), conditions
        )
        for number in (0, 16)
    )
    assert plain.summary()["updates"] == summed.summary()["updates"] == stop.updates
    assert plain.virtual_seconds > least * summed.virtual_seconds


@pytest.mark.parametrize("workers", [3, 4, 8])
@pytest.mark.parametrize("policy", ["asp", "delay-bounded"])
def test_few_hosts_lose_nothing_by_plans(small_job: SmallJob, policy: str, workers: int) -> None:
    conditions = Conditions("constant:seconds=0.1", network="nic:gbps=1,latency=0.0001;model:mb=12.5")
    stop = Stop(updates=40 * workers)
    plain, summed = (
        simulate(small_job(policy=policy, workers=workers, stop=stop, network=network), conditions)
        for network in ({}, {"fabric": {"aggregators": workers}})
    )
    assert summed.virtual_seconds <= plain.virtual_seconds / 0.97


def test_sums_make_no_other_model_but_for_rounding(small_job: SmallJob) -> None:
    """Rounds of the same gradients, added in another order."""
    conditions = Conditions("constant:seconds=0.1", network="nic:gbps=1,latency=0.0001;model:mb=12.5")
    plain, summed = (
        simulate(small_job(workers=8, network={"fabric": {"aggregators": number}}), conditions, keep_records=True)
        for number in (0, 8)
    )
    assert any(one.get("bundles") for one in summed.records if one["kind"] == "commit")
    for name, tensor in plain.model.items():
        assert torch.allclose(tensor, summed.model[name], rtol=1e-5, atol=1e-7), name


# --- what fails ---


@pytest.mark.parametrize(
    ("fields", "conditions", "sentence", "field"),
    [
        ({"policy": "backup", "policy_options": {"k": 4}}, Conditions(), "k = 4, workers = 3", "k"),
        ({"policy": "psp", "policy_options": {"push": 4}}, Conditions(), "push = 4, workers = 3", "push"),
        ({"policy": "psp", "policy_options": {"pull": 0}}, Conditions(), "pull must be above 0", "pull"),
        ({"policy": "elastic-bsp", "policy_options": {"lookahead": 0}}, Conditions(), "lookahead", "lookahead"),
        ({"policy": "nosuch"}, Conditions(), "unknown policy 'nosuch'", "policy"),
        ({"policy": "cutoff", "policy_options": {"predictor": "generative", "model": "/no/such"}}, Conditions(),
         "cannot read /no/such", "policy"),
        ({}, Conditions(compute="constant"), "constant lacks seconds", "compute"),
        ({}, Conditions(network="nic:gbps=0,latency=0"), "gbps must be a finite number above 0, not 0.0", "network"),
        ({"policy": "psp", "network": {"fabric": {}}}, Conditions(), "decides block by block", "network"),
        ({"network": {"fabric": {"aggregators": 4}}}, Conditions(), "4 aggregators need as many workers, there are 3",
         "network"),
        ({"policy": "dbw", "network": {"fabric": {"aggregators": 1}}}, Conditions(), "takes no sums", "network"),
        ({"stop": Stop(target_loss=1.0)}, Conditions(timing_only=True), "stop it by updates, epochs", "stop"),
        ({"stragglers": Stragglers(trace=((1.0,),))}, Conditions(), "the trace is of 1 workers", "stragglers"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_the_task_is_opened(
    small_job: SmallJob, fields: dict[str, Any], conditions: Conditions, sentence: str, field: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        prepare(small_job(model=lambda: pytest.fail("opened"), **fields), conditions)
    assert sentence in str(caught.value)
    assert caught.value.field == field


def test_what_only_the_task_can_tell_is_refused_before_the_first_event(small_job: SmallJob) -> None:
    for fields, sentence in (
        ({"batch_size": 100}, "batch_size must be at most the number of samples: 100 > 60"),
        ({"test": None, "stop": Stop(target_loss=0.1)}, "need a task that can be evaluated"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            simulate(small_job(**fields))  # type: ignore[arg-type]


def test_an_error_in_the_users_code_ends_the_simulation_with_its_traceback(small_job: SmallJob) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        raise ZeroDivisionError("by nought")

    with pytest.raises(UserCodeError) as caught:
        simulate(small_job(loss=loss))
    assert "ZeroDivisionError in the user's code while computing gradient 1 of worker 0" in str(caught.value)
    assert "in loss" in caught.value.user_traceback


def test_programs_find_it_under_the_name_of_the_platform(small_job: SmallJob) -> None:
    assert ps.simulate is simulate
    assert ps.Conditions is Conditions
    assert {"simulate", "Conditions"} <= set(dir(ps))


def test_a_cluster_may_be_so_slow_that_a_real_run_would_give_up() -> None:
    """The limits that a run sets to silence do not apply where time is virtual."""
    job = ps.Job(workload="mlp", options={"samples": 200}, workers=3, stop=ps.Stop(updates=2))
    slow = simulate(job, Conditions(network="server:update=100", timing_only=True))
    assert slow.virtual_seconds > 2 * 300
    far = simulate(job, Conditions(network="nic:gbps=1,latency=500", timing_only=True))
    assert far.view.updates == 2


# --- replicas ---


def test_replicas_are_simulated_only_where_the_job_asks_for_them(small_job: SmallJob) -> None:
    """Nothing fails in it, so what everybody has by default would only take time."""
    silent = simulate(small_job(), keep_records=True)
    asked = simulate(small_job(replication=ps.Bounded(max_divergence=0.5)), keep_records=True)
    assert not [one for one in silent.records if one["kind"] == "copy"]
    assert silent.records[0]["replication"] == {"mode": "none"}
    assert len([one for one in asked.records if one["kind"] == "copy" and one["event"] == "in sync"]) > 0
    assert asked.records[0]["replication"]["mode"] == "bounded"
    assert asked.events > silent.events


@pytest.mark.parametrize("replication", [ps.Chain(), ps.Bounded(max_divergence=0.01), ps.Bounded()])
def test_replicas_change_nothing_of_what_is_learned(small_job: SmallJob, replication: Any) -> None:
    alone, protected = (simulate(small_job(**given)) for given in ({}, {"replication": replication}))
    assert alone.model.keys() == protected.model.keys()
    assert all(torch.equal(alone.model[name], protected.model[name]) for name in alone.model)


def test_a_simulation_writes_no_checkpoints(small_job: SmallJob) -> None:
    found = simulate(small_job(checkpoints=ps.Checkpoints(every_updates=1)), keep_records=True)
    assert not [one for one in found.records if one["kind"] == "checkpoint"]
