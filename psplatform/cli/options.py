"""Options of commands: a table of flags, each with the declared parameter that gives it type, default and help."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Final

import click

from psplatform.core.parameters import Parameter, declared

Decorator = Callable[[Any], Any]

_JOB: Final = "psplatform.jobs.job:Job"
_STOP: Final = "psplatform.core.plan:Stop"
_SGD: Final = "psplatform.jobs.optimizers:SGD"
_COPIES: Final = "psplatform.jobs.replication:Bounded"
_CHECKPOINTS: Final = "psplatform.jobs.checkpoints:Checkpoints"
_NETWORK: Final = "psplatform.jobs.network:Network"
_CONDITIONS: Final = "psplatform.simulation.conditions:Conditions"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and the declared parameter that it sets.

    Attributes
    ----------
    owner, name
        What declares the parameter, as ``module:class``, and the parameter; by default the flag's own words.
    metavar
        What help calls the value; ``None`` for a switch.
    given
        The name under which a command receives it, if not the flag's own words.
    usual
        What holds where the flag is not given, if not the parameter's default; "" says nothing.
    note
        What only the command line says.
    type
        The number that click makes of the text; else the job reads it.
    """

    flag: str
    owner: str
    metavar: str | None
    name: str = ""
    given: str = ""
    usual: str | None = None
    note: str = ""
    type: type[int | float] | None = None
    multiple: bool = False

    @property
    def words(self) -> str:
        """The name under which a command receives it."""
        return self.given or self.flag.strip("-").replace("-", "_")

    @property
    def parameter(self) -> Parameter:
        """The declared parameter; looking it up may load pydantic and NumPy."""
        module, _, owner = self.owner.partition(":")
        return declared(getattr(importlib.import_module(module), owner))[self.name or self.words]

    def help(self, otherwise: str | None = None) -> str:
        """Return what the declaration says; `otherwise` is what holds where the flag is not given, if not the usual."""
        one = self.parameter
        text, _, none = one.help.partition("; none: ")
        choices = f": {' or '.join(one.choices)}" if one.choices else ""
        default = self.usual if otherwise is None else otherwise
        if default is None:
            default = none if one.default in (None, MISSING) else str(one.default)
        ending = f" [{default}]" if default and self.metavar else ""
        return f"{text[0].upper()}{text[1:]}{choices}{self.note}.{ending}"

    def option(self, otherwise: str | None = None) -> Decorator:
        """Return click's option."""
        shape: dict[str, Any] = {"metavar": self.metavar} if self.metavar else {"is_flag": True, "default": None}
        shape |= {"type": self.type, "multiple": self.multiple}
        return click.option(self.flag, self.words, cls=_Option, told=lambda: self.help(otherwise), **shape)


class _Option(click.Option):
    """An option whose help is looked up when it is shown, so that commands begin quickly."""

    def __init__(self, *args: Any, told: Callable[[], str], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._told = told

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._told()
        return super().get_help_record(ctx)


JOB_FLAGS: Final = (
    Flag("--policy", _JOB, "NAME"),
    Flag("-o", _JOB, "KEY=VALUE", given="policy_options", usual="", multiple=True),
    Flag("-w", _JOB, "KEY=VALUE", name="options", given="workload_options", usual="", multiple=True),
    Flag("--workers", _JOB, "N"),
    Flag("--max-workers", _JOB, "N"),
    Flag("--shards", _JOB, "S"),
    Flag("--optimizer", _JOB, "NAME", usual="sgd"),
    Flag("--lr", _SGD, "X", usual="", type=float),
    Flag("--momentum", _SGD, "X", usual="", note=" (sgd and rmsprop)", type=float),
    Flag("--weight-decay", _SGD, "X", usual="", note=" (adamw: by which, times lr, they shrink)", type=float),
    Flag("--schedule", _JOB, "NAME", usual="constant", note=" (parameters in a job file)"),
    Flag("--clip-norm", _JOB, "X"),
    Flag("--batch-size", _JOB, "N", usual=""),
    Flag("--sampling", _JOB, "RULE"),
    Flag("--bad-batches", _JOB, "WHAT"),
    Flag("--updates", _STOP, "N", type=int),
    Flag("--epochs", _STOP, "X", type=float),
    Flag("--seconds", _STOP, "X", type=float),
    Flag("--target-loss", _STOP, "X", type=float),
    Flag("--target-accuracy", _STOP, "X", type=float),
    Flag("--targets", _STOP, "NAME=X,..."),
    Flag("--patience", _STOP, "N", type=int),
    Flag("--min-delta", _STOP, "X", type=float),
    Flag("--evaluate-every", _JOB, "N"),
    Flag("--evaluate-on", _JOB, "DATA"),
    Flag("--metrics", _JOB, "NAME,...", usual=""),
    Flag("--watch", _JOB, "NAME"),
    Flag("--keep-best", _JOB, None),
    Flag("--stragglers", _JOB, "SPEC"),
    Flag("--slow-servers", _JOB, "SPEC"),
    Flag("--replication", _JOB, "MODE", usual="bounded"),
    Flag("--max-divergence", _COPIES, "X"),
    Flag("--replicas", _COPIES, "N"),
    Flag("--replication-source", _COPIES, "WHO", name="source"),
    Flag("--replication-target", _COPIES, "WHERE", name="target"),
    Flag("--on-replica-loss", _COPIES, "WHAT"),
    Flag("--on-isolation", _COPIES, "WHAT"),
    Flag("--checkpoint-every", _JOB, "N|Ts|none", name="checkpoints", usual="30s"),
    Flag("--keep-checkpoints", _CHECKPOINTS, "K", name="keep"),
    Flag("--device", _JOB, "NAME"),
    Flag("--transport", _JOB, "NAME"),
    Flag("--compression", _JOB, "KIND", usual="none"),
    Flag("--fabric", _NETWORK, None),
    Flag("--seed", _JOB, "N"),
    Flag("--store", _JOB, "PATH"),
)
"""What describes a job, in the order in which help shows it."""

CONDITION_FLAGS: Final = (
    Flag("--round-trip", _CONDITIONS, "DIST"),
    Flag("--compute", _CONDITIONS, "DIST"),
    Flag("--network", _CONDITIONS, "SPEC"),
    Flag("--timing-only", _CONDITIONS, None),
)
"""What describes a simulated cluster."""

COPY_FIELDS: Final = {"replication": "mode"} | {
    flag.words: flag.name or flag.words for flag in JOB_FLAGS if flag.owner == _COPIES
}
"""The name under which a command receives an option of replication, and the name a job file gives it."""

STOP_FIELDS: Final = tuple(flag.words for flag in JOB_FLAGS if flag.owner == _STOP)
JOB_FIELDS: Final = tuple(flag.words for flag in JOB_FLAGS if flag.owner == _JOB and not flag.name and not flag.given)
"""Fields of a job that are options of the same name."""


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Return a decorator that adds click's `options` to a command, in the order in which its help shows them."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def with_flags(flags: Sequence[Flag], otherwise: str | None = None) -> Decorator:
    """Return a decorator that adds `flags`; `otherwise` is what holds where one is not given, if not the usual."""
    return with_options([flag.option(otherwise) for flag in flags])
