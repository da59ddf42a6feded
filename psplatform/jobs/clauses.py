"""Reading ``key=value,key=value`` and refusing what is wrong in one sentence: for the small languages of options."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Final

from psplatform.core.limits import nearest
from psplatform.errors import ConfigurationError

MOST_DIGITS: Final = 9  # counts number slots, shards and iterations; longer ones are mistakes


def parse_numbers(text: str, subject: str, keys: Collection[str]) -> dict[str, float]:
    """Return the numbers in ``key=number,key=number``, in the order of `keys`: all of them, and no others."""
    return {key: parse_number(value, subject, key) for key, value in parse_pairs(text, subject, keys).items()}


def parse_pairs(text: str, subject: str, keys: Collection[str]) -> dict[str, str]:
    """Return the values in ``key=value,key=value``, in the order of `keys`: all of them, and no others.

    Raises
    ------
    ConfigurationError
        Naming `subject` and the part that is wrong.
    """
    example = ",".join(f"{key}=..." for key in keys)
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if key not in keys:
            raise ConfigurationError(f'{subject} has no "{key}"; {nearest(key, keys)}')
        if not separator or key in found:
            raise ConfigurationError(f'{subject}: "{part}" should give {key} once; write {example}')
        found[key] = value
    missing = [key for key in keys if key not in found]
    if missing:
        raise ConfigurationError(f"{subject} lacks {' and '.join(missing)}; write {example}")
    return {key: found[key] for key in keys}


def parse_number(text: str, subject: str, key: str) -> float:
    """Return the number that `text` is, or raise `ConfigurationError`."""
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f'{subject}: {key}="{text}" is not a number; write it like 0.05') from None


def parse_count(text: str, subject: str, key: str) -> int:
    """Return the whole number, 0 or more, that `text` is, or raise `ConfigurationError`."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ConfigurationError(f'{subject}: {key}="{text}" is not a count; write 0, 1, 2 and so on')
    return int(text)


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Say in a `ConfigurationError` which field it is about, unless it says so already."""
    try:
        yield
    except ConfigurationError as error:
        if error.field == field:
            raise
        raise ConfigurationError(f"{field}: {error}", field=field) from None


def require_not_negative(subject: str, key: str, value: float) -> None:
    """Raise `ConfigurationError` unless `value` is finite and at least 0."""
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise ConfigurationError(f"{subject}: {key} must be a finite number of at least 0, not {value!r}")


def require_positive(subject: str, key: str, value: float) -> None:
    """Raise `ConfigurationError` unless `value` is finite and above 0."""
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise ConfigurationError(f"{subject}: {key} must be a finite number above 0, not {value!r}")
