"""Starting, previewing, asking what if, recovering: with the programs faked where they would be started."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from psplatform.client import chaos, programs
from psplatform.client.listing import Listed, goes_on
from psplatform.client.programs import Program
from psplatform.dashboard.cluster import FAULT, ClusterNews, Deed, Watched
from psplatform.dashboard.pages.frame import library
from psplatform.dashboard.pages.what_if import _word
from psplatform.errors import ConfigurationError
from psplatform.jobs.stragglers import read_trace
from psplatform.replication.store import update_run
from psplatform.runtime.processes import ProcessId

Check = Callable[[AppTest], None]

SUMMARY = {
    "policy": "bsp",
    "virtual_seconds": 12.5,
    "reached_target": True,
    "updates": 40,
    "gradients": 90,
    "blocks": 1,
    "staleness": {"mean": 0.5, "max": 3},
    "dropped": {"total": 9},
    "waiting_fraction": 0.25,
    "evaluation_loss": 0.125,
    "accuracy": 0.97,
    "curve": [[1.0, 5, 0.9], [12.5, 40, 0.125]],
}


@dataclass
class FakePrograms:
    """Takes commands instead of starting them; each has ended at once, with what is prepared."""

    output: str = json.dumps(SUMMARY)
    errors: str = ""
    code: int = 0
    commands: list[list[str]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def start(self, arguments: Sequence[str], folder: str) -> Program:
        self.commands.append(list(arguments))
        self.jobs += [yaml.safe_load(Path(one).read_text()) for one in arguments if one.endswith(".yaml")]
        record = Path(folder) / f"{len(self.commands):020d}-fake.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        process = {"pid": 0, "began": 0, "host": "another boot"}
        command = ["python", "-m", "psplatform", *arguments]
        plain = {"command": command, "started": time.time(), "process": process, "returncode": self.code}
        record.write_text(json.dumps(plain))
        record.with_suffix(".out").write_text(self.output + "\n")
        record.with_suffix(".err").write_text(self.errors)
        return Program(record, tuple(command), time.time(), ProcessId(**process))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    found = FakePrograms()
    monkeypatch.setattr(programs, "start", found.start)
    return found


def press(app: AppTest, key: str) -> AppTest:
    return app.button(key=key).click().run()


def unescaped(texts: Any) -> str:
    return " ".join(one.value for one in texts).replace("\\", "")


def test_start_starts_the_job_of_the_form_in_a_new_store(bench: Any, fake: FakePrograms, healthy: Check) -> None:
    app = bench.show("start")
    app.text_input(key="job.workers").input("3")
    app.text_input(key="stop.updates").input("9").run()
    press(app, "start")
    healthy(app)
    (command,) = fake.commands
    assert [*command[:1], *command[2:3], *command[4:]] == ["train", "--store", "--json"]
    assert Path(command[3]).parent == Path(bench.settings.folder)
    assert fake.jobs == [{"workload": "digits", "policy": "bsp", "workers": 3, "stop": {"updates": 9}}]


def test_a_run_is_started_on_the_scheduler_of_the_command_line(
    bench: Any, fake: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.settings = replace(bench.settings, scheduler="tcp://127.0.0.1:1")
    monkeypatch.setattr("psplatform.dashboard.pages.frame.cluster_at", lambda address: FakeCluster())
    app = press(bench.show("start"), "start")
    assert not app.exception
    assert fake.commands[0][-3:] == ["--scheduler", "tcp://127.0.0.1:1", "--json"]


def test_a_program_that_fails_at_once_says_why(bench: Any, fake: FakePrograms, healthy: Check) -> None:
    fake.output, fake.errors, fake.code = "", "Usage: psplatform\nError: <b>no cluster</b> could be started\n", 1
    app = press(bench.show("start"), "start")
    healthy(app)
    assert unescaped(app.error) == "Error: <b>no cluster</b> could be started"
    app = bench.show("programs")
    healthy(app)
    assert "failed with exit code 1" in unescaped(app.markdown)
    assert any("no cluster" in one.value for one in app.code)


def test_the_program_that_was_clicked_is_interrupted(
    bench: Any, fake: FakePrograms, monkeypatch: pytest.MonkeyPatch, healthy: Check
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


def test_a_run_that_was_started_can_be_opened(bench: Any, fake: FakePrograms, shelf: Any, healthy: Check) -> None:
    app = press(bench.show("start"), "start")
    name = Path(fake.commands[0][3]).stem
    shelf.live(name)
    app.run()
    healthy(app)
    assert unescaped(app.success) == f"{name} was started."
    assert app.button(key="open started")


def test_a_job_whose_fields_do_not_fit_is_not_started(bench: Any, fake: FakePrograms, healthy: Check) -> None:
    app = bench.show("start")
    app.selectbox(key="optimizer.sgd.nesterov").select("yes")
    app.text_input(key="optimizer.sgd.momentum").input("0").run()
    for button in ("start", "preview"):
        press(app, button)
        healthy(app)
        assert "nesterov needs momentum" in unescaped(app.error)
    assert fake.commands == []


def test_a_preview_simulates_the_job_beside_the_default(
    bench: Any, fake: FakePrograms, healthy: Check, spec: Callable[[AppTest, str], dict[str, Any]]
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
    bench: Any, fake: FakePrograms, healthy: Check, output: str, errors: str, said: str
) -> None:
    fake.output, fake.errors, fake.code = output, errors, 1
    app = press(bench.show("start"), "preview")
    healthy(app)
    assert said in unescaped(app.error)


def test_what_if_simulates_policies_under_the_conditions(
    bench: Any, fake: FakePrograms, shelf: Any, healthy: Check
) -> None:
    slower = {**SUMMARY, "policy": "ssp", "virtual_seconds": 99.0}
    fake.output = json.dumps({"results": [slower, SUMMARY, {"policy": "dbw", "error": "it <b>diverged</b>"}]})
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
    bench: Any, fake: FakePrograms, shelf: Any, monkeypatch: pytest.MonkeyPatch
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


def test_measured_times_are_those_of_the_run(bench: Any, fake: FakePrograms, shelf: Any, healthy: Check) -> None:
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


def test_as_many_workers_are_simulated_as_were_measured(bench: Any, fake: FakePrograms, shelf: Any) -> None:
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
def test_no_file_and_no_option_is_named_in_what_if(
    bench: Any, fake: FakePrograms, shelf: Any, key: str, text: str
) -> None:
    shelf.finished("digits-a")
    app = bench.show("what_if")
    app.text_input(key=key).input(text).run()
    press(app, "simulate")
    assert not app.exception
    assert fake.commands == []
    assert app.error
    with pytest.raises(ConfigurationError):
        _word(text)


def test_recovering_starts_a_program_with_what_was_filled_in(
    bench: Any, fake: FakePrograms, shelf: Any, healthy: Check
) -> None:
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
            "--no-ask-store-scheduler",
            "--workers",
            "5",
            "--policy",
            "ssp",
            "--json",
        ],
    ]


def test_a_recovery_is_started_though_another_page_is_turned_to_at_once(
    bench: Any, fake: FakePrograms, shelf: Any
) -> None:
    """The button's own run of the script is given up then, or never begun."""
    shelf.recoverable("digits-a")
    app = bench.show("failures")
    next(one for one in app.button if one.label == "Recover").click()
    app.args = ("overview",)
    app.run()
    assert [one[0] for one in fake.commands] == ["recover"]


