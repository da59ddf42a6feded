"""What the processes of a run are given, and whose errors are whose."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

import psplatform as ps
from psplatform.client.starting.prepared import prepare, program_of
from psplatform.core.transfers import Offer
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.runtime.program import Resume, choose_device, pickle_task
from psplatform.runtime.trial import Trial
from psplatform.tasks.foreign import user_code


def test_a_task_travels_with_functions_of_the_users_own() -> None:
    """A lambda of a notebook is as good as a function of a module."""
    task = pickle_task(lambda x: x + 1, {})
    assert cloudpickle.loads(task)(2) == 3


def test_a_part_that_cannot_travel_is_named() -> None:
    """With what it is, why, and what to do about it."""
    with pytest.raises(ConfigurationError, match=r"^data \(lock\) cannot be pickled .* inside the callable$") as caught:
        pickle_task(object(), {"model": len, "data": threading.Lock()})
    assert caught.value.field == "data"


def test_a_task_that_cannot_travel_is_named_where_its_parts_can() -> None:
    with pytest.raises(ConfigurationError, match="^task") as caught:
        pickle_task(threading.Lock(), {})
    assert caught.value.field == "task"


def test_what_the_users_code_raises_keeps_its_traceback() -> None:
    def model() -> None:
        raise ValueError("wrong shape")

    said = "ValueError in the user's code while opening the task: wrong shape"
    with pytest.raises(UserCodeError, match=said) as got, user_code("opening the task"):
        model()
    assert got.value.kind == "ValueError"
    assert "in model" in got.value.user_traceback


def test_our_own_errors_pass_through_the_users_code() -> None:
    """A configuration error stays one: its exit code differs."""
    error = ConfigurationError("the model has no parameters", field="model")
    with pytest.raises(ConfigurationError) as caught, user_code("opening the task"):
        raise error
    assert caught.value is error


def test_the_device_of_that_name_is_chosen() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("wanted", ["gpu", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="is not to be had .*; try auto") as caught:
        choose_device(wanted)
    assert caught.value.field == "device"


def test_a_run_gets_one_absolute_path_however_its_store_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes elsewhere have other working folders, and Zarr makes no folders below the URL of a local place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / "my run.zarr"
    for store in ("my run.zarr", "~/my run.zarr", "file:my%20run.zarr", place.as_uri(), f"local://{place}"):
        assert prepare(ps.Job(workload="digits", store=store)).store == str(place)


@pytest.mark.parametrize(("replication", "least_s"), [(ps.Bounded(), 42.0), (ps.NoReplication(), 2.0)])
def test_a_coordinator_is_tried_until_its_standby_has_had_time_to_notice_its_silence(
    replication: Any, least_s: float, tmp_path: Path
) -> None:
    """A worker that gave it up before would have ended when the standby takes over."""
    job = ps.Job(
        workload="digits",
        workers=2,
        worker_lease_s=2,
        server_lease_s=40,
        replication=replication,
        stop=ps.Stop(updates=1),
        store=str(tmp_path / "run.zarr"),
    )
    program = program_of(prepare(job), Trial(100, 10, evaluates=True, gradient_bytes=(40,)), 2, replication)
    assert program.patience_s == least_s


@pytest.mark.parametrize(("resume", "begins"), [(None, (1, 0)), (Resume(3, 5, {"version": 60}, 4), (5, 60))])
def test_the_log_says_in_which_term_and_at_which_version_a_run_begins(
    resume: Resume | None, begins: tuple[int, int], tmp_path: Path
) -> None:
    """Or goes on: whoever reads the log can tell what belongs to which life."""
    job = ps.Job(workload="digits", workers=2, stop=ps.Stop(updates=1), store=str(tmp_path / "run.zarr"))
    prepared = prepare(job, run="digits-bsp-1a2b3c", resume=resume)
    told = program_of(prepared, Trial(100, 10, evaluates=True, gradient_bytes=(40,)), 2, job.replication).description
    assert (told["term"], told["from_version"]) == begins


def test_transfers_are_planned_to_the_hosts_of_the_servers_if_the_job_asks_for_it(tmp_path: Path) -> None:
    """A gradient on the host of both is sent at once, and so is the first of another: nothing is known of the way."""
    fields = {"workload": "digits", "workers": 2, "shards": 2, "store": str(tmp_path / "run.zarr")}
    at = {"server-0": "tcp://10.0.0.1:4000 pid 7", "server-1": "tcp://10.0.0.1:4001 pid 8", "coordinator": "x"}
    trial = Trial(100, 10, evaluates=True, gradient_bytes=(24, 16))
    programs = [
        program_of(prepare(ps.Job(**fields, network=network)), trial, 2, ps.NoReplication())
        for network in ({"fabric": {"tick_s": 0.5}}, {})
    ]
    assert programs[1].make_planner(at) is None
    assert "network" not in programs[1].description
    planner = cloudpickle.loads(cloudpickle.dumps(programs[0])).make_planner(at)
    asked = {"tick_s": 0.5, "aggregators": 0, "changes_s": None}
    assert programs[0].description["network"] == {"fabric": asked, "gradient_bytes": 40}
    assert (planner.tick_s, planner.sums) == (0.5, False)
    for key, host in enumerate(("10.0.0.1", "10.0.0.2")):
        grant = planner.grant_at_once(Offer(key, host), 1.0)
        assert (grant.keys, grant.begins) == ((key,), (1.0,))
    again = cloudpickle.loads(cloudpickle.dumps(planner))
    assert again.plan([Offer(9, "10.0.0.3")], 1.0) == planner.plan([Offer(9, "10.0.0.3")], 1.0)
