"""The YAML and the command that the page shows are the job of the form."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psplatform.cli.commands.train import job_fields, train
from psplatform.core.parameters import accept_all
from psplatform.dashboard.forms.jobs import as_command, as_yaml, job_in, job_of, new_store, write_job
from psplatform.dashboard.settings import Settings, install
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.policies.registry import make_policy
from psplatform.workloads.registry import find_workload

NUMBERS = st.floats(1e-6, 1e6)


def parts(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a mapping with any of these."""
    return st.fixed_dictionaries({}, optional=fields)


OPTIMIZERS = st.one_of(
    st.just({"name": "sgd"}),
    st.builds(lambda more: {"name": "sgd", **more}, parts(lr=NUMBERS, momentum=st.floats(0, 0.99))),
    st.builds(lambda more: {"name": "adam", **more}, parts(lr=NUMBERS, betas=st.just((0.8, 0.99)))),
    st.builds(lambda more: {"name": "rmsprop", **more}, parts(momentum=st.floats(0, 0.99), centered=st.booleans())),
)
BOUNDS = st.one_of(
    st.builds(lambda bound: {"max_divergence": bound}, NUMBERS),
    st.builds(lambda bound: {"max_divergence": float(bound), "unit": "updates"}, st.integers(1, 10**9)),
    st.builds(lambda bound: {"max_divergence": bound, "unit": "norm"}, NUMBERS),
    st.just({"unit": "updates"}),
    st.just({}),
)
COPIES = parts(
    replicas=st.integers(1, 3),
    on_replica_loss=st.just("pause"),
    on_isolation=st.just("continue"),
    source=st.just("workers"),
)
REPLICATIONS = st.one_of(
    st.just({"mode": "none"}),
    st.builds(lambda more: {"mode": "chain", **more}, COPIES),
    st.builds(lambda bound, more: {"mode": "bounded", **bound, **more}, BOUNDS, COPIES),
)
CHECKPOINTS = st.one_of(
    st.just({"keep": 0}),
    parts(keep=st.integers(1, 9), every_updates=st.integers(1, 1000), every_seconds=NUMBERS),
)
SCHEDULES = st.one_of(
    st.just({"name": "step", "gamma": 0.5}), st.just({"name": "cosine", "updates": 50}), st.just({"name": "constant"})
)
POLICIES = st.sampled_from(
    [("bsp", {}), ("ssp", {"bound": 7}), ("backup", {"k": 2}), ("ssp", {"rate": "constant", "damping": 0.125})]
)
STOPS = parts(
    updates=st.integers(1, 10**6),
    epochs=NUMBERS,
    seconds=NUMBERS,
    target_loss=st.floats(-10, 10),
    target_accuracy=st.floats(0.01, 1),
    targets=st.dictionaries(st.sampled_from(["f1", "loss"]), st.floats(-10, 10), min_size=1),
    patience=st.integers(1, 9),
    min_delta=st.floats(0, 1),
)
FIELDS = parts(
    optimizer=OPTIMIZERS,
    replication=REPLICATIONS,
    checkpoints=CHECKPOINTS,
    schedule=SCHEDULES,
    stop=STOPS,
    workers=st.integers(1, 99),
    shards=st.integers(1, 9),
    batch_size=st.integers(1, 512),
    sampling=st.just("replacement"),
    evaluate_on=st.just("training"),
    evaluate_every=st.one_of(st.none(), st.integers(1, 99)),
    metrics=st.sampled_from(["f1", "f1,perplexity", ["perplexity", "f1"], {"f1": {"measure": "f1"}}, {"f1": "f1"}]),
    watch=st.sampled_from(["loss", "accuracy", "f1"]),
    keep_best=st.booleans(),
    clip_norm=NUMBERS,
    seed=st.integers(0, 2**63 - 1),
    stragglers=st.just("shifted-exponential:shift=0.02,mean=0.05;slow:chance=0.1,factor=4"),
    slow_servers=st.just("shards=0,seconds=1,chance=0.05"),
    network=st.sampled_from([{}, {"fabric": None}, {"fabric": {}}, {"fabric": {"tick_s": 0.5}}]),
)
WORKLOADS = st.sampled_from(
    [
        {"workload": "digits"},
        {"workload": "digits", "options": {"network": "perceptron"}},
        {"workload": "mlp", "options": {"samples": 100, "spread": 0.5}},
    ]
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    name, options = draw(POLICIES)
    own = {"policy_options": options} if options else {}
    return {**draw(WORKLOADS), "policy": name, **own, **draw(FIELDS)}


def started(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the job that the command line starts of its fields, and the parameters of its policy."""
    job = Job(**fields)
    options = accept_all(find_workload(str(job.workload)).options, job.options, what="the workload")
    plain = job.to_plain() | {"policy_options": None, "options": options}
    return plain, vars(make_policy(job.policy, job.policy_options))


def of_command(command: str) -> dict[str, Any]:
    """Return the fields that the command line takes from a command, as a shell would give it to it."""
    words = shlex.split(command)
    assert words[:2] == ["psplatform", "train"]
    with click.Context(train) as context:
        train.parse_args(context, words[2:])
        given = dict(context.params)
    assert given.pop("scheduler") == "tcp://a:1"
    return job_fields(given.pop("what"), given)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=jobs())
def test_the_file_and_the_command_start_the_same_job(job: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(as_yaml(job))
    assert yaml.safe_load(file.read_text()) is not None
    expected = job_fields(str(file), {})
    try:
        wanted = started(expected)
    except ConfigurationError:
        return  # fields that do not fit together are refused before anything is started
    command = as_command(job, Settings(scheduler="tcp://a:1"))
    if command is not None:
        assert started(of_command(command)) == wanted
    for name in job.keys() - {"stop", "optimizer", "replication", "checkpoints", "schedule", "policy_options"}:
        assert expected[name] == job[name] or name in ("stragglers", "options"), name


@pytest.mark.parametrize(
    "more",
    [
        {"optimizer": {"name": "adam", "betas": (0.8, 0.99)}},
        {"evaluate_every": None},
        {"schedule": {"name": "step"}},
        {"replication": {"mode": "bounded", "unit": "norm"}},
        {"checkpoints": {"every_seconds": 3.0}},
        {"torch_threads": 2},
        {"network": {"fabric": {"tick_s": 0.5}}},
    ],
)
def test_what_no_flag_can_say_needs_a_job_file(more: dict[str, Any]) -> None:
    assert as_command({"workload": "digits", "policy": "bsp", **more}, Settings()) is None


def test_how_gradients_are_compressed_is_a_word() -> None:
    job = {"workload": "digits", "policy": "bsp", "compression": "topk:0.01"}
    assert as_command(job, Settings()) == "psplatform train digits --compression topk:0.01 --policy bsp"


def test_most_jobs_have_a_command() -> None:
    job = {"workload": "digits", "policy": "ssp", "policy_options": {"bound": 5}, "workers": 4, "stop": {"updates": 9}}
    said = as_command(job, Settings())
    assert said == "psplatform train digits --workers 4 --policy ssp -o bound=5 --updates 9"


@pytest.mark.parametrize(
    ("network", "words"), [({"fabric": {}}, " --fabric"), ({"fabric": {"tick_s": 0.1}}, " --fabric"), ({}, "")]
)
def test_usual_plans_of_transfers_are_a_flag(network: dict[str, Any], words: str) -> None:
    job = {"workload": "digits", "policy": "bsp", "network": network}
    assert as_command(job, Settings()) == f"psplatform train digits --policy bsp{words}"


@pytest.mark.parametrize("workload", ["--help", "job.yaml", "", None, "nosuch"])
def test_a_command_names_a_workload_that_there_is(workload: str | None) -> None:
    assert as_command({"workload": workload, "policy": "bsp"}, Settings()) is None


def test_what_a_command_says_is_one_word_for_a_shell() -> None:
    job = {"workload": "digits", "policy": "bsp", "stragglers": "slow:chance=0.1,factor=4; rm -rf ~"}
    assert job["stragglers"] in shlex.split(as_command(job, Settings()) or "")


def test_a_stored_job_keeps_what_was_switched_off() -> None:
    """None is not the default of every field."""
    plain = Job(workload="digits", evaluate_every=None).to_plain()
    assert job_of({"job": plain})["evaluate_every"] is None
    assert "clip_norm" not in job_of({"job": plain})
    assert "network" not in job_of({"job": plain})
    assert "store" not in job_of({"job": {**plain, "store": "elsewhere", "scheduler": "tcp://a:1"}})


@pytest.mark.parametrize("job", [None, {}, [], "digits", 7, {"callables": ["model"]}, {"callables": [1], "seed": 1}])
def test_a_store_without_a_job_is_refused(job: Any) -> None:
    with pytest.raises(ConfigurationError):
        job_of({"job": job})


@pytest.mark.parametrize("content", ["[1]", "{", "workload: [digits]", "workload: digits\npolicy: 3", "stop: soon"])
def test_a_job_file_that_makes_no_sense_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        job_in(str(file))
    assert "\n" not in str(caught.value)


def test_a_new_store_lies_in_the_folder_whatever_the_job_is_called(tmp_path: Path) -> None:
    install(Settings(folder=str(tmp_path), records=str(tmp_path / "records")))
    for name in ("digits", "../../etc", "a/b", "-x", "ü" * 300):
        store = Path(new_store({"workload": name, "policy": name}))
        assert store.parent == tmp_path
        assert store.suffix == ".zarr"
        assert len(store.name.encode()) < 255
    assert new_store({}) != new_store({})


def test_a_job_file_is_nobody_elses_to_read(tmp_path: Path) -> None:
    install(Settings(folder=str(tmp_path), records=str(tmp_path / "records")))
    path = Path(write_job({"workload": "digits"}))
    assert yaml.safe_load(path.read_text()) == {"workload": "digits"}
    assert path.parent.stat().st_mode & 0o077 == 0


def test_records_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("not a folder")
    install(Settings(folder=str(tmp_path), records=str(tmp_path / "records")))
    with pytest.raises(ConfigurationError, match="cannot write .*records"):
        write_job({"workload": "digits"})


@pytest.mark.parametrize(
    "job",
    [
        {"workload": "digits", "stragglers": "trace:/etc/passwd"},
        {
            "workload": "digits",
            "policy": "cutoff",
            "policy_options": {"predictor": "generative", "model": "/etc/passwd"},
        },
        {"workload": "mnist", "options": {"folder": "/etc"}},
    ],
)
def test_a_stored_job_names_no_file_of_this_machine(job: dict[str, Any]) -> None:
    """A store may come from anywhere, and what its job names would be read here."""
    with pytest.raises(ConfigurationError):
        job_of({"job": job})
