"""``psplatform demo``: the first result, with one command."""

from __future__ import annotations

import click

from psplatform.cli.train import job_fields, run_job

_JOB = {
    "policy": "backup",
    "policy_options": ("k=2",),
    "workers": 3,
    "shards": 2,
    "stragglers": "shifted-exponential:shift=0.02,mean=0.04;slow:chance=0.1,factor=5",
    "evaluate_every": 25,
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def demo(*, as_json: bool) -> None:
    """Learn handwritten digits on this machine: 3 workers, 2 shards, 1 backup worker, and stragglers."""
    if not as_json:
        click.echo("3 workers compute gradients, 2 servers apply the fastest 2 of each round; stragglers are injected.")
    run_job(job_fields("digits", _JOB), None, as_json=as_json)
