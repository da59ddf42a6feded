"""Gradient workers that die, fall silent, wake up again, or come later."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

import psplatform as ps

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
LIMIT_S = 180.0


cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Tally(ps.Task):
    """Counts how often each sample was used."""

    samples = 160

    def initial(self) -> Mapping[str, Tensor]:
        return {"used": torch.zeros(self.samples)}

    def compute(self, parameters: Mapping[str, Tensor], batch: Any, rng: np.random.Generator) -> ps.Update:
        used = torch.zeros(self.samples)
        used[torch.from_numpy(batch.copy())] = 1.0
        return ps.Update({"used": used}, loss=1.0)


def pid_of(record: dict[str, Any]) -> int:
    """Return the process id that a record's `process` ends with."""
    return int(record["process"].rpartition(" pid ")[2])


def assert_nothing_twice(commits: list[dict[str, Any]]) -> None:
    """Versions have no gap, and the gradients of each slot were applied once and in their order."""
    assert [one["version"] for one in commits] == list(range(1, len(commits) + 1))
    applied = [pair for one in commits for pair in zip(one["slots"], one["sequences"], strict=True)]
    for slot in {slot for slot, _ in applied}:
        own = [sequence for at, sequence in applied if at == slot]
        assert all(earlier < later for earlier, later in pairwise(own))


def test_a_killed_worker_does_not_end_the_run(
    cluster: Any, start: Start, log: Log, reaches: Reaches, until: Until, segments: Callable[[str], list[Path]]
) -> None:
    """Two hundred updates are asked for, and two hundred are made, with a replacement in its slot."""
    run = start(cluster, stop=ps.Stop(updates=200), stragglers="constant:seconds=0.05")
    reaches(run.store, 10)
    victim = log(run.store, "joined")[0]
    os.kill(pid_of(victim), signal.SIGKILL)
    summary = run.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"]) == ("updates", 200)
    (lost,) = log(run.store, "lost")
    assert (lost["slot"], lost["process"]) == (victim["slot"], victim["process"])
    successors = [one for one in log(run.store, "joined") if one["slot"] == lost["slot"] and one["incarnation"] == 2]
    assert len(successors) == 1
    assert pid_of(successors[0]) != pid_of(victim)
    assert_nothing_twice(log(run.store, "commit"))
    until(lambda: segments(run.run) == [], "the segments of the run, the killed worker's included, are gone")


def test_an_epoch_is_whole_although_a_worker_is_killed(cluster: Any, start: Start, log: Log, reaches: Reaches) -> None:
    """The batch that died with it is computed by others: no sample was used less than once in each of five epochs."""
    tally = {"task": Tally(), "workload": None, "options": {}, "optimizer": ps.Additive(), "batch_size": 8}
    run = start(cluster, **tally, stop=ps.Stop(epochs=5), stragglers="constant:seconds=0.05")
    reaches(run.store, 10)
    os.kill(pid_of(log(run.store, "joined")[1]), signal.SIGKILL)
    assert run.wait(LIMIT_S)["outcome"] == "epochs"
    assert len(log(run.store, "lost")) == 1
    used = run.parameters()[0]["used"]
    assert used.min() >= 5
    assert used.sum() <= 5 * Tally.samples + 2 * 8  # what the last round has too much


def test_a_dask_worker_that_comes_later_takes_part(
    cluster: Any, start: Start, log: Log, reaches: Reaches, until: Until
) -> None:
    """In a slot of its own, without anybody asking for it."""
    run = start(cluster)
    reaches(run.store, 10)
    new = cluster.start_worker()
    until(lambda: new.pid in map(pid_of, log(run.store, "joined")), "the new Dask worker has joined")
    slot = next(one["slot"] for one in log(run.store, "joined") if pid_of(one) == new.pid)
    until(lambda: any(slot in one["slots"] for one in log(run.store, "commit")), "its gradients are applied")
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    assert_nothing_twice(log(run.store, "commit"))


def test_a_stopped_worker_is_lost_and_harmless_when_it_wakes(
    cluster: Any, start: Start, log: Log, reaches: Reaches, until: Until
) -> None:
    """Its silence is noticed after the lease, training goes on without it, and what it says later changes nothing."""
    run = start(cluster, workers=3, worker_lease_s=2)
    reaches(run.store, 10)
    victim = log(run.store, "joined")[-1]
    os.kill(pid_of(victim), signal.SIGSTOP)
    until(lambda: bool(log(run.store, "lost")), "the stopped worker is lost")
    (lost,) = log(run.store, "lost")
    assert (lost["slot"], lost["incarnation"]) == (victim["slot"], victim["incarnation"])
    assert "silent for 2 s" in lost["reason"] or "did not answer" in lost["reason"]
    reaches(run.store, 20)
    os.kill(pid_of(victim), signal.SIGCONT)
    reaches(run.store, 50)
    assert pid_of(victim) in cluster.pids().values()
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    assert_nothing_twice(log(run.store, "commit"))


def test_a_woken_worker_may_take_part_again(
    cluster: Any, start: Start, log: Log, reaches: Reaches, until: Until
) -> None:
    """Under a new name, where the run has nobody else for its slot."""
    run = start(cluster, workers=3, worker_lease_s=2)
    reaches(run.store, 10)
    victim = log(run.store, "joined")[0]
    os.kill(pid_of(victim), signal.SIGSTOP)
    until(lambda: bool(log(run.store, "lost")), "the stopped worker is lost")
    os.kill(pid_of(victim), signal.SIGCONT)
    until(lambda: len(log(run.store, "joined")) == 4, "its process has joined anew")
    again = log(run.store, "joined")[-1]
    assert (again["process"], again["slot"], again["incarnation"]) == (victim["process"], victim["slot"], 2)


def test_workers_that_have_given_their_coordinator_up_are_hired_again(
    cluster: Any,
    start: Start,
    log: Log,
    reaches: Reaches,
    until: Until,
    watch: Callable[..., Any],
    segments: Callable[[str], list[Path]],
) -> None:
    """It was stopped for longer than they wait for it: they have ended, and their processes take part anew."""
    run = start(cluster, worker_lease_s=1)
    reaches(run.store, 10)
    pid = cluster.pids()[watch(cluster, run).card()["address"]]
    slabs = [path for path in segments(run.run) if "slab" in path.name]
    assert len(slabs) == 2
    os.kill(pid, signal.SIGSTOP)
    until(lambda: not any(path.exists() for path in slabs), "the workers have ended")
    os.kill(pid, signal.SIGCONT)
    until(lambda: len(log(run.store, "joined")) >= 4, "both have joined anew")
    reaches(run.store, 20)


def test_a_run_without_any_worker_ends_with_a_word(cluster: Any, start: Start, log: Log, reaches: Reaches) -> None:
    """After the absence limit, with what to do; the model reached so far is saved."""
    run = start(cluster, workers=1, shards=4, absence_limit_s=2)
    reaches(run.store, 5)
    os.kill(pid_of(log(run.store, "joined")[0]), signal.SIGKILL)
    failure = _failure(run)
    assert "no live worker for 2 s; start a Dask worker, and go on with `psplatform recover" in failure
    assert run.parameters()[1] >= 5


def _failure(run: ps.Run) -> str:
    try:
        run.wait(LIMIT_S)
    except ps.errors.ClusterError as error:
        return str(error)
    return ""
