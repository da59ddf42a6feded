"""What the description of a run in its store must be: programs compute with it, print it and name things by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psplatform.untrusted.checks import is_count, is_number, is_run_id

_TEXTS: Final = ("scheduler", "error", "store")
_TABLES: Final = ("job", "failure")


def flaw_of(description: Mapping[str, Any]) -> str | None:
    """Return what in a description is not of its kind, of what is looked at where runs are listed and gone on with."""
    job = description.get("job")
    stop = job.get("stop") if isinstance(job, Mapping) else None
    flaws = {
        "its run has an id that is none": is_run_id(description["run"]),
        **{f"its {name} is no text": isinstance(description.get(name), str | None) for name in _TEXTS},
        **{f"its {name} is no table": isinstance(description.get(name), Mapping | None) for name in _TABLES},
        "the stop of its job is no table": isinstance(stop, Mapping | None),
        "its start is no time": is_number(description.get("started", 0.0)),
        "its term is no whole number": is_count(description.get("term", 1)),
        **{
            f"{str(name)[:40]!r} in the stop of its job is no number": _is_condition(name, value)
            for name, value in (stop.items() if isinstance(stop, Mapping) else ())
        },
    }
    return next((flaw for flaw, holds in flaws.items() if not holds), None)


def _is_condition(name: object, value: object) -> bool:
    return value is None or is_number(value) or (name == "targets" and _are_numbers(value))


def _are_numbers(value: object) -> bool:
    return isinstance(value, Mapping) and all(is_number(one) for one in value.values())
