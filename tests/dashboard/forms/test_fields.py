"""Forms are made of the declarations: a field for each parameter, and its sentence beside what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from psplatform.core.parameters import Parameter, parameter, parameters_of
from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import OPTIMIZERS
from psplatform.jobs.replication import MODES
from psplatform.jobs.schedules import SCHEDULES
from psplatform.policies import registry
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.registry import policy_class, policy_names
from psplatform.workloads.registry import WORKLOADS

DIGITS = "digits"


@dataclass
class ThirdParty(BulkSynchronous):
    """A policy of another package."""

    patience: int = parameter(4, minimum=1, maximum=9, help="rounds it waits")
    table: str | None = parameter(None, help="file of a table", path=True)


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a package that is installed register a policy."""
    known = registry._registered()
    monkeypatch.setattr(EntryPoint, "load", lambda self, load=EntryPoint.load: _load(self, load))
    entry = EntryPoint("third-party", "elsewhere:ThirdParty", registry.GROUP)
    monkeypatch.setattr(registry, "_registered", lambda: {**known, "third-party": entry})


def _load(entry: EntryPoint, load: Any) -> Any:
    return ThirdParty if entry.name == "third-party" else load(entry)


def fields(app: AppTest) -> dict[str, Any]:
    return {one.key: one for kind in (app.text_input, app.selectbox) for one in kind}


def require_fields(app: AppTest, family: str, parameters: tuple[Parameter, ...]) -> None:
    found = fields(app)
    for one in parameters:
        field = found[f"{family}.{one.name}"]
        assert field.disabled == one.path, one.name
        assert field.help, one.name
        assert bool(one.choices or one.kind is bool) == (field.type == "selectbox"), one.name


def choose(app: AppTest, family: str, name: str, subject: str = DIGITS) -> AppTest:
    app.selectbox(key=f"{family} of {subject}").select(name).run()
    assert not app.exception
    return app


def test_every_policy_has_a_field_for_each_parameter(bench: Any, third_party: None) -> None:
    app = bench.show("start")
    assert app.selectbox(key="policy of digits").options == policy_names()
    for name in policy_names():
        require_fields(choose(app, "policy", name), f"policy.{name}", parameters_of(policy_class(name)))
    assert "third-party" in policy_names()


def test_every_optimiser_and_schedule_has_a_field_for_each_parameter(bench: Any) -> None:
    app = bench.show("start")
    for name, kind in OPTIMIZERS.items():
        require_fields(choose(app, "optimizer", name), f"optimizer.{name}", parameters_of(kind))
    for name, schedule in SCHEDULES.items():
        require_fields(choose(app, "schedule", name), f"schedule.{name}", parameters_of(schedule))


def test_replication_checkpoints_and_ends_have_a_field_for_each_parameter(bench: Any) -> None:
    app = bench.show("start")
    for name, kind in MODES.items():
        require_fields(choose(app, "mode", name), f"replication.{name}", parameters_of(kind))
    require_fields(app, "checkpoints", parameters_of(Checkpoints))
    require_fields(app, "stop", parameters_of(Stop))
    known = {one.name: one for one in parameters_of(Job)}
    shown = ("workers", "shards", "batch_size", "clip_norm", "evaluate_every", "seed", "stragglers", "slow_servers")
    require_fields(app, "job", tuple(known[name] for name in shown))


def test_every_workload_has_a_field_for_each_option_and_paths_cannot_be_set(bench: Any) -> None:
    app = bench.show("start")
    for name, workload in WORKLOADS.items():
        app.selectbox(key="what").select(name).run()
        assert not app.exception
        require_fields(app, f"workload.{name}", workload.parameters)
        needs_path = any(one.path and one.required for one in workload.parameters)
        assert app.button(key="start").disabled == needs_path
        assert any("a path, which a page may not name" in one.value for one in app.caption) == needs_path


REFUSED = (
    ("policy.bsp", "job.workers", "0", "workers must be an int from 1 to 1000000, not 0"),
    ("", "job.clip_norm", "much", "clip_norm must be a float above 0, not 'much'"),
    ("", "job.stragglers", "trace:/etc/passwd", "trace /etc/passwd cannot be read here"),
    ("", "job.slow_servers", "shards=zero", ""),
    ("", "stop.target_accuracy", "2", "target_accuracy must be"),
    ("", "checkpoints.keep", "-1", "keep must be an int of at least 0, not -1"),
    ("", "optimizer.sgd.momentum", "1", "momentum must be"),
)


@pytest.mark.parametrize(("_", "key", "text", "sentence"), REFUSED)
def test_what_is_out_of_range_is_said_at_the_field(bench: Any, _: str, key: str, text: str, sentence: str) -> None:
    app = bench.show("start")
    assert not app.button(key="start").disabled
    app.text_input(key=key).input(text).run()
    assert not app.exception
    said = [one.value.replace("\\", "") for one in app.caption if one.value.startswith(":red[")]
    assert len(said) == 1
    assert sentence in said[0]
    assert app.button(key="start").disabled
    assert app.button(key="preview").disabled
    app.text_input(key=key).input("").run()
    assert not app.button(key="start").disabled


