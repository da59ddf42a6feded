"""Dask workers that come while a run goes on and lack a module of its job: left out, and asked again when needed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import psplatform as ps

LIMIT_S = 180.0
TEXT = """
from dataclasses import dataclass
from torch import nn
from psplatform.policies.asp import Asynchronous

def model(): return nn.Linear(8, 4)

@dataclass
class Mine(Asynchronous):
    pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the module that the job's parts come from, for this process."""
    folder = tmp_path_factory.mktemp("lib")
    (folder / "left_out_here.py").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop("left_out_here", None)


@pytest.fixture
def able(folder: Path, new_cluster: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a cluster of three Dask workers that have the module; those that are started later have it not."""
    cluster = new_cluster()
    with monkeypatch.context() as patch:
        before = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))
        cluster.repair(3)
    return cluster


@pytest.fixture
def parts(folder: Path) -> dict[str, Any]:
    """Return the fields of a job whose model and policy come from the module."""
    import left_out_here

    data = torch.randn(100, 8), torch.arange(100) % 4
    model = {"model": left_out_here.model, "loss": torch.nn.functional.cross_entropy, "data": data}
    return {"workload": None, "options": {}, **model, "policy": left_out_here.Mine(), "shards": 1, "test": data}


def test_a_dask_worker_without_the_module_is_left_out_until_it_has_it(
    able: Any, folder: Path, parts: dict[str, Any], start: Any, watch: Any, reaches: Any, until: Any
) -> None:
    """It is said, and the run goes on as if it had not come: nothing that is lost is replaced there."""
    run = start(able, **parts, replication=ps.Bounded(), evaluate_every=20)
    seen = watch(able, run)
    reaches(run.store, 10)
    new = able.start_worker()
    until(lambda: new.pid in able.pids().values(), "another Dask worker is there")
    address = next(one for one, pid in able.pids().items() if pid == new.pid)
    until(lambda: said(seen), "it is said")
    assert said(seen)[0].startswith(f"the Dask worker {address} is left out: it has no module left_out_here; bring it")
    assert said(seen)[0] in [one["text"] for one in run.metrics()["incidents"]]

    # Server, coordinator and evaluator are in a process of their own; others would replace them in the idle one.
    until(seen.protected, "there are a replica and a standby")
    os.kill(able.pids()[seen.actors("server-0")["server-0"]], signal.SIGKILL)
    until(lambda: seen.log("promoted"), "the replica is promoted")
    until(seen.protected, "there are a replica and a standby again")
    before = len(seen.log("evaluated"))
    until(lambda: len(seen.log("evaluated")) > before, "there is an evaluator again")
    assert address not in seen.actors().values()
    assert sum("evaluation lost" in one["text"] for one in seen.log("note")) <= 1

    able.client.upload_file(str(folder / "left_out_here.py"))
    able_ones = {one["process"] for one in seen.log("joined")}
    victim = next(one["process"] for one in seen.log("joined") if seen.card()["address"] not in one["process"])
    os.kill(int(victim.split(" pid ")[1]), signal.SIGKILL)
    until(lambda: {one["process"] for one in seen.log("joined")} > able_ones, "a gradient worker is replaced")
    assert address in seen.log("joined")[-1]["process"]
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"


def said(seen: Any) -> list[str]:
    return [one["text"] for one in seen.log("note") if "is left out" in one["text"]]
