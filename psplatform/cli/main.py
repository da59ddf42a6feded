"""The ``psplatform`` command and its subcommands, each loaded when it is called.

Exit codes: 0 done; 1 the run failed, or standard output cannot be written; 2 the command or the job must be changed,
and nothing was started.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from psplatform.cli.terminal import guard_streams, printable
from psplatform.errors import ConfigurationError, PsplatformError

_COMMANDS = {
    "attach": "psplatform.cli.commands.attach:attach",
    "bench": "psplatform.cli.commands.bench:bench",
    "dashboard": "psplatform.cli.commands.dashboard:dashboard",
    "demo": "psplatform.cli.commands.demo:demo",
    "fit-cutoff": "psplatform.cli.commands.fit_cutoff:fit_cutoff",
    "policies": "psplatform.cli.commands.policies:policies",
    "recover": "psplatform.cli.commands.recover:recover",
    "runs": "psplatform.cli.commands.runs:runs",
    "simulate": "psplatform.cli.commands.simulate:simulate",
    "trace": "psplatform.cli.commands.trace:trace",
    "train": "psplatform.cli.commands.train:train",
}


class _Failure(click.ClickException):
    def __init__(self, error: PsplatformError) -> None:
        super().__init__(printable(error, lines=True))
        self.exit_code = 2 if isinstance(error, ConfigurationError) else 1  # type: ignore[misc]  # click reads it from the instance


class _LazyGroup(click.Group):
    """Loads a subcommand's module when the subcommand is called; turns our errors into one sentence and a code."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        guard_streams()  # here, as `dask psplatform` does not come by `main`
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PsplatformError as error:
            raise _Failure(error) from error


@click.group(
    name="psplatform",
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="psplatform")
def cli() -> None:
    """Train PyTorch models on Dask through parameter servers."""


def main() -> None:
    """Run the command line; the entry point of the ``psplatform`` script."""
    sys.exit(cli.main(standalone_mode=True))
