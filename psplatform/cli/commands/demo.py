"""``psplatform demo``: the first result, with one command."""

from __future__ import annotations

import os
import signal
from typing import Any

import click

from psplatform.cli.commands.train import job_fields
from psplatform.cli.page import Page, with_page
from psplatform.cli.progress import ProgressLine
from psplatform.cli.signals import interrupted_by_signals
from psplatform.client.clusters.forking import begin

_JOB = {
    "policy": "backup",
    "policy_options": ("k=2",),
    "workers": 3,
    "max_workers": 3,
    "shards": 2,
    "stragglers": "shifted-exponential:shift=0.02,mean=0.04;slow:chance=0.1,factor=5",
    "evaluate_every": 25,
    "checkpoint_every": "3s",
    "target_accuracy": 0.97,
    "epochs": 12.0,
}

_KILL_AT = 40
"""Updates after which a server is killed: training has begun to learn, and is far from its end."""


@click.command()
@with_page
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def demo(*, dashboard: bool, allow_chaos: bool, as_json: bool) -> None:
    """Learn handwritten digits on this machine, through the death of a server.

    3 workers, 2 shards with a replica each, 1 backup worker, and stragglers; the process of the first server, and of
    the coordinator, is killed with SIGKILL on the way.
    """
    own_page = Page(wanted=dashboard, allow_chaos=allow_chaos, stays=not as_json)
    if not as_json:
        click.echo("3 workers compute gradients, 2 servers apply the fastest 2 of each round; stragglers are injected.")
        click.echo(f"After {_KILL_AT} updates the process of server 0 and of the coordinator is killed with SIGKILL.")
    begin()  # what the processes of the cluster import is imported while this program does
    # Loaded here, because it takes seconds.
    from psplatform.cli.follow import follow  # noqa: PLC0415
    from psplatform.client.launch import train  # noqa: PLC0415
    from psplatform.jobs.job import Job  # noqa: PLC0415

    job = Job(**job_fields("digits", _JOB))
    with interrupted_by_signals(), own_page as page, ProgressLine() as line:
        line.say("loading torch and Dask")
        run = train(job, report=line.say)
        page.open(run, embedded=True)
        killed: list[int] = []

        def kill_once(summary: dict[str, Any]) -> None:
            if not killed and (summary.get("updates") or 0) >= _KILL_AT:
                killed.append(run.process_of("server-0"))
                os.kill(killed[0], signal.SIGKILL)

        try:
            follow(run, line, as_json=as_json, embedded=True, on_progress=kill_once)
        finally:
            run.close()
    if not (as_json or dashboard):
        click.echo("To see it in the browser: psplatform dashboard, or psplatform demo --dashboard from the start.")
