"""Whatever a user can set is declared once: described for forms and help, and refused out of range by name."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psplatform.core.parameters import Parameter, declared, parameters_of
from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.distributions import DISTRIBUTIONS, Constant, LogNormal, Pareto, ShiftedExponential, Uniform
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import OPTIMIZERS
from psplatform.jobs.replication import MODES
from psplatform.jobs.schedules import SCHEDULES, Cosine
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.policies.registry import make_policy, policy_names
from psplatform.simulation.conditions import Conditions
from psplatform.workloads.registry import WORKLOADS

README = Path(__file__).resolve().parents[2] / "README.md"
TIMES = (Constant(1.0), Uniform(1.0, 2.0), ShiftedExponential(1.0, 2.0), Pareto(1.0, 2.0), LogNormal(1.0, 0.5))
# One of everything that is declared; required parameters have values here.
INSTANCES: tuple[Any, ...] = (
    *(make_policy(name) for name in policy_names()),
    *(kind() for kind in OPTIMIZERS.values()),
    *(kind(updates=10) if kind is Cosine else kind() for kind in SCHEDULES.values()),
    *(kind() for kind in MODES.values()),
    Checkpoints(),
    Stragglers(),
    SlowServers((0,), 1.0, 0.5),
    *TIMES,
    Conditions(),
    Stop(updates=1),
    Job(workload="mlp"),
    *(one.options("somewhere") if one.parameters[0].required else one.options() for one in WORKLOADS.values()),
)
OWNERS = [pytest.param(type(one), id=type(one).__name__) for one in INSTANCES]


def wrong_values(one: Parameter) -> Iterator[Any]:
    """Give values of the wrong type, and beside each bound one that is out of range."""
    if one.choices:
        yield "no such word"
    if one.kind is bool:
        yield from (1, [])
    if one.kind in (int, float):
        yield from (True, [], math.nan, *((10**30, 1.5) if one.kind is int else ()))
        least = 1 if one.kind is int else 1e-6
        yield from ([] if one.minimum is None else [one.minimum - least])
        yield from ([] if one.maximum is None else [one.maximum + max(least, one.maximum * 1e-6)])
        yield from (bound for bound in (one.above, one.below) if bound is not None)
        yield from ((math.inf, -math.inf) if one.finite else ())


def changed(instance: Any, name: str, value: Any) -> Any:
    if isinstance(instance, Job):
        return Job(workload="mlp", **{name: value})
    return dataclasses.replace(instance, **{name: value})


WRONG = [
    pytest.param(instance, one, value, id=f"{type(instance).__name__}-{one.name}-{value!r}"[:60])
    for instance in INSTANCES
    for one in parameters_of(type(instance))
    for value in wrong_values(one)
]

UNCHECKED = {one.options for one in WORKLOADS.values()}  # declarations only: a workload checks what it is made with
UNMAKEABLE = [
    one
    for one in WRONG
    if type(one.values[0]) not in UNCHECKED and not (isinstance(one.values[0], Job) and one.values[2] is True)
]
"""The same without what a job takes for a number: its files and command lines may say true for 1."""


def test_everything_that_jobs_are_made_of_is_covered_here() -> None:
    covered = {type(one) for one in INSTANCES}
    for family in (OPTIMIZERS, SCHEDULES, MODES, DISTRIBUTIONS):
        assert covered >= set(family.values())
    assert covered >= {one.options for one in WORKLOADS.values()}
    assert len(WRONG) > 500


@pytest.mark.parametrize("owner", OWNERS)
def test_every_parameter_is_described_completely(owner: type) -> None:
    for one in parameters_of(owner):
        assert re.fullmatch(r"\S.*[^.\s]", one.help), one
        plain = one.describe()
        assert json.loads(json.dumps(plain)).keys() == {"name", "type", "default", "range", "help"}
        assert one.wanted
        assert declared(owner)[one.name] is one


@pytest.mark.parametrize("owner", OWNERS)
def test_every_default_and_every_inclusive_bound_is_within_the_range(owner: type) -> None:
    for one in parameters_of(owner):
        if not one.required:
            assert one.accept(one.default) == one.default
        if one.kind in (int, float):
            for bound in (one.minimum, one.maximum):
                assert bound is None or one.accept(bound) == bound == one.accept(str(bound))
        for word in one.choices:
            assert one.accept(word) == word


@pytest.mark.parametrize("owner", OWNERS)
def test_a_default_may_be_written_down_and_read_again(owner: type) -> None:
    for one in parameters_of(owner):
        if one.kind in (int, float, bool, str) and not one.required:
            assert one.accept(str(one.default)) == one.default


@pytest.mark.parametrize(("instance", "one", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(instance: Any, one: Parameter, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        one.accept(value)
    assert caught.value.field == one.name
    assert f"{one.spelled} must be " in str(caught.value)
    assert f"not {value!r}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("instance", "one", "value"), UNMAKEABLE)
def test_what_would_have_a_wrong_value_cannot_be_made(instance: Any, one: Parameter, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=one.spelled):
        changed(instance, one.name, value)


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda one: type(one).__name__)
def test_what_is_declared_is_a_value(instance: Any) -> None:
    """It equals its copies, travels to other processes, and frozen ones can be keys."""
    assert pickle.loads(pickle.dumps(instance)) == instance  # noqa: S301 - made here
    if dataclasses.is_dataclass(instance) and type(instance).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        assert hash(instance) == hash(pickle.loads(pickle.dumps(instance)))  # noqa: S301 - made here
        for one in parameters_of(type(instance)):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(instance, one.name, getattr(instance, one.name))


def test_a_work_that_a_parameter_comes_from_is_named() -> None:
    assert "Loshchilov" in declared(Cosine)["floor"].source
    assert "Ho" in declared(type(make_policy("ssp")))["bound"].source
    assert {one.source for kind in MODES.values() for one in parameters_of(kind)} == {""}


def test_a_specification_is_read_from_text_where_a_job_reads_it() -> None:
    assert declared(Stragglers)["distribution"].accept("uniform:low=1,high=2") == Uniform(1.0, 2.0)
    assert declared(Stragglers)["factors"].accept("1, 2") == (1.0, 2.0)
    assert declared(SlowServers)["shards"].accept("0,2") == (0, 2)
    assert declared(OPTIMIZERS["adam"])["betas"].accept("0.5, 0.6") == (0.5, 0.6)
    assert declared(Job)["optimizer"].accept("adam") == OPTIMIZERS["adam"]()
    assert declared(Job)["checkpoints"].accept("10s") == Checkpoints(every_seconds=10)
    assert declared(Job)["stragglers"].accept("none") is None


@pytest.fixture
def deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """Return the policy of the README, which knows nothing but what is written there."""
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (code,) = (one for one in programs if "(Policy)" in one)
    (tmp_path / "readme_policies.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    found: type = importlib.import_module("readme_policies").Deadline
    return found


def test_a_policy_of_ones_own_is_declared_as_the_readme_says(deadline: type) -> None:
    (seconds,) = parameters_of(deadline)
    assert seconds.describe() == {
        "name": "seconds",
        "type": "float",
        "default": 0.1,
        "range": [0.0, None],
        "help": "longest round, if anything has come by then",
    }
    assert deadline(seconds="0.2") == deadline(0.2)
    with pytest.raises(ConfigurationError, match="seconds must be a float of at least 0, not -1") as caught:
        deadline(seconds=-1)
    assert caught.value.field == "seconds"
