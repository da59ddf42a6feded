"""Making an object of a class that is named, not passed.

Dask's scheduler unpickles what is submitted to it.  What it finds here is light, so a scheduler neither loads torch nor
needs to have it.
"""

from __future__ import annotations

import pkgutil
from typing import Any


def call_named(dotted: str, *arguments: Any) -> Any:
    """Return what the class or function of that name, such as ``package.module:Class``, makes of `arguments`."""
    return pkgutil.resolve_name(dotted)(*arguments)


def name_of(thing: Any) -> str:
    """Return the name under which `call_named` finds a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"
