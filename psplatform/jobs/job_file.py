"""The text of a job file: YAML, in which numbers are written as in YAML 1.2.

PyYAML reads YAML 1.1, where ``1e-3`` is a text, because a number with an exponent needs a point and a sign there
(``1.0e-3``).  Python, JSON and YAML 1.2 take it for a number, and so do job files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import yaml

from psplatform.errors import ConfigurationError

_FLOAT: Final = "tag:yaml.org,2002:float"
_WITH_EXPONENT: Final = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Floats of the core schema of YAML 1.2 that have an exponent; those without one are the same in both versions."""


_TEXT: Final = "tag:yaml.org,2002:str"

MOST_CHARACTERS: Final = 1 << 20
MOST_VALUES: Final = 100_000
DEEPEST: Final = 32
"""Of a job file: one has some dozens of values in three levels."""

_LONGEST_NUMBER: Final = 400
"""Characters of a number; the time to read one grows with their square."""


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
        content = _content(text)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        # The last four: no such day, a key that is none, a number too large, nested too deeply.
        said = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ConfigurationError(f"cannot read the job file {path}: {said}; mend it", field="job") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"the job file {path} must be a mapping of a job's fields", field="job")
    return {str(name): value for name, value in content.items()}


def _content(text: str) -> Any:
    """Return what the text describes; what it repeats by aliases counts as often as it is there."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Counted before anything is made of it: each alias is a word, and what they stand for may double with each.
        if _size(node, {}, 0)[0] > MOST_VALUES:
            raise ValueError(f"it describes more than {MOST_VALUES} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, known: dict[int, tuple[int, int]], depth: int) -> tuple[int, int]:
    """Return how many values a node describes, in how many levels; one that contains itself has too many."""
    found = known.get(id(node))
    if found is None and isinstance(node, yaml.ScalarNode):
        if node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a value of {len(node.value)} characters is no number")
        return 1, 0
    if depth + (found[1] if found is not None else 0) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    if found is None:
        parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        sizes = [_size(part, known, depth + 1) for part in parts]
        found = 1 + sum(size for size, _ in sizes), 1 + max((levels for _, levels in sizes), default=0)
        known[id(node)] = found
    return found


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the text of a job file with these fields, which `fields_in` reads as they are."""
    return yaml.dump(dict(fields), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
