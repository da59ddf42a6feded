"""Starting, previewing, asking what if, recovering: with the programs faked where they would be started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.client.runs.programs import Program
from psplatform.dashboard.pages.what_if import _word
from psplatform.errors import ConfigurationError
from psplatform.jobs.stragglers import read_trace

Check = Callable[[AppTest], None]


def press(app: AppTest, key: str) -> AppTest:
    return app.button(key=key).click().run()


def unescaped(texts: Any) -> str:
    return " ".join(one.value for one in texts).replace("\\", "")


def test_start_starts_the_job_of_the_form_in_a_new_store(bench: Any, fake: Any, healthy: Check) -> None:
    app = bench.show("start")
    app.text_input(key="job.workers").input("3")
    app.text_input(key="stop.updates").input("9").run()
    press(app, "start")
    healthy(app)
    (command,) = fake.commands
    assert [*command[:1], *command[2:3], *command[4:]] == ["train", "--store", "--json"]
    assert Path(command[3]).parent == Path(bench.settings.folder)
    assert fake.jobs == [{"workload": "digits", "policy": "bsp", "workers": 3, "stop": {"updates": 9}}]


def test_a_run_is_started_on_the_scheduler_of_the_command_line(bench: Any, fake: Any, scheduler: Any) -> None:
    app = press(bench.show("start"), "start")
    assert not app.exception
    assert fake.commands[0][-3:] == ["--scheduler", "tcp://127.0.0.1:1", "--json"]


def test_a_program_that_fails_at_once_says_why(bench: Any, fake: Any, healthy: Check) -> None:
    fake.output, fake.errors, fake.code = "", "Usage: psplatform\nError: <b>no cluster</b> could be started\n", 1
    app = press(bench.show("start"), "start")
    healthy(app)
    assert unescaped(app.error) == "Error: <b>no cluster</b> could be started"
    app = bench.show("programs")
    healthy(app)
    assert "failed with exit code 1" in unescaped(app.markdown)
    assert any("no cluster" in one.value for one in app.code)


def test_the_program_that_was_clicked_is_interrupted(
    bench: Any, fake: Any, monkeypatch: pytest.MonkeyPatch, healthy: Check
) -> None:
    """Also where another was started since the page was drawn, and stands at its place."""
    interrupted: list[str] = []
    monkeypatch.setattr(Program, "running", property(lambda one: True))
    monkeypatch.setattr(Program, "interrupt", lambda one: interrupted.append(one.name) or True)
    folder = bench.settings.records
    older = fake.start(["train"], folder)
    app = bench.show("programs")
    fake.start(["train"], folder)
    press(app, f"interrupt {older.name}")
    healthy(app)
    assert interrupted == [older.name]
    app.button(key=f"interrupt {older.name}").click()
    app.args = ("overview",)
    app.run()
    assert interrupted == [older.name] * 2, "also where another page is turned to at once"


def test_a_run_that_was_started_can_be_opened(bench: Any, fake: Any, shelf: Any, healthy: Check) -> None:
    app = press(bench.show("start"), "start")
    name = Path(fake.commands[0][3]).stem
    shelf.live(name)
    app.run()
    healthy(app)
    assert unescaped(app.success) == f"{name} was started."
    assert app.button(key="open started")


def test_a_job_whose_fields_do_not_fit_is_not_started(bench: Any, fake: Any, healthy: Check) -> None:
    app = bench.show("start")
    app.selectbox(key="optimizer.sgd.nesterov").select("yes")
    app.text_input(key="optimizer.sgd.momentum").input("0").run()
    for button in ("start", "preview"):
        press(app, button)
        healthy(app)
        assert "nesterov needs momentum" in unescaped(app.error)
    assert fake.commands == []


def test_a_preview_simulates_the_job_beside_the_default(
    bench: Any, fake: Any, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]]
) -> None:
    app = bench.show("start")
    app.selectbox(key="policy of digits").select("ssp").run()
    press(app, "preview")
    healthy(app)
    assert [one[0] for one in fake.commands] == ["simulate", "simulate"]
    assert [one[2:] for one in fake.commands] == [["--json", "--curves"]] * 2
    assert [one["policy"] for one in fake.jobs] == ["ssp", "bsp"]
    for job in fake.jobs:
        assert {"updates", "epochs", "seconds"} & job["stop"].keys(), "it ends whatever the policy achieves"
    rows = app.dataframe[0].value.to_dict("records")
    assert [row[""] for row in rows] == ["as configured", "default (bsp)"]
    assert (rows[0]["virtual seconds"], rows[0]["target"], rows[0]["dropped"]) == ("12.5", "reached", "10.0%")
    assert (rows[0]["loss"], rows[0]["accuracy"], rows[0]["waiting"]) == ("0.1250", "0.9700", "25%")
    (first, _) = spec(app, "preview losses")["data"]
    assert (first["x"], first["y"]) == ([1.0, 12.5], [0.9, 0.125])


@pytest.mark.parametrize(
    ("output", "errors", "said"),
    [
        ("", "loading\nError: the data is gone\n", "as configured: Error: the data is gone"),
        ("", "", "as configured: the simulation ended without a word"),
        (json.dumps({"results": [{"policy": "ssp", "error": "it diverged"}]}), "", "as configured: it diverged"),
    ],
)
def test_a_preview_that_fails_says_why(
    bench: Any, fake: Any, healthy: Check, output: str, errors: str, said: str
) -> None:
    fake.output, fake.errors, fake.code = output, errors, 1
    app = press(bench.show("start"), "preview")
    healthy(app)
    assert said in unescaped(app.error)


def test_what_if_simulates_policies_under_the_conditions(bench: Any, fake: Any, shelf: Any, healthy: Check) -> None:
    usual = json.loads(fake.output)
    slower = {**usual, "policy": "ssp", "virtual_seconds": 99.0}
    fake.output = json.dumps({"results": [slower, usual, {"policy": "dbw", "error": "it <b>diverged</b>"}]})
    shelf.finished("digits-a")
    app = bench.show("what_if")
    app.text_input(key="network").input("nic:gbps=10,latency=0.0001")
    app.text_input(key="what if stragglers").input("slow:chance=0.5,factor=9").run()
    press(app, "simulate")
    healthy(app)
    others, own = fake.commands
    assert (others[0], own[0], others[2:4]) == ("simulate", "simulate", ["--policy", "bsp,ssp,dbw"])
    compute, network = "shifted-exponential:shift=0.05,mean=0.1", "nic:gbps=10,latency=0.0001"
    described = ["--compute", compute, "--network", network, "--json", "--curves"]
    assert (others[4:], own[2:]) == (described, described)
    for job in fake.jobs:
        assert (job["stragglers"], job["workers"], job["stop"]["updates"]) == ("slow:chance=0.5,factor=9", 3, 20)
    assert "policy_options" not in fake.jobs[0]
    assert all(fake.jobs[1][name] == shelf.trained.job[name] for name in ("policy", "policy_options"))
    assert [row[""] for row in app.dataframe[0].value.to_dict("records")][:2] == ["bsp", "backup"]
    assert "it <b>diverged</b>" in unescaped(app.warning)


def test_the_winner_is_started_with_the_runs_own_job(
    bench: Any, fake: Any, shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made up for the simulation, such as stragglers, does not get into the run."""
    opened: list[Any] = []
    monkeypatch.setattr("psplatform.dashboard.pages.what_if.turn_to", opened.append)
    shelf.finished("digits-a")
    app = bench.show("what_if")
    app.toggle(key="timing only").set_value(True)
    app.text_input(key="what if stragglers").input("slow:chance=0.5,factor=9").run()
    press(app, "simulate")
    assert "--timing-only" in fake.commands[0]
    press(app, "start winner")
    assert not app.exception
    assert [one[0] for one in fake.commands] == ["simulate", "simulate", "train"]
    started, own = fake.jobs[2], shelf.trained.job
    assert started["policy"] == "bsp"
    assert started["stop"] == own["stop"]
    assert "stragglers" not in started
    assert started["evaluate_every"] == own["evaluate_every"]
    assert opened == ["programs"]


