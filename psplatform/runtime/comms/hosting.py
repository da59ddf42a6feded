"""Actors by name: made by the name of their class, found by the name of their run.

Dask's scheduler unpickles what is submitted to it.  What it finds here is light, so a scheduler neither loads torch nor
needs to have it.
"""

from __future__ import annotations

import pkgutil
from typing import Any


def dataset_name(run: str) -> str:
    """Return the name under which a run's coordinator is published on its scheduler."""
    return f"psplatform-{run}"


def key_of(run: str, term: int, name: str) -> str:
    """Return the key of a run's actor on a cluster where the run began under that term.

    What is left of a run that failed there keeps its own keys while the run goes on from its store.
    """
    return f"psplatform-{run}-{name}" if term == 1 else f"psplatform-{run}-{term}-{name}"


def call_named(dotted: str, *arguments: Any) -> Any:
    """Return what the class or function of that name, such as ``package.module:Class``, makes of `arguments`."""
    return pkgutil.resolve_name(dotted)(*arguments)


def name_of(thing: Any) -> str:
    """Return the name under which `call_named` finds a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"
