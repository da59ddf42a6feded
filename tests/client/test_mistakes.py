"""Mistakes in a program: one sentence that names what was given and the remedy; nothing is started, nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from torch import nn

import psplatform as ps
from psplatform.core.policy import Scope, Traits
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.policies.asp import Asynchronous

X = np.random.default_rng(0).random((100, 8), dtype=np.float32)
Y = np.arange(100) % 4


def net() -> nn.Module:
    return nn.Linear(8, 4)


def job(**fields: Any) -> ps.Job:
    """Make a job whose mistake is in `fields`."""
    usual = {"model": net, "loss": nn.functional.cross_entropy, "data": (X, Y), "workers": 2}
    return ps.Job(**usual | {"stop": ps.Stop(updates=3)} | fields)


class Broken:
    """A schedule that raises from the start."""

    def factor(self, updates: int, epochs: float) -> float:
        return 1 / updates


class Few(Asynchronous):
    """A policy that wants more workers, and says so in words of its own."""

    def check(self, workers: int) -> None:
        raise ConfigurationError("few wants at least 9 workers; give workers=9", field="workers")


class Locked:
    """A model that cannot leave its process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self) -> nn.Module:
        return net()


def in_file(text: str) -> ps.Job:
    """Make a job whose store lies below a file."""
    Path("plain").touch()
    return job(store=text)


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    # The job as such.
    "a dict for a job": (lambda: {"workload": "digits"}, "job", r"the job must be a ps\.Job, not .*; write ps\.Job"),
    "a name for a job": (lambda: "digits", "job", r"the job must be a ps\.Job, not 'digits'; write ps\.Job"),
    "nothing to train": (ps.Job, "model", "say what to train in one way.*given: nothing"),
    "two things to train": (lambda: job(workload="digits"), "model", "given: workload and model, loss and data"),
    "a field of another": (lambda: job(epochs=3), "epochs", 'a job has no field "epochs"; choose from'),
    # The model.
    "a model's name": (
        lambda: job(model="resnet18"),
        "model",
        r"an nn\.Module or a callable.*, not 'resnet18'; hand in",
    ),
    "a state dict": (lambda: job(model=net().state_dict()), "model", "must be an nn.Module or a callable"),
    "a list of layers": (lambda: job(model=[net()]), "model", "must be an nn.Module or a callable"),
    "a builder without return": (lambda: job(model=lambda: None), "model", "model is a NoneType; hand in"),
    "no parameters": (lambda: job(model=nn.ReLU), "model", "no trainable parameters; leave requires_grad on"),
    "frozen": (lambda: job(model=net().requires_grad_(False)), "model", "no trainable parameters; leave"),
    "lazy layers": (lambda: job(model=nn.LazyLinear(4)), "model", "has no shape yet; run one batch"),
    "half precision": (lambda: job(model=net().half()), "model", "is of dtype float16; keep parameters in float32"),
    "a lock in the model": (lambda: job(model=Locked()), "model", "cannot be pickled.*; make it from plain data"),
    "more shards than parameters": (
        lambda: job(shards=300),
        "shards",
        "^shards must be at most 36, not 300: the model has 36 parameters, and each shard needs one of its own; give",
    ),
    "far too many shards": (lambda: job(shards=10**6), "shards", "an int from 1 to 4096, not 1000000"),
    # The loss.
    "no loss": (lambda: job(loss=None), "loss", "a model needs its loss and data: loss .or step. is missing"),
    "a loss's name": (
        lambda: job(loss="cross_entropy"),
        "loss",
        "a callable of output and target, not 'cross_entropy'",
    ),
    "a loss's class": (lambda: job(loss=nn.MSELoss), "loss", r"is the class MSELoss; hand in .*: MSELoss\(\)"),
    "a loss per sample": (lambda: job(loss=nn.CrossEntropyLoss(reduction="none")), "loss", r"shape \(32,\), not \(\)"),
    "a loss that is a number": (
        lambda: job(loss=lambda output, target: 1.0),
        "loss",
        "a float; return a scalar tensor",
    ),
    # The data.
    "a file's name": (lambda: job(data="digits.csv"), "data", "is a str; read it first and hand in"),
    "a path": (lambda: job(data=Path("x")), "data", "is a PosixPath; hand in"),
    "arrays by name": (
        lambda: job(data={"x": X, "y": Y}),
        "data",
        "batches are dicts with the keys x, y, but a loss takes",
    ),
    "inputs alone": (lambda: job(data=X), "data", "batches are Tensors, but a loss takes pairs"),
    "three arrays": (lambda: job(data=(X, Y, Y)), "data", "batches are tuples of 3, but a loss takes pairs"),
    "lists of numbers": (
        lambda: job(data=(X.tolist(), Y.tolist())),
        "data",
        "a tuple of list and list; let every part be an array",
    ),
    "no targets": (lambda: job(data=(X, None)), "data", "a tuple of ndarray and NoneType; let every part be"),
    "too few targets": (lambda: job(data=(X, Y[:-1])), "data", "100 inputs but 99 targets; hand in one target"),
    "texts": (lambda: job(data=(X, np.full(100, "dog"))), "data", "targets are an array of dtype <U3, which"),
    "objects": (lambda: job(data=(X.astype(object), Y)), "data", "inputs are an array of dtype object, which"),
    "a frame of texts": (
        lambda: job(data=(pd.DataFrame({"a": ["x"] * 100}), Y)),
        "data",
        "dtype .*, which torch cannot",
    ),
    "a sparse matrix": (lambda: job(data=(scipy.sparse.csr_array(X), Y)), "data", r"hand in inputs\.toarray\(\)"),
    "a generator": (lambda: job(data=(one for one in X)), "data", "cannot be pickled.*; make it from plain data"),
    "fewer samples than a batch": (lambda: job(data=(X[:4], Y[:4])), "batch_size", "at most .* samples: 32 > 4"),
    "held-out data of texts": (
        lambda: job(test=(X, np.full(100, "dog"))),
        "test",
        r"held-out data \(test\): The targets",
    ),
    "held-out data too short": (lambda: job(test=(X, Y[:-1])), "test", r"held-out data \(test\): There are 100 inputs"),
    "a target without such": (lambda: job(stop=ps.Stop(target_accuracy=0.9)), "test", "give the job test="),
    "a target of one metric without such": (
        lambda: job(stop=ps.Stop(targets={"loss": 1})),
        "test",
        "give the job test=",
    ),
    "patience without such": (lambda: job(stop=ps.Stop(patience=3)), "test", "need held-out data; give the job test="),
    "the best of nothing": (lambda: job(keep_best=True), "test", "need held-out data; give the job test="),
    # Metrics.
    "a metric's typo": (lambda: job(metrics="f2", test=(X, Y)), "metrics", 'no metric "f2"; choose from accuracy, f1'),
    "a metric's class": (
        lambda: job(metrics=[nn.MSELoss]),
        "metrics",
        r"is the class MSELoss; hand in .*: MSELoss\(\)",
    ),
    "a metric that is a number": (lambda: job(metrics={"m": 3}), "metrics", "a metric cannot be 3; give a function"),
    "a metric called loss": (
        lambda: job(metrics={"loss": "f1"}),
        "metrics",
        'cannot be called "loss".*; choose another',
    ),
    "an eye on nothing": (lambda: job(watch="f1"), "watch", 'nothing measures "f1"; .*; name others in metrics'),
    "a target of nothing": (lambda: job(stop=ps.Stop(targets="f1=1")), "stop.targets", 'nothing measures "f1"'),  # type: ignore[arg-type]  # the mistake
    "a target without a value": (lambda: ps.Stop(targets="f1"), "stop.targets", 'write NAME=VALUE, not "f1"'),  # type: ignore[arg-type]  # the mistake
    "outputs beside a loss": (lambda: job(predict=min), "predict", "predict belongs to a step; with a loss"),
    "patience without looks": (
        lambda: job(test=(X, Y), evaluate_every=None, stop=ps.Stop(patience=3)),
        "evaluate_every",
        "patience counts evaluations.*; give evaluate_every",
    ),
    # Optimiser, schedule, policy.
    "an optimiser's class": (lambda: job(optimizer=ps.SGD), "optimizer", r"is the class SGD; hand in .*: SGD\(\)"),
    "a schedule's class": (lambda: job(schedule=ps.Cosine), "schedule", r"; write Cosine\(\.\.\.\)"),
    "a function for a schedule": (lambda: job(schedule=lambda updates: 1.0), "schedule", r"factor\(updates, epochs\)"),
    "a schedule that raises": (lambda: job(schedule=Broken()), "schedule", r"Broken raises .* \(ZeroDivisionError"),
    "a policy's class": (lambda: job(policy=Asynchronous), "policy", r"not .*; write Asynchronous\(\)"),
    "traits in words": (lambda: Traits(exact=False, scope="block"), "policy", "scope='block'; give Scope.MODEL or"),  # type: ignore[arg-type]  # the mistake
    "exact blocks": (lambda: Traits(exact=True, scope=Scope.BLOCK), "policy", "scope BLOCK needs exact = False"),
    "a policy that wants more": (lambda: job(policy=Few()), "workers", "few wants at least 9 workers; give workers=9"),
    "options beside a policy": (
        lambda: job(policy=Asynchronous(), policy_options={"rate": "constant"}),
        "policy_options",
        "go with a policy's name, not with a Policy",
    ),
    # Numbers and places.
    "a slow server of no shard": (
        lambda: job(slow_servers="shards=3,seconds=1,chance=1"),
        "slow_servers",
        "no shard 3 among 1; they are numbered from 0",
    ),
    "a task's class": (
        lambda: ps.Job(task=ps.Task),
        "task",
        r"is the class Task; hand in one of its objects: Task\(\)",
    ),
    "a switch for a number": (lambda: job(workers=True), "workers", "an int from 1 to 1000000, not True"),
    "a number of blocks": (lambda: job(block_elements=1000), "block_elements", "a power of two .*; try 65536"),
    "an end that is a number": (lambda: job(stop=100), "stop", "stop must be a Stop"),
    "no end": (lambda: job(stop=ps.Stop()), "stop", "has no condition; give updates"),
    "a device's number": (lambda: job(device=0), "device", "device must be a str, not 0"),
    "a store below a file": (lambda: in_file("plain/run.zarr"), "store", "plain is no folder.*; choose"),
    "a store that is a file": (lambda: in_file("plain"), "store", "plain is a file; choose another"),
    "a store of no name": (lambda: job(store="a\0b"), "store", "no path holds a null character.*; choose"),
}


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    started: list[object] = []
    monkeypatch.setattr("distributed.LocalCluster.__init__", lambda self, **options: started.append(options))
    monkeypatch.chdir(tmp_path)
    yield
    assert started == []
    assert [path.name for path in tmp_path.iterdir() if path.name != "plain"] == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_sentence_before_anything_is_started(mistake: str) -> None:
    make, field, sentence = MISTAKES[mistake]
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        ps.train(make())
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("held_out", "said"),
    [((X[:, :7], Y), "shapes cannot be multiplied"), ((X, Y + 7), "out of bounds")],
    ids=["other inputs", "other classes"],
)
def test_held_out_data_that_do_not_suit_the_model_are_told_before_anything_is_started(held_out: Any, said: str) -> None:
    with pytest.raises(UserCodeError, match=f"while measuring the first held-out samples: .*{said}"):
        ps.train(job(test=held_out))


@pytest.mark.parametrize("call", [ps.attach, ps.recover])
def test_a_store_that_is_no_name_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigurationError, match="named by a path or a URL, not by 3; give the one") as caught:
        call(3)
    assert caught.value.field == "store"


def test_conditions_that_are_a_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a ps\.Conditions, not 'uniform'; write ps\.Cond") as caught:
        ps.simulate(job(), "uniform")  # type: ignore[arg-type]  # the mistake
    assert caught.value.field == "conditions"


def test_a_store_may_be_given_as_a_path() -> None:
    assert job(store=Path("a") / "b.zarr").store == "a/b.zarr"


IN_SIMULATIONS = ("a dict for a job", "more shards than parameters", "texts", "held-out data too short")


@pytest.mark.parametrize("mistake", IN_SIMULATIONS)
@pytest.mark.parametrize("timing_only", [False, True])
def test_a_simulation_refuses_it_alike(mistake: str, timing_only: bool) -> None:
    make, field, sentence = MISTAKES[mistake]
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        ps.simulate(make(), ps.Conditions(compute="uniform:low=0.1,high=0.2", timing_only=timing_only))
    assert caught.value.field == field