def test_a_recovery_that_is_refused_is_not_started(bench: Any, fake: FakePrograms, shelf: Any) -> None:
    shelf.recoverable("digits-a")
    app = bench.show("failures")
    next(one for one in app.text_input if one.label == "Shards").input("--device=x")
    next(one for one in app.button if one.label == "Recover").click().run()
    assert not app.exception
    assert "cannot be '--device=x'" in unescaped(app.error)
    assert fake.commands == []


TARGETS = (
    chaos.Target("server-0", "server", "tcp://a:1"),
    chaos.Target("server-1", "server", "tcp://a:3"),
    chaos.Target("worker-0", "worker", "tcp://a:2"),
)


@dataclass
class FakeRun:
    stopped: list[str] = field(default_factory=list)

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)


@dataclass
class FakeCluster:
    """A scheduler that knows some runs."""

    live: Mapping[str, str] = field(default_factory=dict)
    run: FakeRun = field(default_factory=FakeRun)

    news: ClusterNews = field(default_factory=lambda: ClusterNews(None, "", None))
    deeds: list[Deed] = field(default_factory=list)
    trouble: str = ""
    slow: bool = False
    fault: Exception | None = None

    def await_answer(self, seconds: float) -> None:
        pass

    def knows(self, listed: Listed) -> bool:
        return goes_on(listed.run, listed.store, self.live)

    def watched(self, run: str) -> Watched:
        assert run in self.live
        return Watched(TARGETS, self.trouble)

    def begin(self, run: str, what: str, act: Callable[[Any], str], *, kind: str = FAULT) -> Deed:
        outcome: Future[str] = Future()
        if self.fault is not None:
            outcome.set_exception(self.fault)
        elif not self.slow:
            outcome.set_result(act(self.run))
        self.deeds.append(Deed(what, outcome))
        return self.deeds[-1]

    def deed(self, run: str) -> Deed | None:
        return self.deeds[-1] if self.deeds else None


