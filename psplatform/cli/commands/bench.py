"""``psplatform bench``: measurements, each beside what it is compared with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import click
from rich.table import Table

from psplatform.cli.progress import ProgressLine, show_table

Row = dict[str, Any]

_LARGE = 1000.0
"""Numbers from here on are shown without digits after the point, and not in powers of ten."""


@click.group()
def bench() -> None:
    """Measure psplatform on this machine."""


def _json_option(command: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")(command)


@bench.command()
@_json_option
def zipline(*, as_json: bool) -> None:
    """Time ZipLine, GridScan and FullGridScan beside the published figures, and check that they are exact."""
    from psplatform.bench.papers.zipline import measure  # noqa: PLC0415  brings numpy

    _run(measure, as_json=as_json)


@bench.command()
@_json_option
def simulator(*, as_json: bool) -> None:
    """Time the simulator, up to ten thousand workers."""
    from psplatform.bench.simulator import measure  # noqa: PLC0415  brings torch

    _run(measure, as_json=as_json)


@bench.command()
@click.option("--updates", type=click.IntRange(min=1), multiple=True, help="How many are planned. [10, 100, 500, 1000]")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the rates and deadlines. [0]")
@_json_option
def scheduler(*, updates: tuple[int, ...], seed: int, as_json: bool) -> None:
    """Time the planning of transfers beside the figures that MLfabric's authors print."""
    from psplatform.bench.papers.scheduler import PAPER_MS, measure  # noqa: PLC0415  brings numpy

    _run(lambda report: measure(report, updates=updates or tuple(PAPER_MS), seed=seed), as_json=as_json)


@bench.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=10),
    default=60.0,
    help="Of each run, virtual: 10 at least, in which the slowest network has applied something; five times as long "
    "where gradients are. [60]",
)
@click.option("--seeds", type=click.IntRange(min=1), default=10, help="Runs of each system in each setting. [10]")
@click.option(
    "--part",
    "parts",
    type=click.Choice(["results", "table2", "dropped", "lag"]),
    multiple=True,
    help="All systems; Table 2 of MLfabric's authors; what delay bounds drop; the lag of monitors. [all four]",
)
@_json_option
def fabric(*, seconds: float, seeds: int, parts: tuple[str, ...], as_json: bool) -> None:
    """Simulate 30 workers on networks whose rates change: all-reduce, asynchronous runs, and planned transfers."""
    from psplatform.bench.papers.fabric_tables import measure  # noqa: PLC0415  brings torch

    chosen, processes = range(1, seeds + 1), min(seeds, os.cpu_count() or 1)
    _measured(
        lambda report: measure(report, parts=parts, seconds=seconds, seeds=chosen, processes=processes), as_json=as_json
    )


@bench.command()
@_json_option
def digits(*, as_json: bool) -> None:
    """Train digits under every policy with the same stragglers and settings, on a cluster of this machine."""
    from psplatform.bench.digits import measure  # noqa: PLC0415  brings Dask and torch

    _run(measure, as_json=as_json)


@bench.command()
@_json_option
def twin(*, as_json: bool) -> None:
    """Train digits under stragglers for real and simulated, and compare the times to the target."""
    from psplatform.bench.twin import measure  # noqa: PLC0415  brings Dask and torch

    _run(measure, as_json=as_json)


@bench.command()
@click.option("--workload", type=click.Choice(["mlp", "digits"]), default="mlp", help="What is trained. [mlp]")
@click.option("--seeds", type=click.IntRange(min=1), help="Runs per policy. [20, on digits 5]")
@_json_option
def dbw(*, workload: str, seeds: int | None, as_json: bool) -> None:
    """Compare DBW with every fixed number of backup workers by the simulated time to the same loss."""
    from psplatform.bench.papers.dbw import measure  # noqa: PLC0415  brings torch

    chosen = None if seeds is None else range(1, seeds + 1)
    _run(lambda report: measure(report, workload=workload, seeds=chosen), as_json=as_json)


@bench.command()
@_json_option
def psp(*, as_json: bool) -> None:
    """Compare partial with whole pushes and pulls by the simulated time of 900 iterations under delays."""
    from psplatform.bench.papers.psp import measure  # noqa: PLC0415  brings torch

    _run(measure, as_json=as_json)


