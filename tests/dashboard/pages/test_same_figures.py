"""Every figure that a page shows is the one that ``psplatform runs STORE --json`` says of the same run."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from streamlit.testing.v1 import AppTest

import psplatform as ps
from psplatform.cli.main import cli

Spec = Callable[[AppTest, str], dict[str, Any]]


def said_by_the_command(store: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["runs", store, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.fixture
def summary(shelf: Any) -> dict[str, Any]:
    """Return what the command line says of a finished run with late gradients, lost processes and a checkpoint."""
    store = shelf.finished("digits-a")
    shelf.checkpoint(store, 1)
    found = said_by_the_command(store)
    assert found["dropped"]["total"] > 0, "else the test compares nothing"
    assert len(found["failovers"]) == 2
    return found


@pytest.fixture
def planned(shelf: Any) -> dict[str, Any]:
    """Return what the command line says of a run whose transfers were planned: some summed, some not sent at all."""
    options = {"samples": 400, "dimension": 8, "classes": 3}
    job = ps.Job(
        workload="mlp",
        options=options,
        policy="delay-bounded",
        policy_options={"max_delay": 5},
        workers=6,
        batch_size=16,
        stop=ps.Stop(updates=120),
        network=ps.Network(ps.Fabric(aggregators=3)),
    )
    network = "nic:gbps=0.1,latency=0.0001;model:mb=1;hosts:workers=2,servers=1"
    conditions = ps.Conditions(compute="shifted-exponential:shift=0.002,mean=0.01", network=network)
    store = shelf.write("planned", ps.simulate(job, conditions, keep_records=True).records)
    found = said_by_the_command(store)
    assert found["network"]["aggregation"] > 1
    assert found["network"]["dropped_at_source"] > 0
    return found


def numbers(drawn: Any) -> list[float]:
    """Return the values of a figure's axis, which plotly packs where there are many."""
    if isinstance(drawn, dict):
        return list(np.frombuffer(base64.b64decode(drawn["bdata"]), drawn["dtype"]).tolist())
    return list(drawn)


def in_bytes(shown: str) -> float:
    number, unit = shown.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def metrics(app: AppTest) -> dict[str, str]:
    assert not app.exception
    return {one.label.replace("\\", ""): one.value.replace("\\", "") for one in app.metric}


def test_the_strip_says_what_the_command_says(summary: dict[str, Any], bench: Any) -> None:
    found = metrics(bench.show("overview"))
    divergence = summary["divergence"]
    assert found == {
        "State": summary["state"],
        "Version": str(summary["updates"]),
        "Updates/s": f"{summary['updates_per_second']:.4g}",
        "Loss": f"{summary['loss']:.4f}",
        "Held-out loss": f"{summary['evaluation_loss']:.4f}",
        "Accuracy": f"{summary['accuracy']:.4f}",
        "Workers": f"{len(summary['slots'])} left",
        "Divergence": f"{divergence['max']:.3g} of {divergence['bound']:.3g} {divergence['unit']}",
        "Checkpoint": f"version {summary['checkpoints_held'][-1]['version']}",
        "Incidents": str(len(summary["incidents"])),
    }


def test_named_metrics_are_drawn_and_said(shelf: Any, bench: Any, spec: Spec) -> None:
    named = {"f1": 0.5, "[x](http://evil.example)": 2.0}
    records = [{**one, "metrics": named} if one["kind"] == "evaluated" else one for one in shelf.trained.records]
    shelf.write("digits-a", records)
    app = bench.show("overview")
    assert not app.exception
    drawn = next(one["y"] for one in spec(app, "metrics")["data"] if one["name"] == "f1")
    count = sum(one["kind"] == "evaluated" for one in records)
    assert np.frombuffer(base64.b64decode(drawn["bdata"]), drawn["dtype"]).tolist() == [0.5] * count
    words = next(one.value for one in app.markdown if "**metrics**" in one.value)
    assert r"f1 0\.5000" in words
    assert "](http" not in words


def test_delays_are_those_of_the_command(summary: dict[str, Any], bench: Any, spec: Spec) -> None:
    app = bench.show("delays")
    staleness = summary["staleness"]
    assert metrics(app) == {
        "Mean staleness": f"{staleness['mean']:.2f}",
        "Largest": str(staleness["max"]),
        "Bound": str(summary["staleness_bound"]) if summary["staleness_bound"] is not None else "none",
        "Waiting": f"{summary['waiting_fraction']:.0%}",
    }
    (bars,) = spec(app, "staleness")["data"]
    drawn = {str(stale): count for stale, count in zip(bars["x"], bars["y"], strict=True)}
    assert drawn == {str(stale): count for stale, count in staleness["histogram"].items()}
    assert sum(drawn.values()) == summary["applied"]


def test_drops_are_those_of_the_command(summary: dict[str, Any], bench: Any, spec: Spec) -> None:
    app = bench.show("drops")
    dropped = summary["dropped"]
    assert metrics(app) == {
        "Dropped": str(dropped["total"]),
        "Share of all computed": f"{dropped['total'] / (summary['gradients'] * summary['blocks']):.1%}",
        "Applied": str(summary["applied"]),
        "Gradients": str(summary["gradients"]),
    }
    table = app.dataframe[0].value
    assert dict(zip(table["reason"], table["gradients"], strict=True)) == dropped["by_reason"]
    drawn = {one["name"]: sum(one["y"]) for one in spec(app, "drops by worker")["data"]}
    assert drawn == dropped["by_reason"]


