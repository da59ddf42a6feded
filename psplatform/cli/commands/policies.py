"""``psplatform policies``: what there is to choose from."""

from __future__ import annotations

import json
from typing import Any

import click

from psplatform.policies.registry import describe_policies


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def policies(*, as_json: bool) -> None:
    """List the synchronisation policies with their parameters and sources."""
    found = describe_policies()
    if as_json:
        click.echo(json.dumps({"policies": found}))
        return
    for policy in found:
        click.echo(f"{click.style(policy['name'], bold=True)}: {policy['title']}")
        for parameter in policy["parameters"]:
            click.echo(f"    -o {parameter['name']}={parameter['default']}  {_meaning(parameter)}")
        click.echo(f"    {policy['source']}")


def _meaning(parameter: dict[str, Any]) -> str:
    known = [str(one) for one in parameter["range"] if one is not None]
    limits = ", ".join(known)
    return f"{parameter['help']} ({parameter['type']}{': ' if limits else ''}{limits})"