def yaml_of(app: AppTest) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(next(one.value for one in app.code if one.language == "yaml"))
    return found


def test_a_policy_of_another_package_is_configured_like_ours(bench: Any, third_party: None) -> None:
    app = choose(bench.show("start"), "policy", "third-party")
    app.text_input(key="policy.third-party.patience").input("7").run()
    assert yaml_of(app)["policy_options"] == {"patience": 7}
    app.text_input(key="policy.third-party.patience").input("10").run()
    assert any("patience must be an int from 1 to 9" in one.value.replace("\\", "") for one in app.caption)
    assert app.text_input(key="policy.third-party.table").disabled


def test_a_field_of_a_path_changes_nothing_whatever_a_browser_sends(bench: Any, third_party: None) -> None:
    """A browser may send values of disabled fields as well."""
    app = choose(bench.show("start"), "policy", "third-party")
    before = yaml_of(app)
    app.session_state["policy.third-party.table"] = "/etc/passwd"
    app.run()
    assert app.text_input(key="policy.third-party.table").value == "/etc/passwd"
    assert yaml_of(app) == before
    app = choose(bench.show("start"), "policy", "cutoff")
    before = yaml_of(app)
    for one in parameters_of(policy_class("cutoff")):
        if one.path:
            app.session_state[f"policy.cutoff.{one.name}"] = "/etc/passwd"
            app.run()
    assert yaml_of(app) == before


@pytest.fixture
def stored(shelf: Any) -> Mapping[str, Any]:
    """A stored job that differs from the defaults in everything that has a choice of its own."""
    job: dict[str, Any] = Job(
        workload="mlp",
        policy="ssp",
        policy_options={"bound": 5},
        optimizer={"name": "adam", "lr": 0.25},
        schedule={"name": "step", "gamma": 0.5},
        replication="chain",
        evaluate_every=None,
        checkpoints={"every_updates": 7, "keep": 2},
        stop=Stop(updates=9),
    ).to_plain()
    shelf.write("other", job=job)
    return job


def test_the_job_of_a_stored_run_is_kept_as_it_is(bench: Any, stored: Mapping[str, Any]) -> None:
    """Although another was shown before it."""
    app = bench.show("start")
    app.selectbox(key="what").select("job of the run other").run()
    assert not app.exception
    found = Job(**yaml_of(app)).to_plain()
    assert {name: found[name] for name in found if name != "replication_asked"} == {
        name: stored[name] for name in found if name != "replication_asked"
    }
    choose(app, "schedule", "constant", "job of the run other")
    assert yaml_of(app)["schedule"] == {"name": "constant"}
    choose(app, "mode", "as usual", "job of the run other")
    assert "replication" not in yaml_of(app)


def test_stragglers_are_written_in_the_words_of_the_form(bench: Any) -> None:
    app = bench.show("start")
    app.text_input(key="job.stragglers").input("slow:chance=0.1,factor=4")
    app.text_input(key="job.slow_servers").input("shards=0,seconds=1,chance=0.05").run()
    assert not app.exception
    found = yaml_of(app)
    assert found["stragglers"] == "slow:chance=0.1,factor=4"
    assert found["slow_servers"] == "shards=0,seconds=1,chance=0.05"
    assert Job(**found).stragglers is not None


@pytest.mark.parametrize(
    "content",
    [
        {"workload": "digits", "optimizer": {"name": "nosuch"}},
        {"workload": "digits", "optimizer": [1]},
        {"workload": "digits", "schedule": "nosuch"},
        {"workload": "digits", "schedule": 7},
        {"workload": "digits", "replication": {"mode": "nosuch"}},
        {"workload": "digits", "replication": 3},
        {"workload": "digits", "checkpoints": {"nosuch": 1}},
        {"workload": "digits", "policy_options": "much"},
        {"workload": "digits", "policy": ["bsp"]},
        {"workload": ["digits"]},
        {"workload": "nosuch"},
        {"workload": "digits", "options": 3},
    ],
)
def test_a_job_that_makes_no_sense_is_refused_in_a_sentence(bench: Any, shelf: Any, content: dict[str, Any]) -> None:
    """Whether it comes from a job file or a store."""
    shelf.write("odd", job=content)
    app = bench.show("start")
    app.selectbox(key="what").select("job of the run odd").run()
    assert not app.exception, app.exception[0].stack_trace[-3:]
    started = [one for one in app.button if one.key == "start"]
    if started and not started[0].disabled:
        started[0].click().run()
        assert not app.exception, app.exception[0].stack_trace[-3:]
    assert app.error
    assert "\n" not in app.error[0].value


def test_errors_are_of_our_tree() -> None:
    with pytest.raises(ConfigurationError):
        next(one for one in parameters_of(Stop) if one.name == "updates").accept("x")
