"""Replication and checkpoints on the command line: the fields of a job that their options stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psplatform.cli.options import COPY_FIELDS

PROTECTION: Final = ("replication", "checkpoints")
"""Fields of a job that the options describe."""

_USUAL_MODE: Final = "bounded"


def protection_fields(described: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's fields ``replication`` and ``checkpoints``, where a file or the command line speaks of them.

    What the command line does not speak of is the very value that is `described`.
    """
    fields = {
        "replication": _replication(described.get("replication"), given),
        "checkpoints": _checkpoints(described.get("checkpoints"), given),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _replication(described: Any, given: Mapping[str, Any]) -> Any:
    asked = {name: given[option] for option, name in COPY_FIELDS.items() if given.get(option) is not None}
    if not asked:
        return described
    spec = {"mode": described} if isinstance(described, str) else dict(described or {})
    if asked.get("mode", spec.get("mode", _USUAL_MODE)) != spec.get("mode", _USUAL_MODE):
        spec = {}  # the file's settings are those of the mode that it names
    if "max_divergence" in asked:
        spec.pop("unit", None)
    return spec | asked


def _checkpoints(described: Any, given: Mapping[str, Any]) -> Any:
    every, keep = given.get("checkpoint_every"), given.get("keep_checkpoints")
    if every is None and keep is None:
        return described
    spec = dict(described or {}) if described is None or isinstance(described, Mapping) else {"every": described}
    if every is not None:
        kept = {} if every == "none" else {name: spec[name] for name in ("keep",) if spec.get(name)}
        spec = {**kept, "every": every}
    return spec if keep is None else {**spec, "keep": keep}