@bench.command()
@click.option("--parameters", type=click.IntRange(min=1), default=25_000_000, help="float32 parameters. [25 million]")
@click.option("--kills", type=click.IntRange(min=0), default=20, help="SIGKILLs of all configurations together. [20]")
@click.option("--stops", type=click.IntRange(min=0), default=1, help="SIGSTOPs of each configuration. [1]")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the moments of the signals. [0]")
@_json_option
def failover(*, parameters: int, kills: int, stops: int, seed: int, as_json: bool) -> None:
    """Kill and stop servers of real runs, and time how soon a replica goes on; check what is lost.

    Ends with exit code 1 if a state was not the replica's, or more was lost than was promised.
    """
    from psplatform.bench.failover import measure  # noqa: PLC0415  brings Dask and torch

    found = _measured(
        lambda report: measure(report, parameters=parameters, kills=kills, stops=stops, seed=seed), as_json=as_json
    )
    if found["violations"]:
        raise click.exceptions.Exit(1)


@bench.command()
@click.option(
    "--parameters", type=click.IntRange(min=1), multiple=True, help="float32 parameters. [25 million, and 1000]"
)
@click.option("--workers", type=click.IntRange(min=1), multiple=True, help="How many exchange gradients. [1, 2 and 4]")
@click.option("--shards", type=click.IntRange(min=1), default=1, help="Of our servers. [1]")
@click.option("--policy", default="bsp", help="Of ours. [bsp]")
@click.option("--transport", type=click.Choice(["auto", "comms"]), default="auto", help="Of ours. [auto]")
@click.option("--compression", default="none", help="Of ours: bf16, fp16 or topk:0.01. [none]")
@click.option("--device", default="auto", help="On which gradients lie: cpu, cuda. [auto]")
@click.option(
    "--baselines", help="Of gloo, rpc, rpc-tcp, actor and ray; or none. [gloo,rpc, with comms rpc-tcp as well]"
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="In which each is measured once. [3]")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, help="Of each measurement. [5]")
@click.option("--profile", is_flag=True, help="Tell which processes compute, by role.")
@_json_option
def exchange(
    *, parameters: tuple[int, ...], workers: tuple[int, ...], baselines: str | None, as_json: bool, **given: Any
) -> None:
    """Time the exchange of gradients for parameters, alternating with what others take for it."""
    from psplatform.bench import exchange as bench_exchange  # noqa: PLC0415  brings Dask and torch

    rounds, seconds, profile = (given.pop(name) for name in ("rounds", "seconds", "profile"))
    rivals = None if baselines is None else () if baselines == "none" else tuple(filter(None, baselines.split(",")))
    _measured(
        lambda report: bench_exchange.measure(
            report,
            parameters=parameters or bench_exchange.PARAMETERS,
            workers=workers or bench_exchange.WORKERS,
            setting=bench_exchange.Setting(**given),
            baselines=rivals,
            rounds=rounds,
            seconds=seconds,
            profile=profile,
        ),
        as_json=as_json,
    )


@bench.command()
@click.option("--task", "tasks", multiple=True, help="MODEL:BATCH, of digits, mlp and resnet. [two of each]")
@click.option("--workers", type=click.IntRange(min=1), multiple=True, help="Each with a core for itself. [1 and 2]")
@click.option("--policy", default="bsp", help="Of ours. [bsp]")
@click.option("--device", default="auto", help="On which all compute: cpu, cuda. [auto]")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="In which each is measured once. [3]")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, help="Of each measurement. [5]")
@_json_option
def scaling(*, tasks: tuple[str, ...], workers: tuple[int, ...], as_json: bool, **given: Any) -> None:
    """Count the samples a second that workers train models on, alternating with DistributedDataParallel."""
    from psplatform.bench import scaling as bench_scaling  # noqa: PLC0415  brings Dask

    chosen = {"tasks": tasks or bench_scaling.TASKS, "workers": workers or bench_scaling.WORKERS, **given}
    _measured(lambda report: bench_scaling.measure(report, **chosen), as_json=as_json)


@bench.command()
@click.option("--parameters", type=click.IntRange(min=100), default=25_000_000, help="float32 parameters. [25 million]")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Gradient workers. [2]")
@click.option("--policy", default="bsp", help="How they synchronise. [bsp]")
@click.option("--iterations", type=click.IntRange(min=1), default=100, help="In which nothing may grow. [100]")
@_json_option
def memory(*, iterations: int, as_json: bool, **given: Any) -> None:
    """Measure how much memory a run holds, in sizes of its model, by the roles of its processes."""
    from psplatform.bench import memory as bench_memory  # noqa: PLC0415  brings Dask and torch

    setting = bench_memory.Setting(**given)
    _measured(lambda report: bench_memory.measure(report, setting=setting, iterations=iterations), as_json=as_json)


