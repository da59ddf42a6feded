"""Modules that the client's program has and the Dask workers have not, with processes as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

import psplatform as ps
from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.replication.stores.store import describe_run
from psplatform.workloads.registry import WORKLOADS, MixtureOptions, Workload

LIMIT_S = 180.0
Refused = Callable[..., ConfigurationError]
NAMES = ("lonely", "failing", "older")
TEXT = """
from dataclasses import dataclass
import torch
from torch import nn
import psplatform as ps
from psplatform.policies.asp import Asynchronous
from psplatform.tasks.supervised import SupervisedTask

def model(): return nn.Linear(8, 4)
def loss(output, target): return nn.functional.cross_entropy(output, target)
def step(model, batch): return loss(model(batch[0]), batch[1])
def collate(samples): return torch.utils.data.default_collate(samples)
def data(): return torch.randn(100, 8), torch.arange(100) % 4
def make(**options): return SupervisedTask(model, loss, data)

class Rows:
    def __len__(self): return 100
    def __getitem__(self, index): return torch.ones(8), index % 4

@dataclass
class Mine(Asynchronous):
    pass

@dataclass(frozen=True)
class Descent(ps.CustomOptimizer):
    def step(self, parameters, gradient, state, out, rate, number):
        torch.add(parameters, gradient, alpha=-0.01 * rate, out=out)

class Half:
    def factor(self, updates, epochs): return 0.5

class Counting(ps.Task):
    samples = 100
    def initial(self): return {"count": torch.zeros(4)}
    def compute(self, parameters, batch, rng): return ps.Update({"count": torch.ones(4)}, loss=0.0)
"""
DEFAULTS = {"lr": 0.1, "momentum": 0.0, "batch_size": 8, "epochs": 1}
NOTHING = {"model": None, "loss": None, "data": None}

CASES: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "a model": ("model", lambda lonely: {"model": lonely.model}),
    "a loss": ("loss", lambda lonely: {"loss": lonely.loss}),
    "a step": ("step", lambda lonely: {"loss": None, "step": lonely.step}),
    "a collate": ("collate", lambda lonely: {"collate": lonely.collate}),
    "data that are made where they are read": ("data", lambda lonely: {"data": lonely.data}),
    "a data set": ("data", lambda lonely: {"data": lonely.Rows()}),
    "held-out data": ("test", lambda lonely: {"test": lonely.Rows()}),
    "a policy": ("policy", lambda lonely: {"policy": lonely.Mine()}),
    "a policy's name": ("policy", lambda _: {"policy": "lonely"}),
    "an optimiser": ("optimizer", lambda lonely: {"optimizer": lonely.Descent()}),
    "a schedule": ("schedule", lambda lonely: {"schedule": lonely.Half()}),
    "a task": ("task", lambda lonely: {**NOTHING, "task": lonely.Counting(), "optimizer": ps.Additive()}),
    "a workload's name": ("workload", lambda _: {**NOTHING, "workload": "lonely"}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Write what the client has and what the Dask workers have, and let the latter start with that."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    for name in NAMES:
        (here / f"{name}.py").write_text(TEXT)
    (there / "failing.py").write_text("raise ValueError('not\\nhere')")
    (there / "older.py").write_text("def loss(output, target): return 0")
    about = here / "lonely-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lonely\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[psplatform.policies]\nlonely = lonely:Mine\n")
    with pytest.MonkeyPatch.context() as patch:
        _let_workers_import(patch, there)
        yield here, there


def _let_workers_import(patch: pytest.MonkeyPatch, *folders: Path) -> None:
    patch.setenv("PYTHONPATH", _with(*folders))


def _with(*folders: Path) -> str:
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, folders), *([before] if before else [])])


@pytest.fixture
def cluster(folders: tuple[Path, Path], cluster: Any) -> Any:
    """Return five Dask workers without what the client has."""
    return cluster


@pytest.fixture
def module(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import a module that only this process has."""
    monkeypatch.syspath_prepend(str(folders[0]))

    def load(name: str) -> ModuleType:
        return __import__(name)

    yield load
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def start(start: Callable[..., ps.Run], monkeypatch: pytest.MonkeyPatch) -> Callable[..., ps.Run]:
    """Start a job of a small model of which some parts may be others."""
    monkeypatch.setitem(WORKLOADS, "lonely", Workload("lonely", "", "lonely", MixtureOptions, DEFAULTS))
    usual = {
        "workload": None,
        "options": {},
        "model": lambda: nn.Linear(8, 4),
        "loss": nn.functional.cross_entropy,
        "data": (torch.randn(100, 8), torch.arange(100) % 4),
    }
    return lambda cluster, **fields: start(cluster, **{**usual, **fields})


@pytest.fixture
def refused(start: Callable[..., ps.Run], cluster: Any, tmp_path: Path, until: Callable[..., None]) -> Refused:
    """Start a job that must be refused; return the error, which is one sentence and leaves nothing."""

    def attempt(**fields: Any) -> ConfigurationError:
        with pytest.raises(ConfigurationError) as caught:
            start(cluster, **fields)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []
        until(lambda: not any(cluster.client.has_what().values()), "no actor is left")
        return caught.value

    return attempt


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_one_sentence_and_nothing_is_left(
    case: str, cluster: Any, module: Callable[[str], Any], refused: Refused
) -> None:
    field, make = CASES[case]
    error = refused(**make(module("lonely")))
    addresses = sorted(cluster.pids())
    assert error.field == field
    assert str(error).startswith(f"the Dask worker {addresses[0]} (and ")
    assert f"has no module lonely, which {field} needs; install lonely in every worker's environment" in str(error)