def test_measured_times_are_those_of_the_run(bench: Any, fake: Any, shelf: Any, healthy: Check) -> None:
    shelf.finished("digits-a")
    app = bench.show("what_if")
    app.selectbox(key="times").select("as measured in this run").run()
    press(app, "simulate")
    healthy(app)
    flag, value = fake.commands[0][4:6]
    assert flag == "--round-trip"
    path = Path(value.removeprefix("trace:"))
    assert path.is_relative_to(bench.settings.records)
    assert path.read_text().startswith("slot,sequence,seconds")


def test_as_many_workers_are_simulated_as_were_measured(bench: Any, fake: Any, shelf: Any) -> None:
    """Workers have joined or left since the run began."""
    shelf.finished("digits-a", workers=5, job={**shelf.trained.job, "workers": 5, "max_workers": 5})
    app = bench.show("what_if")
    app.selectbox(key="times").select("as measured in this run").run()
    press(app, "simulate")
    assert not app.exception
    assert {(job["workers"], job["max_workers"]) for job in fake.jobs} == {(3, 3)}
    trace = Path(fake.commands[0][5].removeprefix("trace:")).read_text()
    assert len(read_trace(trace, "t")) == 3


@pytest.mark.parametrize("key", ["compute", "network", "what if stragglers"])
@pytest.mark.parametrize("text", ["trace:/etc/passwd", " --store=/tmp/x", "uniform:low=1,high=2;trace:x"])
def test_no_file_and_no_option_is_named_in_what_if(bench: Any, fake: Any, shelf: Any, key: str, text: str) -> None:
    shelf.finished("digits-a")
    app = bench.show("what_if")
    app.text_input(key=key).input(text).run()
    press(app, "simulate")
    assert not app.exception
    assert fake.commands == []
    assert app.error
    with pytest.raises(ConfigurationError):
        _word(text)


