"""The README is tried as it stands: its programs and commands are run, its tables compared with the code."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from psplatform.client.clusters.ports import free_port
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.policies.registry import describe_policies
from psplatform.simulation.conditions import parse_network, parse_run_times

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PLACE = "tcp://scheduler-host:8786"
EXAMPLE_RUN = "digits-ssp-8959f2"
ENDS_S = 180.0

NOT_RUN_HERE = {
    "pip install .": "needs the network; the tests run in an environment where that was done",
    "dask scheduler": "the fixture `cluster` runs it",
    f"dask worker {PLACE} --nworkers 4 --nthreads 1 --preload psplatform.preload": "the fixture `cluster` runs it",
}


WHAT_IF = (
    "psplatform simulate digits --policy all --workers 8 --compute shifted-exponential:shift=0.02,mean=0.2",
    "psplatform train digits --policy bsp --workers 3 --updates 60 --store runs/measured.zarr",
    "psplatform trace runs/measured.zarr --output times.csv",
    "psplatform fit-cutoff times.csv --output model.npz",
    (
        "psplatform simulate digits --policy cutoff -o predictor=generative -o model=model.npz --workers 3 "
        "--round-trip trace:times.csv"
    ),
)


SURVIVING = (
    "psplatform train digits --max-divergence 0.5 --checkpoint-every 20 --updates 50 --store runs/my.zarr",
    "psplatform recover runs/my.zarr --workers 2 --shards 3 --updates 80",
    "psplatform runs runs/my.zarr",
    "psplatform runs runs/my.zarr --verify",
)


PAGES = (
    "psplatform demo --dashboard",
    f"psplatform dashboard runs --scheduler {PLACE} --allow-chaos",
    "psplatform dashboard runs/my.zarr",
)


def blocks(language: str) -> list[str]:
    """Return the README's code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Return every command of the README."""
    typed = [line.removeprefix("$ ") for line in "".join(blocks("console")).splitlines() if line.startswith("$ ")]
    lines = typed + "".join(blocks("bash")).splitlines()
    return [line.partition("  #")[0].strip() for line in lines]


