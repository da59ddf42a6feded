"""How runs end, and what is left of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client
from distributed.core import Status
from torch import nn

import psplatform as ps
from psplatform.client.runs.attaching import runs_on
from psplatform.core.policy import Committed, View
from psplatform.errors import BadBatchError, ClusterError, ConfigurationError, DivergedError, StoreError, UserCodeError
from psplatform.policies.asp import Asynchronous
from psplatform.replication.stores.store import create_run, describe_run, update_run
from psplatform.runtime.actors.coordinator.steps import LOADING, PLACING, assembling

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]
Fields = dict[str, Any]
LIMIT_S = 180.0


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


def names_of(client: Client, run: str) -> set[str]:
    """Return what the scheduler knows under a run's id: clients, tasks and published names."""

    def known(dask_scheduler: Any) -> list[str]:
        return [str(name) for name in [*dask_scheduler.clients, *dask_scheduler.tasks]]

    names = {name for name in [*client.run_on_scheduler(known), *client.list_datasets()] if run in name}
    return names - {f"published-psplatform-{run}"}  # Dask keeps the name of what was once published


def pids(client: Client) -> dict[str, int]:
    import os

    return dict(client.run(os.getpid))


def accuracy(module: nn.Module, data: Any) -> float:
    inputs, targets = data
    with torch.no_grad():
        return float((module.eval()(inputs).argmax(1) == targets).float().mean())


def test_the_version_that_reached_the_target_is_kept(start: Start, log: Log, small: Fields) -> None:
    """Although training went on while it was measured."""
    run = start(**{**small, "stop": ps.Stop(target_accuracy=0.7, updates=5000), "evaluate_every": 5})
    summary = run.wait(LIMIT_S)
    reached = [one for one in log(run, "evaluated") if one["accuracy"] >= 0.7]
    (ending,) = log(run, "finished")
    assert summary["outcome"] == ending["outcome"] == "reached target"
    assert ending["version"] == reached[0]["version"] == run.parameters()[1]
    assert accuracy(run.model(), small["test"]()) == pytest.approx(reached[0]["accuracy"], abs=1e-6)


def test_a_run_persists_below_a_local_url_as_below_a_path(
    start: Start, client: Client, small: Fields, tmp_path: Path
) -> None:
    """In folders that are made for it: log, checkpoints, the replica in the store, and the model."""
    folder = tmp_path / "not there yet"
    run = start(
        **small | {"stop": ps.Stop(updates=40)},
        store=f"{folder.as_uri()}/run.zarr",
        checkpoints=ps.Checkpoints(every_updates=10),
        replication=ps.Bounded(target="store"),
    )
    assert run.wait(LIMIT_S)["outcome"] == "updates"
    assert run.store == str(folder / "run.zarr")
    assert {path.name for path in Path(run.store).iterdir()} >= {"log", "checkpoints", "cold", "model", "zarr.json"}
    assert ps.attach(Path(run.store).as_uri(), client).parameters()[1] == 40