def test_a_module_that_one_of_the_workers_lacks_is_refused_for_that_one(
    cluster: Any,
    module: Callable[[str], Any],
    refused: Refused,
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., None],
) -> None:
    _let_workers_import(monkeypatch, *folders)
    new = cluster.start_worker()
    until(lambda: new.pid in cluster.pids().values(), "the new Dask worker is there")
    error = refused(workers=6, model=module("lonely").model)
    having = next(address for address, pid in cluster.pids().items() if pid == new.pid)
    first = min(set(cluster.pids()) - {having})
    assert str(error).startswith(f"the Dask worker {first} (and 4 more) has no module lonely, which model needs; ")


def test_a_module_that_fails_there_is_told_with_what_it_raises(
    cluster: Any, module: Callable[[str], Any], refused: Refused
) -> None:
    error = refused(model=module("failing").model)
    said = "cannot import the module failing (ValueError: not here), which model needs; make `import failing` work in"
    assert said in str(error)


def test_another_version_there_is_told_by_what_it_has_not(
    cluster: Any, module: Callable[[str], Any], refused: Refused
) -> None:
    older = module("older")
    error = refused(loss=older.loss, policy=older.Mine())
    assert "has a module older without Mine, which policy needs; install the same older in" in str(error)


def test_a_module_that_a_function_imports_when_it_is_called_is_told(
    cluster: Any, module: Callable[[str], Any], refused: Refused
) -> None:
    """It cannot be known before; the first gradient shows it, before anything is started."""

    def build() -> nn.Module:
        import lonely  # type: ignore[import-not-found]  # only this process has it

        net: nn.Module = lonely.model()
        return net

    module("lonely")
    said = str(refused(model=build))
    assert " more) has no module lonely, which a function of the job imports; install lonely in" in said
    assert "register_pickle_by_value" not in said


def test_a_module_that_this_process_has_not_either_is_the_users_error(
    cluster: Any, start: Callable[..., ps.Run], tmp_path: Path
) -> None:
    def build() -> nn.Module:
        import nowhere_at_all  # type: ignore[import-not-found]

        net: nn.Module = nowhere_at_all.model()
        return net

    with pytest.raises(UserCodeError, match="No module named 'nowhere_at_all'"):
        start(cluster, model=build)
    assert list(tmp_path.iterdir()) == []


def test_what_travels_by_value_is_not_looked_for_there(
    cluster: Any, module: Callable[[str], Any], start: Callable[..., ps.Run]
) -> None:
    """The remedy that the sentence names holds for everything that a job may hold."""
    lonely = module("lonely")
    cloudpickle.register_pickle_by_value(lonely)
    try:
        parts = {"model": lonely.model, "loss": lonely.loss, "data": lonely.data, "collate": lonely.collate}
        own = {"policy": lonely.Mine(), "optimizer": lonely.Descent(), "schedule": lonely.Half()}
        run = start(cluster, **parts, **own, replication=ps.Bounded(), stop=Stop(updates=5))
        assert run.wait(LIMIT_S)["outcome"] == "updates"
    finally:
        cloudpickle.unregister_pickle_by_value(lonely)


def test_a_run_that_goes_on_there_is_refused_and_its_store_stays_as_it_was(
    cluster: Any, module: Callable[[str], Any], start: Callable[..., ps.Run]
) -> None:
    run = start(cluster, stop=Stop(updates=5), checkpoints=ps.Checkpoints(every_updates=2))
    run.wait(LIMIT_S)
    before = describe_run(run.store)
    with pytest.raises(ConfigurationError, match="has no module lonely, which model needs; install") as caught:
        ps.recover(
            run.store,
            cluster.client,
            model=module("lonely").model,
            loss=nn.functional.cross_entropy,
            data=(torch.randn(100, 8), torch.arange(100) % 4),
            stop=Stop(updates=10),
        )
    assert caught.value.field == "model"
    assert describe_run(run.store) == before


def test_the_command_line_says_the_same_and_exits_with_2(
    cluster: Any, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "psplatform", "train", "digits", "--policy", "lonely"]
    options = ["--scheduler", cluster.address, "--workers", "2", "--store", str(tmp_path / "run.zarr")]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": _with(folders[0])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "has no module lonely, which policy needs; install lonely in" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_uploaded_is_found_there(
    cluster: Any, module: Callable[[str], Any], start: Callable[..., ps.Run], folders: tuple[Path, Path]
) -> None:
    """The last test here: from now on these processes have it."""
    lonely = module("lonely")
    with pytest.raises(ConfigurationError, match="upload_file"):
        start(cluster, model=lonely.model)
    cluster.client.upload_file(str(folders[0] / "lonely.py"))
    run = start(cluster, model=lonely.model, policy=lonely.Mine(), stop=Stop(updates=5))
    assert run.wait(LIMIT_S)["outcome"] == "updates"
