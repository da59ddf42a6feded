"""``psplatform recover``: going on with a run from its store."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from psplatform.cli.progress import ProgressLine
from psplatform.cli.train import pairs, stop_fields

_FIELDS = ("workers", "max_workers", "shards", "device", "transport", "evaluate_every")


@click.command()
@click.argument("store")
@click.option("--scheduler", metavar="ADDRESS", help="Scheduler to run on; a cluster on this machine if not given.")
@click.option("--checkpoint", type=int, metavar="N", help="Number of the checkpoint. [the newest]")
@click.option("--workers", metavar="N", help="Gradient workers. [as before]")
@click.option("--max-workers", metavar="N", help="Most gradient workers. [as before]")
@click.option("--shards", metavar="S", help="Parts the parameters are divided into. [as before]")
@click.option("--policy", metavar="NAME", help="Synchronisation policy. [as before]")
@click.option("-o", "policy_options", multiple=True, metavar="KEY=VALUE", help="Parameter of the policy.")
@click.option("--updates", type=int, help="Stop at this version.")
@click.option("--epochs", type=float, help="Stop after so many passes over the data.")
@click.option("--seconds", type=float, help="Stop after so many seconds, those before included.")
@click.option("--target-loss", type=float, help="Stop when the evaluated loss is at most this.")
@click.option("--target-accuracy", type=float, help="Stop when the evaluated accuracy is at least this.")
@click.option("--evaluate-every", metavar="N", help="Updates between evaluations. [as before]")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda ... [as before]")
@click.option("--transport", metavar="NAME", help="auto or comms (no shared memory). [as before]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def recover(store: str, *, scheduler: str | None, checkpoint: int | None, as_json: bool, **given: Any) -> None:
    """Go on with the run in STORE from its newest checkpoint, in the same store.

    Workers and shards may be others than before; a model of your own is given in Python, with ps.recover.
    """
    from psplatform.cli.follow import follow  # noqa: PLC0415  brings Dask, which takes a second
    from psplatform.runtime.launch import connect  # noqa: PLC0415
    from psplatform.runtime.recovery import recover as recover_from  # noqa: PLC0415

    changes = {name: given[name] for name in _FIELDS if given.get(name) is not None}
    stop = stop_fields(given)
    if stop:
        changes["stop"] = stop
    if given.get("policy"):
        changes["policy"] = given["policy"]
    if given.get("policy_options"):
        changes["policy_options"] = pairs(given["policy_options"], "policy_options")
    with ProgressLine() as line:
        client = connect(scheduler) if scheduler else None
        try:
            run = recover_from(store, client, checkpoint=checkpoint, report=line.say, **changes)
            with contextlib.closing(run):
                follow(run, line, as_json=as_json)
        finally:
            if client is not None:
                client.close()