def test_recovering_starts_a_program_with_what_was_filled_in(bench: Any, fake: Any, shelf: Any, healthy: Check) -> None:
    store = shelf.recoverable("digits-a")
    app = bench.show("failures")
    by_label = {one.label: one for one in app.text_input}
    by_label["Workers"].input("5")
    by_label["Policy"].input(" ssp ")
    next(one for one in app.selectbox if one.label == "From").select(1)
    next(one for one in app.button if one.label == "Recover").click().run()
    healthy(app)
    assert fake.commands == [
        [
            "recover",
            store,
            "--checkpoint",
            "1",
            "--workers",
            "5",
            "--policy",
            "ssp",
            "--json",
        ],
    ]


def test_a_recovery_is_started_though_another_page_is_turned_to_at_once(bench: Any, fake: Any, shelf: Any) -> None:
    """The button's own run of the script is given up then, or never begun."""
    shelf.recoverable("digits-a")
    app = bench.show("failures")
    next(one for one in app.button if one.label == "Recover").click()
    app.args = ("overview",)
    app.run()
    assert [one[0] for one in fake.commands] == ["recover"]


def test_a_recovery_that_is_refused_is_not_started(bench: Any, fake: Any, shelf: Any) -> None:
    shelf.recoverable("digits-a")
    app = bench.show("failures")
    next(one for one in app.text_input if one.label == "Shards").input("--device=x")
    next(one for one in app.button if one.label == "Recover").click().run()
    assert not app.exception
    assert "cannot be '--device=x'" in unescaped(app.error)
    assert fake.commands == []
