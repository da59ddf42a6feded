"""The text of a job file: YAML, in which numbers are written as in YAML 1.2.

PyYAML reads YAML 1.1, where ``1e-3`` is a text, because a number with an exponent needs a point and a sign there
(``1.0e-3``).  Python, JSON and YAML 1.2 take it for a number, and so do job files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from psplatform.errors import ConfigurationError

_FLOAT: Final = "tag:yaml.org,2002:float"
_WITH_EXPONENT: Final = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Floats of the core schema of YAML 1.2 that have an exponent; those without one are the same in both versions."""


class _Loader(yaml.SafeLoader):
    """Reads job files."""


class _Dumper(yaml.SafeDumper):
    """Writes job files: puts a text in quotes that `_Loader` would take for a number."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(_FLOAT, _WITH_EXPONENT, list("-+.0123456789"))


def fields_in(text: str, path: str) -> dict[str, Any]:
    """Return the fields of a job that the text of the job file `path` describes.

    Raises
    ------
    ConfigurationError
        If it is no YAML, or no mapping.
    """
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader, which makes plain values only
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the latter two: no such day, nested too deeply
        said = " ".join(str(error).split())
        raise ConfigurationError(f"cannot read the job file {path}: {said}", field="job") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"the job file {path} must be a mapping of a job's fields", field="job")
    return {str(name): value for name, value in content.items()}


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the text of a job file with these fields, which `fields_in` reads as they are."""
    return yaml.dump(dict(fields), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