@bench.command()
@click.option("--parameters", type=click.IntRange(min=1), default=10_000_000, help="float32 parameters. [10 million]")
@click.option(
    "--pairs", type=click.IntRange(min=1), default=20, help="Pairs of runs, for checkpoints half of that. [20]"
)
@click.option("--seconds", type=click.FloatRange(min=0.1), default=8.0, help="Of each run. [8]")
@click.option("--gradient-ms", type=click.FloatRange(min=0.1), default=100.0, help="Of each gradient. [100]")
@click.option("--checkpoint-s", type=click.FloatRange(min=0.1), default=10.0, help="Between checkpoints. [10]")
@click.option(
    "--effort",
    type=click.Choice(["compute", "sleep"]),
    default="compute",
    help="Whether gradients are computed, or wait, which leaves cores to servers. [compute]",
)
@_json_option
def replication(
    *, parameters: int, pairs: int, seconds: float, gradient_ms: float, checkpoint_s: float, effort: Any, as_json: bool
) -> None:
    """Compare updates per second and bytes under every mode of replication, and with checkpoints."""
    from psplatform.bench.replication import measure  # noqa: PLC0415  brings Dask and torch

    _measured(
        lambda report: measure(
            report,
            parameters=parameters,
            pairs=pairs,
            seconds=seconds,
            gradient_s=gradient_ms / 1000,
            effort=effort,
            checkpoint_s=checkpoint_s,
        ),
        as_json=as_json,
    )


@bench.command()
@click.option("--commits", type=click.IntRange(min=1), default=100_000, help="Of the run that is opened. [100000]")
@click.option("--workers", type=click.IntRange(min=1), default=64, help="Of that run, which is simulated. [64]")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, help="Of refreshing each page. [60]")
@click.option("--minutes", type=click.FloatRange(min=0.01), default=1.0, help="Of watching the memory. [1]")
@click.option("--pairs", type=click.IntRange(min=1), default=60, help="Turns with and without an open page. [60]")
@click.option("--train-seconds", type=click.FloatRange(min=0.1), default=3.0, help="Of each turn. [3]")
@click.option("--gradient-ms", type=click.FloatRange(min=0.1), default=30.0, help="Of each gradient. [30]")
@_json_option
def dashboard(*, gradient_ms: float, as_json: bool, **sizes: Any) -> None:
    """Time the opening of a long run's page, and measure what refreshing costs the machine and a training on it."""
    from psplatform.bench.dashboard.pages import measure  # noqa: PLC0415  brings Dask, Streamlit and torch

    _measured(lambda report: measure(report, gradient_s=gradient_ms / 1000, **sizes), as_json=as_json)


@bench.command()
@click.option("--faults", type=click.IntRange(min=1), default=100, help="That one run is given. [100]")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the faults and their moments. [0]")
@click.option("--processes", type=click.IntRange(min=2), default=3, help="Dask workers of each of three hosts. [3]")
@click.option("--kinds", default="kill,stop,host,scheduler", help="Of faults. [kill,stop,host,scheduler]")
@click.option("--settle-s", type=click.FloatRange(min=1), default=120.0, help="Longest wait for a whole run. [120]")
@_json_option
def soak(*, faults: int, seed: int, processes: int, kinds: str, settle_s: float, as_json: bool) -> None:
    """Kill and stop processes, whole hosts and the scheduler under one run, and measure what that costs and what grows.

    Ends with exit code 1 if the run did not survive a fault, or a promise was broken.
    """
    from psplatform.bench.soak import measure  # noqa: PLC0415  brings Dask and torch

    chosen = tuple(kinds.split(","))
    found = _measured(
        lambda report: measure(report, faults=faults, seed=seed, processes=processes, kinds=chosen, settle_s=settle_s),
        as_json=as_json,
    )
    if found["violations"] or found["survived"] < found["faults"]:
        raise click.exceptions.Exit(1)


def _measured(measure: Callable[[Callable[[Row], None]], Row], *, as_json: bool) -> Row:
    """Show a whole object: as it is, or its rows as a table, the rest as lines, and further rows as tables."""
    with ProgressLine() as line:
        found = measure(lambda row: line.say(", ".join(f"{name} {_text(value)}" for name, value in row.items())))
    if as_json:
        click.echo(json.dumps(found))
        return found
    _show_rows(found.get("rows") or found.get("results") or [])
    for name, value in found.items():
        if name in ("rows", "results"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            click.echo(f"{name}:")
            _show_rows(value)
        else:
            click.echo(f"{name}: {json.dumps(value)}")
    return found


def _run(measure: Callable[[Callable[[Row], None]], list[Row]], *, as_json: bool) -> None:
    with ProgressLine() as line:
        rows = measure(lambda row: line.say(", ".join(f"{name} {_text(value)}" for name, value in row.items())))
    if as_json:
        click.echo(json.dumps({"results": rows}))
        return
    _show_rows(rows)


def _show_rows(rows: list[Row]) -> None:
    headings = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*headings, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in headings))
    show_table(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= _LARGE else f"{value:.4g}"
    return str(value)