def column(heading: str, number: int) -> list[str]:
    """Return what is set in code in a column of the table whose head begins so."""
    table = README[README.index(f"| {heading} |") :].partition("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[number + 1])]


def first_column(heading: str) -> list[str]:
    """Return what is set in code in the first column of the table whose head begins so."""
    return column(heading, 0)


def last_json(printed: str) -> dict[str, Any]:
    """Read the object that a command with ``--json`` ends with."""
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture
def written(cluster: Any) -> Callable[[str, str], str]:
    """Write a program of the README beside the cluster; return the file's name."""

    def write(name: str, text: str) -> str:
        (cluster.shell.folder / name).write_text(text.replace(PLACE, cluster.address))
        return name

    return write


def test_every_command_is_tried_by_a_test_or_named_as_not() -> None:
    """A command that is added to the README must find its place in this file."""
    tried = {
        "psplatform demo",
        f"psplatform train digits --scheduler {PLACE} --policy ssp -o bound=2",
        f"psplatform runs --scheduler {PLACE}",
        f"psplatform attach {EXAMPLE_RUN} --scheduler {PLACE}",
        f"psplatform attach {EXAMPLE_RUN} --scheduler {PLACE} --stop",
        "psplatform runs",
        "psplatform policies",
        *WHAT_IF,
        *SURVIVING,
        *PAGES,
        f"psplatform train digits --policy deadline -o seconds=0.2 --updates 50 --scheduler {PLACE}",
    }
    assert set(commands()) == tried | NOT_RUN_HERE.keys()
    assert [len(blocks(language)) for language in ("python", "toml", "yaml")] == [5, 1, 1]


@pytest.mark.cluster
def test_dask_workers_load_what_a_run_needs_before_there_is_one(cluster: Any) -> None:
    def loaded(dask_worker: Any) -> bool:
        names = [one.name for one in dask_worker.preloads]
        return names == ["psplatform.preload"] and "psplatform.runtime.actors.worker.host" in sys.modules

    with Client(cluster.address, set_as_default=False) as client:
        assert list(client.run(loaded).values()) == [True] * 4


@pytest.mark.cluster
def test_a_run_goes_on_from_its_store_on_other_shards(shell: Any) -> None:
    train, recover, runs, verify = (command.split() for command in SURVIVING)
    assert "complete" in shell.run(*train)
    assert re.search(r"^updates +80 ", shell.run(*recover), flags=re.MULTILINE)
    assert "checkpoint " in shell.run(*runs)
    verified = shell.run(*verify)
    assert "all that is there is as it was written" in verified
    assert "incomplete" not in verified, "nothing is left of a checkpoint that was never sealed"


@pytest.mark.cluster
@pytest.mark.parametrize("command", PAGES)
def test_a_page_opens_and_ends_with_its_command(cluster: Any, command: str) -> None:
    shell = cluster.shell
    words = command.replace(PLACE, cluster.address).split()
    port = [] if "demo" in words else ["--port", str(free_port())]
    said = shell.folder / "page.txt"
    with said.open("w") as output:
        process = shell.start([*words, *port], output)
        try:
            shell.wait_for(lambda: _page(said.read_text()) is not None, "the page's address", process)
            page = str(_page(said.read_text()))
            shell.wait_for(lambda: _answers(f"{page}/_stcore/health"), "the page", process)
            assert "<title>" in _fetched(page)
        finally:
            shell.end(process)
    shell.wait_for(lambda: not _answers(f"{page}/_stcore/health"), "the page to end")


@pytest.mark.cluster
def test_the_demo_prints_what_the_readme_shows(shell: Any) -> None:
    """The same sentence and the same rows; only figures differ."""
    shown = [line for line in blocks("console")[0].splitlines() if not line.startswith("$ ")]
    printed = shell.run("psplatform", "demo")
    assert shown[0] in printed
    for row in [row for row in shown[1:] if not row.startswith(" ")]:  # long ones are wrapped here
        assert re.search(rf"^{row.split()[0]} ", printed, flags=re.MULTILINE), printed
    accuracy = re.search(r"^accuracy +([0-9.]+)", printed, flags=re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.97
    policy = next(row.split(maxsplit=1)[1] for row in shown if row.startswith("policy"))
    assert policy in printed


@pytest.mark.cluster
def test_the_simulation_prints_what_the_readme_shows(shell: Any) -> None:
    """The same headings and a row for every policy, of which some are faster; only ten updates, to be quick."""
    shown = [line.split() for line in blocks("console")[1].splitlines() if not line.startswith("$ ")]
    printed = [line.split() for line in shell.run(*WHAT_IF[0].split(), "--updates", "10").splitlines()]
    assert shown[0] in printed
    policies = {one["name"] for one in describe_policies()}
    assert {row[0] for row in shown[1:]} == policies
    assert policies <= {row[0] for row in printed if row}


@pytest.mark.cluster
def test_the_times_of_a_run_drive_the_simulator_and_train_a_model(shell: Any) -> None:
    """Only a few updates are simulated, to be quick."""
    *before, last = WHAT_IF[1:]
    for command in before:
        shell.run(*command.split())
    summary = last_json(shell.run(*last.split(), "--updates", "5", "--json"))
    assert (summary["workers"], summary["updates"]) == (3, 5)


@pytest.mark.cluster
def test_your_own_model_is_trained_on_this_machine(shell: Any) -> None:
    (shell.folder / "own_model.py").write_text(blocks("python")[0])
    assert float(shell.run("python", "own_model.py").splitlines()[-1]) >= 0.9


@pytest.mark.cluster
def test_the_best_version_is_the_one_with_the_fewest_errors(shell: Any) -> None:
    (shell.folder / "metrics.py").write_text(blocks("python")[1])
    best = ast.literal_eval(shell.run("python", "metrics.py").splitlines()[-1])
    assert (best["metric"], best["kept"]) == ("errors", True)
    assert best["value"] < 36  # of 360


@pytest.mark.cluster
def test_your_own_policy_is_used_as_it_is_and_by_name(cluster: Any, written: Callable[[str, str], str]) -> None:
    written("my_policies.py", blocks("python")[2])
    printed = cluster.shell.run("python", written("use_it.py", blocks("python")[3]))
    assert 0 < float(printed.splitlines()[-1]) <= 1
    assert "1 passed" in cluster.shell.run("pytest", "-q", written("test_my_policy.py", blocks("python")[4]))

    _install(cluster.shell.folder, tomllib.loads(blocks("toml")[0])["project"]["entry-points"])
    listed = cluster.shell.run("psplatform", "policies")
    assert "deadline: Average what has come some seconds" in listed
    assert "-o seconds=0.1" in listed
    train = next(one for one in commands() if "--policy deadline" in one).replace(PLACE, cluster.address)
    summary = last_json(cluster.shell.run(*train.split(), "--json"))
    assert (summary["policy"], summary["policy_parameters"]) == ("deadline", {"seconds": 0.2})
    assert summary["updates"] == 50


@pytest.mark.cluster
def test_a_run_on_a_cluster_is_found_watched_and_stopped_by_others(cluster: Any) -> None:
    """The command that started it sees it end, and so does the one that only watches."""
    shell = cluster.shell
    train = next(one for one in commands() if "--policy ssp" in one).replace(PLACE, cluster.address)
    store = shell.folder / "runs" / "watched.zarr"
    # Longer than this test, which stops it.
    first = shell.start([*train.split(), "--updates", "1000000", "--store", str(store)])
    try:
        shell.wait_for((store / "zarr.json").exists, "the run's store", first)
        run = _wait_for_run(shell, cluster.address)
        watching = f"psplatform attach {run} --scheduler {cluster.address}"
        assert watching.replace(run, EXAMPLE_RUN).replace(cluster.address, PLACE) in commands()
        seen = shell.folder / "watching.txt"
        with seen.open("w") as output:
            second = shell.start(watching.split(), output)
        try:
            # Stopped before its first update, a run has failed.
            under_way = re.compile(r"version [1-9]")
            shell.wait_for(lambda: under_way.search(seen.read_text()), "the watcher to see updates", first, second)
            stopped = last_json(shell.run(*watching.split(), "--stop", "--json"))
            assert (stopped["outcome"], stopped["run"]) == ("stopped", run)
            assert (first.wait(ENDS_S), second.wait(ENDS_S)) == (0, 0)
        finally:
            shell.end(second)
    finally:
        shell.end(first)
    assert "stopped" in shell.run("psplatform", "runs")
    assert _documented_fields() - {"network"} == stopped.keys(), "and that one where transfers are planned"


@pytest.mark.cluster
def test_the_job_file_runs(cluster: Any) -> None:
    """A few updates of it; the run's own stop conditions stay beside the one given here."""
    options = ["--scheduler", cluster.address, "--updates", "20", "--json"]
    summary = last_json(cluster.shell.run("psplatform", "train", str(ROOT / "examples" / "job.yaml"), *options))
    assert (summary["policy"], summary["workers"], summary["shards"]) == ("backup", 3, 2)
    assert summary["updates"] == 20


def test_the_job_file_shown_is_the_one_in_the_examples() -> None:
    assert blocks("yaml")[0] == (ROOT / "examples" / "job.yaml").read_text()


def test_the_table_of_policies_is_complete() -> None:
    """Names and parameters, in the code's own spelling."""
    rows = re.findall(r"^\| `([a-z][\w-]*)` \| [^|]+ \| ([^|]+) \|", README, flags=re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", parameters) for name, parameters in rows}
    known = {one["name"]: [parameter["name"] for parameter in one["parameters"]] for one in describe_policies()}
    assert shown == known


@pytest.mark.parametrize("clause", first_column("clause"))
def test_every_clause_about_stragglers_is_understood(clause: str) -> None:
    Stragglers.parse(clause, read=lambda name: "slot,sequence,seconds\n0,0,0.1\n")


@pytest.mark.parametrize("clause", [one for one in column("option", 1) if not one.startswith("nic")])
def test_every_clause_about_a_modelled_cluster_is_understood(clause: str) -> None:
    trace = "slot,sequence,seconds\n" + "".join(f"{slot},0,0.1\n" for slot in range(3))
    kind = clause.partition(":")[0]
    if kind in ("change", "hosts", "model", "report", "server"):
        parse_network(f"nic:gbps=10,latency=0.0001;{clause}")
        return
    base = "constant:seconds=1;" if kind in ("slow", "factors", "regime") else ""
    parse_run_times(base + clause, seed=0, workers=3, field="compute", read=lambda name: trace)


def test_the_words_about_slow_servers_are_understood() -> None:
    (words,) = re.findall(r"`slow_servers: ([^`]+)`", README)
    assert SlowServers.parse(words).shards == (0, 1)


def test_every_link_leads_somewhere() -> None:
    targets = [one for one in re.findall(r"\]\(([^)]+)\)", README) if "://" not in one]
    assert targets
    assert [one for one in targets if not (ROOT / one).exists()] == []


def _page(said: str) -> str | None:
    found = re.search(r"http://localhost:[0-9]+", said)
    return found[0] if found else None


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  a page of this machine
        text: str = answer.read().decode()
        return text


def _answers(url: str) -> bool:
    try:
        return bool(_fetched(url))
    except OSError:
        return False


def _documented_fields() -> set[str]:
    return set(first_column("fields"))


def _wait_for_run(shell: Any, address: str) -> str:
    for _ in range(20):
        listed = last_json(shell.run("psplatform", "runs", "--scheduler", address, "--json"))["runs"]
        # A run of the test before may be listed for a moment after its command has returned.
        found = [str(one["run"]) for one in listed if one["run"].startswith("digits-ssp-")]
        if found:
            return found[0]
    raise AssertionError("the run never appeared on the scheduler")


def _install(folder: Path, entry_points: dict[str, dict[str, str]]) -> None:
    """Leave what an installer leaves of a package with these entry points."""
    metadata = folder / "my_policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_policies\nVersion: 1.0\n")
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in entry_points.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