@pytest.fixture
def scheduler(bench: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A scheduler that knows the run digits-a."""
    stores = {"digits-a": f"{bench.settings.folder}/digits-a.zarr", "elsewhere": "/far/away.zarr"}
    found = FakeCluster(stores)
    bench.settings = replace(bench.settings, scheduler="tcp://127.0.0.1:1")
    monkeypatch.setattr("psplatform.dashboard.pages.frame.cluster_at", lambda address: found)
    return found


def test_a_run_that_goes_on_is_stopped(bench: Any, shelf: Any, scheduler: FakeCluster, healthy: Check) -> None:
    shelf.live("digits-a")
    app = press(bench.show("overview"), "stop")
    healthy(app)
    assert scheduler.run.stopped == ["stopped on the dashboard"]
    assert "The run is stopping" in unescaped(app.caption)
    table = bench.show("runs")
    healthy(table)


def test_no_page_waits_for_a_run_that_is_to_stop(bench: Any, shelf: Any, scheduler: FakeCluster) -> None:
    scheduler.slow = True
    shelf.live("digits-a")
    app = press(bench.show("overview"), "stop")
    assert not app.exception
    assert "Under way: stopping the run." in unescaped(app.caption)
    assert app.button(key="stop").disabled


def test_why_a_run_could_not_be_stopped_is_said_until_the_next_press_and_of_that_run_alone(
    bench: Any, shelf: Any, scheduler: FakeCluster
) -> None:
    scheduler.fault = OSError("no route")
    shelf.live("digits-a")
    scheduler.live = {**scheduler.live, "digits-b": shelf.live("digits-b")}
    app = press(bench.show("overview", run="digits-a"), "stop")
    for _ in range(3):
        assert unescaped(app.error) == "stopping the run failed (OSError: no route)"
        app.run()
    app.multiselect(key="run").set_value(["digits-b"]).run()
    assert not app.exception
    assert not app.error
    app.multiselect(key="run").set_value(["digits-a"]).run()
    assert unescaped(app.error)
    scheduler.fault = None
    press(app, "stop")
    assert not app.error


def test_a_run_that_nobody_knows_any_more_is_not_said_to_stop(bench: Any, shelf: Any, scheduler: FakeCluster) -> None:
    shelf.live("digits-a")
    app = bench.show("overview")
    scheduler.live = {}
    library().forget_list()
    press(app, "stop")
    assert not app.exception
    assert not app.get("toast")
    assert "nothing was stopped" in unescaped(app.error)


def test_a_program_that_has_ended_is_not_said_to_stop(
    bench: Any, shelf: Any, fake: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "running", property(lambda one: True))
    program = fake.start(["train", "--store", shelf.live("digits-a")], bench.settings.records)
    monkeypatch.setattr("psplatform.dashboard.programs.program_of", lambda store: program)
    monkeypatch.setattr("psplatform.dashboard.pages.actions.cluster_of", lambda listed: None)
    monkeypatch.setattr(Program, "interrupt", lambda one: False)
    app = press(bench.show("overview"), "stop")
    assert not app.exception
    assert not app.get("toast")
    assert "nothing was stopped" in unescaped(app.error)
    monkeypatch.setattr(Program, "interrupt", lambda one: True)
    press(app, "stop")
    assert not app.error
    assert "The run is stopping" in unescaped(app.get("toast"))


def test_runs_of_the_scheduler_are_rows_with_their_figures_where_their_stores_are_here(
    bench: Any, shelf: Any, scheduler: FakeCluster, healthy: Check, tmp_path: Path
) -> None:
    away = replace(shelf, folder=tmp_path / "another folder").live("away")
    shelf.finished("digits-b")
    shelf.live("digits-a")
    scheduler.live = {**scheduler.live, "away": away}
    table = bench.show("runs")
    healthy(table)
    rows = {row["run"]: row for row in table.dataframe[0].value.to_dict("records")}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {"digits-a": "live", "digits-b": "finished", "away": "live", "elsewhere": "live"}
    assert rows["away"]["updates"] == 20
    assert "its store /far/away.zarr cannot be read from here" in rows["elsewhere"]["why"]
    assert "cannot be read" not in rows["away"]["why"]
    overview = bench.show("overview", run="away")
    healthy(overview)
    assert overview.multiselect(key="run").value == ["away"]


def test_a_run_that_was_started_beside_the_only_store_can_be_opened(
    bench: Any, fake: FakePrograms, shelf: Any, healthy: Check
) -> None:
    """As `psplatform dashboard STORE` shows it."""
    bench.settings = replace(bench.settings, store=shelf.finished("digits-a"))
    shelf.finished("not asked for")
    app = press(bench.show("start"), "start")
    name = Path(fake.commands[0][3]).stem
    shelf.live(name)
    app.run()
    healthy(app)
    library().forget_list()
    overview = bench.show("overview", run=name)
    healthy(overview)
    assert overview.multiselect(key="run").value == [name]
    assert set(overview.multiselect(key="run").options) == {"digits-a", name}


def test_a_copy_of_the_store_of_a_run_that_goes_on_is_not_that_run(
    bench: Any, shelf: Any, scheduler: FakeCluster, healthy: Check
) -> None:
    """Nothing that is done with the copy is done to the run; the copy can be recovered."""
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    shutil.copytree(shelf.recoverable("copied"), shelf.folder / "backup.zarr")
    update_run(str(shelf.folder / "backup.zarr"), run="digits-a")
    app = bench.show("failures", run="digits-a (backup.zarr)")
    healthy(app)
    assert "Recover" in [one.label for one in app.button]
    assert not {one.key for one in app.button} & {"kill", "pause"}
    overview = bench.show("overview", run="digits-a (backup.zarr)")
    healthy(overview)
    assert not [one for one in overview.button if one.key == "stop"]
    own = bench.show("overview", run="digits-a (digits-a.zarr)")
    assert [one for one in own.button if one.key == "stop"]


def test_a_run_of_somebody_else_cannot_be_stopped(bench: Any, shelf: Any) -> None:
    shelf.live("digits-a")
    app = bench.show("overview")
    assert not [one for one in app.button if one.key == "stop"]
    assert "This run was started elsewhere" in unescaped(app.caption)


def test_a_run_that_is_over_is_not_stopped(bench: Any, shelf: Any) -> None:
    shelf.finished("digits-a")
    assert not [one for one in bench.show("overview").button if one.key == "stop"]


def test_nothing_is_broken_where_that_is_not_allowed(bench: Any, shelf: Any, scheduler: FakeCluster) -> None:
    shelf.live("digits-a")
    app = bench.show("failures")
    assert not app.exception
    assert not {one.key for one in app.button} & {"kill", "pause"}


def test_processes_are_killed_and_paused_where_that_is_allowed(
    bench: Any, shelf: Any, scheduler: FakeCluster, monkeypatch: pytest.MonkeyPatch, healthy: Check
) -> None:
    hurt: list[Any] = []
    monkeypatch.setattr(chaos, "kill", lambda run, role: hurt.append(("kill", role)) or 7)
    monkeypatch.setattr(chaos, "pause", lambda run, role, seconds: hurt.append(("pause", role, seconds)) or 7)
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    shelf.finished("over")
    app = bench.show("failures", run="digits-a")
    app.selectbox(key="target").select("worker-0").run()
    press(app, "kill")
    healthy(app)
    app.number_input(key="pause seconds").set_value(3)
    press(app, "pause")
    healthy(app)
    assert hurt == [("kill", "worker-0"), ("pause", "worker-0", 3.0)]
    assert "Paused process 7 of worker-0 for 3 s." in unescaped(app.caption)
    over = bench.show("failures", run="over")
    assert not {one.key for one in over.button} & {"kill", "pause"}


def test_nothing_else_is_hurt_while_a_kill_is_under_way(
    bench: Any, shelf: Any, scheduler: FakeCluster, healthy: Check
) -> None:
    """A second kill would hit the server that took over; the figures are drawn meanwhile."""
    scheduler.slow = True
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    app = press(bench.show("failures"), "kill")
    healthy(app)
    assert [one.disabled for one in app.button if one.key in ("kill", "pause")] == [True, True]
    assert "Under way: killing the process of server-0." in unescaped(app.caption)
    assert app.get("bidi_component")


def test_pages_show_what_is_known_while_the_coordinator_does_not_answer(
    bench: Any, shelf: Any, scheduler: FakeCluster, monkeypatch: pytest.MonkeyPatch, healthy: Check
) -> None:
    """No page waits for it: a fault of its own would stop every figure."""
    monkeypatch.setattr(scheduler, "begin", lambda *_: pytest.fail("a page does something unasked"))
    scheduler.trouble = "the coordinator is silent"
    bench.settings = replace(bench.settings, allow_chaos=True)
    shelf.live("digits-a")
    for page in ("failures", "protection"):
        app = bench.show(page)
        healthy(app)
        assert "the coordinator is silent" in unescaped(app.caption)
    assert "tcp://a:3" in app.dataframe[0].value["process"].tolist()