def test_the_model_of_a_run_is_a_working_module(start: Start, small: Fields) -> None:
    """Of the user's class, with the parameters of the last version."""
    run = start(**small)
    run.wait(LIMIT_S)
    module = run.model()
    assert isinstance(module, nn.Sequential)
    assert module(torch.zeros(3, 2)).shape == (3, 2)
    arrays, version = run.parameters()
    assert version == 20
    assert {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_buffers_are_trained_and_saved_like_parameters(start: Start, small: Fields) -> None:
    """A model with batch norm: its running statistics and its counter of batches are those of training."""
    run = start(**{**small, "model": normalised})
    run.wait(LIMIT_S)
    state = run.model().state_dict()
    assert int(state["1.num_batches_tracked"]) == 20
    assert state["1.num_batches_tracked"].shape == ()
    assert state["1.running_mean"].abs().sum() > 0


def test_a_run_can_be_stopped(start: Start, small: Fields, until: Until) -> None:
    """In good order: the model is saved, the summary says who asked."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    run.stop("seen enough")
    summary = run.wait(LIMIT_S)
    assert (summary["outcome"], summary["detail"]) == ("stopped", "seen enough")
    assert run.parameters()[1] > 0
    run.stop("again")
    assert run.metrics()["detail"] == "seen enough"


def test_a_run_can_be_stopped_while_it_starts(start: Start, small: Fields, client: Client, until: Until) -> None:
    """It ends at once, and nothing of it remains."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    run.stop("changed my mind")
    with contextlib.suppress(ClusterError):  # a run that had already begun ends well
        run.wait(LIMIT_S)
    assert "changed my mind" in str(describe_run(run.store))
    run.close()
    until(lambda: names_of(client, run.run) == set(), "the run's names are gone from the scheduler")


def test_when_waiting_ends_everything_is_written(start: Start, log: Log, small: Fields) -> None:
    """The log to its last record, the outcome in the store."""
    run = start(**small)
    run.wait(LIMIT_S)
    assert log(run)[-1]["kind"] in ("finished", "left")
    assert len(log(run, "finished")) == 1
    assert describe_run(run.store)["outcome"] == "updates"


def test_a_round_without_a_finite_gradient_ends_the_run(start: Start, log: Log, small: Fields) -> None:
    """With the slot, version and loss that show it; the log is complete up to there."""
    run = start(**{**small, "optimizer": ps.SGD(lr=1e30), "stop": ps.Stop(updates=1000)})
    with pytest.raises(DivergedError, match="lower the learning rate or clip the gradient norm") as caught:
        run.wait(LIMIT_S)
    assert caught.value.version >= 1
    assert {one["reason"] for one in log(run, "dropped")} >= {"non-finite"}
    (ending,) = log(run, "finished")
    assert ending["outcome"] == "failed"
    assert describe_run(run.store)["outcome"] == "failed"


def with_one_bad_sample() -> Any:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn((48, 2), generator=generator)
    inputs[13, 1] = float("nan")
    return inputs, torch.arange(48) % 2


@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_a_bad_sample_costs_its_batch_and_not_the_run(start: Start, log: Log, small: Fields, policy: str) -> None:
    """It is named in the log, in the summary and as an incident."""
    given = {"data": with_one_bad_sample, "test": None, "sampling": "epoch", "batch_size": 8, "policy": policy}
    run = start(**{**small, **given, "stop": ps.Stop(epochs=8)})
    summary = run.wait(LIMIT_S)
    assert summary["outcome"] == "epochs"
    records = log(run, "bad batch")
    assert len(records) >= 6
    assert {(one["tries"], tuple(one["samples"]), one["tensor"]) for one in records} == {(3, (13,), "the input")}
    assert summary["bad_batches"] == {"given_up": len(records), "samples": {"13": "the input"}}
    assert "the input of sample 13 is not finite" in next(
        one["text"] for one in summary["incidents"] if one["kind"] == "bad batch"
    )
    assert all(bool(torch.isfinite(one).all()) for one in run.model().parameters())


def test_a_job_may_ask_for_the_end_at_a_bad_batch(start: Start, small: Fields) -> None:
    given = {"data": with_one_bad_sample, "test": None, "sampling": "epoch", "batch_size": 8, "bad_batches": "end"}
    run = start(**{**small, **given, "stop": ps.Stop(epochs=8)})
    with pytest.raises(BadBatchError, match="the input of sample 13 is not finite; mend or remove") as caught:
        run.wait(LIMIT_S)
    assert (caught.value.samples, caught.value.tensor) == ((13,), "the input")


def grumpy_loss(output: Any, target: Any) -> Any:
    if not torch.is_grad_enabled() or output.detach().abs().max() < 1e9:
        return nn.functional.cross_entropy(output, target)
    raise ArithmeticError("far too large")


def raising_on_evaluation(output: Any, target: Any) -> Any:
    if not torch.is_grad_enabled():
        raise LookupError("no such class")
    return nn.functional.cross_entropy(output, target)


@pytest.mark.parametrize(
    ("loss", "function", "kind"),
    [(grumpy_loss, "in grumpy_loss", "ArithmeticError"), (raising_on_evaluation, "raising_on_eval", "LookupError")],
)
def test_a_bug_in_the_users_code_ends_the_run_with_its_traceback(
    start: Start, small: Fields, client: Client, loss: Any, function: str, kind: str
) -> None:
    """In mid-training or while evaluating; it is never mistaken for a lost worker, and every Dask worker lives on."""
    before = pids(client)
    run = start(**{**small, "loss": loss, "optimizer": ps.SGD(lr=1e10), "evaluate_every": 5})
    with pytest.raises(UserCodeError) as caught:
        run.wait(LIMIT_S)
    assert caught.value.kind == kind
    assert function in caught.value.user_traceback
    assert describe_run(run.store)["outcome"] == "failed"
    assert pids(client) == before
    with pytest.raises(UserCodeError) as read:
        ps.attach(run.store).wait(LIMIT_S)
    assert read.value.user_traceback == caught.value.user_traceback


@dataclass
class Moody(Asynchronous):
    """A policy whose own code is wrong."""

    def step_scale(self, commit: Committed, view: View) -> float:
        return 1.0 if commit.version < 5 else 1.0 / 0


def test_a_policy_that_raises_ends_the_run_and_is_named(start: Start, small: Fields, client: Client) -> None:
    """Nothing hangs, and whoever looks at the store later learns the same."""
    run = start(**{**small, "policy": Moody()})
    named = "the policy Moody raised ZeroDivisionError in step_scale while the coordinator was handling Announce"
    with pytest.raises(UserCodeError, match=named):
        run.wait(LIMIT_S)
    with pytest.raises(UserCodeError, match=named):
        ps.attach(run.store, client).wait(LIMIT_S)


def test_a_paused_dask_worker_is_not_lost(start: Start, small: Fields, client: Client, until: Until) -> None:
    """One over its memory threshold takes no new task, but its actors go on, a server's among them."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    client.run(_pause, True)
    try:
        until(lambda: _statuses(client) == {"paused"}, "every Dask worker to be paused")
        reached = run.metrics()["updates"]
        until(lambda: run.metrics()["updates"] > reached + 100, "updates while all Dask workers are paused")
    finally:
        client.run(_pause, False)
        until(lambda: _statuses(client) == {"running"}, "every Dask worker to go on")
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"


def _statuses(client: Client) -> set[str]:
    scheduler: Any = client.scheduler
    return {one["status"] for one in client.sync(scheduler.identity, n_workers=-1)["workers"].values()}


def _pause(paused: bool, dask_worker: Any) -> None:
    dask_worker.status = Status.paused if paused else Status.running


def test_a_bug_that_shows_at_the_first_gradient_starts_nothing(
    start: Start, small: Fields, client: Client, tmp_path: Path
) -> None:
    """Neither a server nor a store."""

    def wrong(output: Any, target: Any) -> Any:
        return nn.functional.cross_entropy(output, target[:-1])

    with pytest.raises(UserCodeError, match="ValueError in the user's code while computing a first gradient"):
        start(**{**small, "loss": wrong})
    assert list(tmp_path.iterdir()) == []
    assert runs_on(client) == []


@pytest.mark.parametrize("transport", ["auto", "comms"])
def test_a_run_leaves_nothing_in_shared_memory(
    start: Start, small: Fields, until: Until, segments: Callable[[str], list[Path]], transport: str
) -> None:
    """While it goes on there are segments, those of the shards at least; when it is over there are none."""
    run = start(**{**small, "transport": transport, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    slabs = [path for path in segments(run.run) if "slab" in path.name]
    assert len(slabs) == (2 if transport == "auto" else 0)
    boxes = [path for path in segments(run.run) if "outbox" in path.name]
    assert len(boxes) == (2 if transport == "auto" else 0), "from each server to its replica"
    assert len(segments(run.run)) == 4 + len(boxes) + len(slabs), "each of two shards has a server and a replica"
    run.stop("seen enough")
    run.wait(LIMIT_S)
    until(lambda: segments(run.run) == [], "the segments of the run are gone")


def test_a_run_leaves_nothing_on_the_cluster(start: Start, small: Fields, client: Client, until: Until) -> None:
    """No actor, no published name, no client of its own."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    assert names_of(client, run.run)
    run.stop("seen enough")
    run.wait(LIMIT_S)
    run.close()
    until(lambda: names_of(client, run.run) == set(), "the run's names are gone from the scheduler")


def test_another_client_attaches_to_a_run_and_stops_it(
    start: Start, small: Fields, client: Client, until: Until
) -> None:
    """By its id or by its store; the first client is told by waiting as usual."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    with Client(client.scheduler.address, set_as_default=False, direct_to_workers=True) as other:
        by_id = ps.attach(run.run, other)
        by_store = ps.attach(run.store)
        assert by_id.store == by_store.store == run.store
        assert by_store.metrics()["run"] == run.run
        by_id.stop("by another")
        assert by_store.wait(LIMIT_S)["detail"] == "by another"
        assert by_id.wait(LIMIT_S)["detail"] == "by another"
        by_store.close()
        assert by_store.metrics()["detail"] == "by another"
        with pytest.raises(ConfigurationError, match=r"no run 'digits-x' on this cluster \(there are: "):
            ps.attach("digits-x", other)
    assert run.wait(LIMIT_S)["detail"] == "by another"


def test_a_program_that_has_attached_lets_go_of_a_run_that_goes_on(start: Start, small: Fields, until: Until) -> None:
    """It reads the store from then on, and says that it can stop the run no more."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    with ps.attach(run.store) as found:
        assert found.status()["phase"] == "running"
    assert (found.status()["phase"], found.status()["failure"]) == ("unknown", None)
    with pytest.raises(ClusterError, match=r"its connection is closed; use ps\.attach to reach the run again"):
        found.stop()
    with run:
        pass
    assert run.status()["phase"] == "running", "nor does its own program end it by leaving a block"


def test_a_run_whose_coordinator_is_not_known_is_looked_for(
    start: Start, small: Fields, client: Client, until: Until
) -> None:
    """So whoever attached to it while it started can stop it later."""
    run = start(**{**small, "stop": ps.Stop(updates=10**9)})
    found = ps.Run(run.run, run.store, client=client)
    until(lambda: found.status()["phase"] == "running", "it is found")
    until(lambda: found.roles() == run.roles(), "both are told the same roles, a standby made in between included")
    ps.Run(run.run, run.store, client=client).stop("by another")
    assert found.wait(LIMIT_S)["detail"] == "by another"


def test_a_run_that_its_cluster_does_not_know_is_gone_unless_it_may_be_starting(client: Client, tmp_path: Path) -> None:
    store, description = str(tmp_path / "run.zarr"), {"run": "digits-bsp-1a2b3c", "scheduler": client.scheduler.address}
    create_run(store, {**description, "started": time.time()})
    assert ps.attach(store, client).status()["phase"] == "unknown"
    update_run(store, started=time.time() - 3600)
    with pytest.raises(ClusterError, match="the coordinator of run digits-bsp-1a2b3c is gone"):
        ps.attach(store, client).wait(LIMIT_S)


def test_more_shards_than_parameters_are_refused_and_leave_nothing(
    start: Start, small: Fields, client: Client, tmp_path: Path, until: Until
) -> None:
    said = "shards must be at most 82, not 300: the model has 82 parameters, and each shard needs one of its own"
    with pytest.raises(ConfigurationError, match=f"^{said}; give fewer shards$"):
        start(**{**small, "shards": 300})
    assert list(tmp_path.iterdir()) == []
    assert runs_on(client) == []
    until(lambda: not any(client.has_what().values()), "no actor is left, that of the first gradient included")


def test_a_store_that_the_processes_cannot_see_is_refused(start: Start, small: Fields, client: Client) -> None:
    """The memory of this process is no place for a run that others compute."""
    with pytest.raises(StoreError, match=r"the Dask worker tcp://.* does not see it: memory://here/run\.zarr; choose"):
        start(**{**small, "store": "memory://here/run.zarr"})
    with pytest.raises(StoreError, match="there is no run"):
        describe_run("memory://here/run.zarr")
    assert runs_on(client) == []


def test_another_version_of_psplatform_on_a_dask_worker_is_refused(
    start: Start, small: Fields, client: Client, tmp_path: Path
) -> None:
    """Before anything is started, with the address and both versions."""

    def pretend(version: str) -> None:
        import psplatform

        psplatform.__version__ = version

    address = max(pids(client))
    client.run(pretend, "0.0.7", workers=[address])
    try:
        with pytest.raises(ConfigurationError, match=f"{address} has psplatform 0.0.7, not {ps.__version__}"):
            start(**small)
    finally:
        client.run(pretend, ps.__version__, workers=[address])
    assert list(tmp_path.iterdir()) == []


def test_more_replicas_than_processes_are_refused(start: Start, small: Fields, client: Client, tmp_path: Path) -> None:
    """In one sentence with both numbers, before anything is started or written."""
    said = r"a shard with 5 replicas needs 6 processes for its copies, but only 5 can serve; start more Dask workers"
    with pytest.raises(ConfigurationError, match=said):
        start(**{**small, "replication": ps.Bounded(replicas=5)})
    assert list(tmp_path.iterdir()) == []
    assert runs_on(client) == []


def test_a_bound_below_every_step_is_a_chain_and_is_said_to_be_one(start: Start, log: Log, small: Fields) -> None:
    """It holds nothing up for ever: each step is transferred before it is shown, and the summary says so, once."""
    run = start(**{**small, "replication": ps.Bounded(max_divergence=1e-6)})
    summary = run.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"], summary["unprotected"]) == ("updates", 20, [])
    assert [one["divergence"] for one in log(run, "applied")] == [0.0] * 20
    (said,) = log(run, "beyond bound")
    assert said["step"] > said["bound"] == pytest.approx(1e-6 / 2**0.5)
    assert "more than its part of max_divergence" in summary["long_step"]["text"]
    assert [one["text"] for one in summary["incidents"]] == [summary["long_step"]["text"]]


def test_more_workers_than_processes_are_refused(start: Start, small: Fields, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"needs 9 Dask workers .* has 5; start 4 more"):
        start(**{**small, "workers": 9})
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_does_before_it_trains_is_said(start: Callable[..., ps.Run], small: dict[str, Any]) -> None:
    whole = small["data"]

    def slow_data() -> Any:
        time.sleep(2.0)
        return whole()

    steps: list[str] = []
    start(**{**small, "data": slow_data}).wait(LIMIT_S, step=steps.append)
    known = {PLACING, LOADING, *(assembling(ready, 2) for ready in range(3))}
    assert set(steps) & known, "the data take two seconds to load, and it is asked four times a second"