def test_the_network_is_that_of_the_command(planned: dict[str, Any], bench: Any, spec: Spec) -> None:
    app = bench.show("network")
    found, network, delay = metrics(app), planned["network"], planned["network"]["delay"]
    each = {"In per update": "bytes_in", "Out per update": "bytes_out"}
    for name, way in {"Into the servers": "bytes_in", "Out of the servers": "bytes_out", **each}.items():
        divisor = planned["applied"] if name in each else 1
        assert in_bytes(found.pop(name)) == pytest.approx(network[way] / divisor, rel=0.01)
    assert found == {
        "Gradients per vector": f"{network['aggregation']:.2f}",
        "Dropped at source": str(network["dropped_at_source"]),
        "Mean delay": f"{delay['mean']:.2f}",
        "Delay of 95 %": str(delay["p95"]),
        "Largest delay": str(delay["max"]),
    }
    bars = {one["name"]: one for one in spec(app, "interfaces")["data"]}
    for name, way in (("in", "bytes_in"), ("out", "bytes_out")):
        drawn = dict(zip(bars[name]["x"], numbers(bars[name]["y"]), strict=True))
        expected = {host: moved[way] for host, moved in network["interfaces"].items()}
        assert {host.removesuffix(" (server)"): moved for host, moved in drawn.items()} == expected
        assert [host for host in drawn if host.endswith(" (server)")] == ["server 0 (server)"]
    (sizes,) = spec(app, "sizes")["data"]
    of = list(zip(map(int, sizes["x"]), numbers(sizes["y"]), strict=True))
    assert sum(size * count for size, count in of) / sum(count for _, count in of) == network["aggregation"]
    curves = {one["name"]: numbers(one["y"]) for one in spec(app, "gradients")["data"]}
    for name, way in (("actual", "took_s"), ("planned", "planned_s")):
        assert len(curves[name]) < 128, "each point is one transfer"
        assert max(curves[name]) == network[way]["max"]
        assert sum(curves[name]) / len(curves[name]) == pytest.approx(network[way]["mean"])
    (unsent,) = spec(app, "unsent")["data"]
    drawn_at_source = sum(numbers(unsent["y"])[:-1]) * unsent["width"]  # the last bar stands for a part of its width
    assert 0 < drawn_at_source <= network["dropped_at_source"]
    (stale,) = spec(app, "delays")["data"]
    drawn = {str(one): count for one, count in zip(stale["x"], stale["y"], strict=True)}
    assert drawn == planned["staleness"]["histogram"]


def test_a_run_whose_transfers_are_not_planned_says_how_to_have_them_planned(summary: Any, bench: Any) -> None:
    app = bench.show("network")
    assert metrics(app) == {}
    assert [one.value for one in app.caption if "`--fabric`" in one.value], "with the flag that has them planned"
    assert "network" not in summary


def test_what_an_older_log_does_not_tell_is_a_dash(shelf: Any, bench: Any) -> None:
    network = {"fabric": {"tick_s": 0.1}}
    transfer = {
        "kind": "transfer",
        "at": 1.0,
        "slots": [0],
        "sequences": [1],
        "took_s": 1.0,
        "planned_s": None,
        "host": "a",
    }
    records = [{**one, "network": network} if one["kind"] == "run" else one for one in shelf.trained.records]
    shelf.write("older", [*records, transfer])
    found = metrics(bench.show("network"))
    assert [found[name] for name in ("Into the servers", "Out of the servers", "In per update")] == ["–"] * 3
    assert found["Gradients per vector"] == "1.00"


def test_replication_is_that_of_the_command(summary: dict[str, Any], bench: Any) -> None:
    found = metrics(bench.show("protection"))
    divergence = summary["divergence"]
    assert found["Replication"] == summary["replication"]["mode"]
    assert found["Divergence"] == f"{divergence['max']:.3g} of {divergence['bound']:.3g} {divergence['unit']}"
    assert found["Unprotected shards"] == (", ".join(map(str, summary["unprotected"])) or "none")
    number, unit = found["Sent to replicas"].split()
    scale = {"B": 1, "kB": 1e3, "MB": 1e6}[unit]
    assert float(number) * scale == pytest.approx(summary["to_replica_bytes"], rel=0.01)


def test_failures_are_those_of_the_command(summary: dict[str, Any], bench: Any) -> None:
    app = bench.show("failures")
    found = metrics(app)
    assert found["Failovers"] == str(len(summary["failovers"]))
    assert found["Updates lost"] == str(sum(one["updates_lost"] for one in summary["failovers"]))
    assert found["Term"] == str(summary["term"])
    tables = {tuple(one.value.columns): one.value for one in app.dataframe}
    checkpoints = next(one for columns, one in tables.items() if "flaw" in columns)
    held = summary["checkpoints_held"]
    assert checkpoints["number"].tolist() == [one["number"] for one in reversed(held)]
    assert checkpoints["state"].tolist() == [one["state"] for one in reversed(held)]


def test_workers_are_those_of_the_command(summary: dict[str, Any], bench: Any) -> None:
    table = bench.show("workers").dataframe[-1].value
    assert table["worker"].tolist() == sorted(int(slot) for slot in summary["slots"])
    for name in ("gradients", "applied", "dropped"):
        assert table[name].tolist() == [one[name] for _, one in sorted(summary["slots"].items())], name


def test_the_table_of_runs_says_what_the_command_says(summary: dict[str, Any], bench: Any) -> None:
    (row,) = bench.show("runs").dataframe[0].value.to_dict("records")
    assert (row["run"], row["state"], row["updates"]) == (summary["run"], summary["state"], summary["updates"])
    assert (row["loss"], row["accuracy"]) == (summary["loss"], summary["accuracy"])
    assert row["updates/s"] == summary["updates_per_second"]
    assert row["why"] == summary["reason"]
