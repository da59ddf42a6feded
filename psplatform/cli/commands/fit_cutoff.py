"""``psplatform fit-cutoff``: a model of run times for the policy ``cutoff``, from a trace of them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from psplatform.cli.output import output_file, write_whole
from psplatform.cli.progress import ProgressLine
from psplatform.errors import ConfigurationError
from psplatform.untrusted.files import read_named

if TYPE_CHECKING:
    from psplatform.policies.run_times.fitted_model import FittedModel
    from psplatform.policies.run_times.recorded import Recorded

_STEPS = 300


@click.command()
@click.argument("trace", metavar="TRACE.csv")
@click.option("--output", metavar="MODEL.npz", help="File to write. [TRACE.npz]")
@click.option("--steps", type=click.IntRange(min=1), default=_STEPS, help=f"Steps of the fit. [{_STEPS}]")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the fit's random numbers. [0]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def fit_cutoff(trace: str, *, output: str | None, steps: int, seed: int, as_json: bool) -> None:
    """Fit the generative model of `--policy cutoff` to the run times in TRACE.csv.

    `psplatform trace` writes such a file.  Only rounds in which every worker's time is known are learned from, 40 at
    least: trace a run of bsp, or any other that waits for all.  The model is good for as many workers as the trace
    has.
    """
    text = _read(trace)
    file = _output(trace, output)
    recorded = _recorded(text, trace)
    with ProgressLine() as line:
        line.say(f"fitting to {len(recorded.times)} rounds of {recorded.times.shape[1]} workers")
        fit = _fit(recorded, steps, seed, line)
    write_whole(file, fit.model.to_bytes())
    _tell(str(file), recorded, fit, as_json=as_json)


def _read(trace: str) -> str:
    try:
        return read_named(trace).decode()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the trace {trace}: {error}; name a CSV file", field="trace") from error


def _output(trace: str, output: str | None) -> Path:
    source = Path(trace).expanduser()
    file = output_file(output if output is not None else str(source.with_suffix(".npz")))
    if file.exists() and file.samefile(source):
        text = f"the model would take the place of the trace {trace}; name another file"
        raise ConfigurationError(text, field="output")
    return file


def _recorded(text: str, trace: str) -> Recorded:
    # Loaded here, when it is known that there is a place for the model, because they take a while.
    from psplatform.policies.run_times.recorded import read_rounds  # noqa: PLC0415
    from psplatform.policies.run_times.state_space import Shape  # noqa: PLC0415

    recorded = read_rounds(text, trace)
    recorded.require(2 * Shape(1).window, trace)
    return recorded


@dataclass(frozen=True, slots=True)
class _Fit:
    model: FittedModel
    steps: int
    loss: float
    seconds: float


def _fit(recorded: Recorded, steps: int, seed: int, line: ProgressLine) -> _Fit:
    from psplatform.policies.run_times.training import fit  # noqa: PLC0415  brings torch
    from psplatform.simulation.threads import one_thread  # noqa: PLC0415  as above

    losses = [0.0]

    def report(number: int, loss: float) -> None:
        losses[0] = loss
        line.step(f"step {number} of {steps}  loss {loss:.3f}")

    begun = time.monotonic()
    with one_thread():  # so that a seed gives the same model every time
        model = fit(recorded.times, steps=steps, seed=seed, report=report)
    return _Fit(model, steps, losses[0], time.monotonic() - begun)


def _tell(file: str, recorded: Recorded, fit: _Fit, *, as_json: bool) -> None:
    rounds, workers = recorded.times.shape
    if as_json:
        found: dict[str, Any] = {"file": file, "workers": workers, "rounds": rounds, "left_out": recorded.left_out}
        click.echo(json.dumps({**found, "steps": fit.steps, "loss": fit.loss, "seconds": fit.seconds}))
        return
    left_out = f" ({recorded.left_out} others left out)" if recorded.left_out else ""
    click.echo(f"{file}: {workers} workers, {rounds} rounds{left_out}, {fit.steps} steps in {fit.seconds:.1f} s")
    options = f"--workers {workers} --policy cutoff -o predictor=generative -o model={file}"
    click.echo(f"use it: psplatform train WORKLOAD {options}")
