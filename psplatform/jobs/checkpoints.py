"""When a run writes checkpoints, and how many of them are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import nearest, parse_count, parse_number

USUAL_SECONDS: Final = 30.0
"""Between checkpoints where nothing is said: what the loss of the whole cluster may cost."""

_USUAL_KEEP: Final = 3
_NEVER: Final = "none"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints after so many updates, so many seconds, or at the first of both; every 30 s if nothing is said.

    Attributes
    ----------
    every_updates, every_seconds
        Distance to the last checkpoint, or ``None``.
    keep
        How many are kept, the newest ones; 0 where none is written.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.
    """

    every_updates: int | None = None
    every_seconds: float | None = None
    keep: int = _USUAL_KEEP

    def __post_init__(self) -> None:
        if not _is_count(self.keep):
            raise _refused(f"checkpoints: keep={self.keep!r} is not a count; write 1, 2, 3 and so on")
        if self.every_updates is not None and not (_is_count(self.every_updates) and self.every_updates > 0):
            raise _refused(f"checkpoints: every_updates={self.every_updates!r} must be a whole number above 0")
        if self.every_seconds is not None:
            object.__setattr__(self, "every_seconds", _checked_seconds(self.every_seconds))
        if self.keep == 0 and (self.every_updates is not None or self.every_seconds is not None):
            raise _refused("checkpoints: keep must be at least 1 where they are written; write none to write none")
        if self.keep > 0 and self.every_updates is None and self.every_seconds is None:
            object.__setattr__(self, "every_seconds", USUAL_SECONDS)

    @classmethod
    def never(cls) -> Checkpoints:
        """Return that none is written: only the end of the run is saved."""
        return cls(keep=0)

    @property
    def written(self) -> bool:
        """Whether any is written."""
        return self.keep > 0

    def __str__(self) -> str:
        updates = "" if self.every_updates is None else f"{self.every_updates} updates"
        seconds = "" if self.every_seconds is None else f"{self.every_seconds:g} s"
        return f"every {' or '.join(filter(None, (updates, seconds)))}" if self.written else _NEVER

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as numbers."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Checkpoints | Mapping[str, Any] | str | int | None) -> Checkpoints:
        """Return what words, a mapping of fields, or `to_plain` describes.

        In words ``200`` is every 200 updates, ``10s`` every 10 seconds and ``none`` never; a mapping may have the same
        words as ``every``.
        """
        if isinstance(plain, Checkpoints):
            return plain
        if plain is None:
            return cls.never()
        if isinstance(plain, str | int) and not isinstance(plain, bool):
            return cls(**_parsed(str(plain)))
        if not isinstance(plain, Mapping):
            raise _refused(f"checkpoints must be such as ps.Checkpoints(), not {plain!r}; write 200, 10s or none")
        options = dict(plain)
        words = options.pop("every", None)
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise _refused(f'checkpoints have no "{name}"; {nearest(str(name), [*known, "every"])}')
        if isinstance(options.get("keep"), str):
            options["keep"] = _parsed_count(options["keep"], "keep")
        return cls(**_merged(options, words))


def _merged(options: dict[str, Any], words: object) -> dict[str, Any]:
    found = {} if words is None else _parsed(str(words))
    twice = sorted(found.keys() & options.keys())
    if twice == ["keep"]:
        raise _refused("checkpoints: nothing is kept where none is written; leave keep out, or say how often")
    if twice:
        raise _refused(f"checkpoints: every={words} and {twice[0]} say the same; give one of them")
    return {**options, **found}


def _parsed(words: str) -> dict[str, Any]:
    text = words.replace(" ", "")
    if text == _NEVER:
        return {"keep": 0}
    if text.endswith("s") and not text.endswith("updates"):
        try:
            return {"every_seconds": parse_number(text.removesuffix("s"), "checkpoints", "every")}
        except ConfigurationError:
            raise _refused(_unreadable(words)) from None
    return {"every_updates": _parsed_count(text.removesuffix("updates"), "every")}


def _parsed_count(text: str, key: str) -> int:
    try:
        return parse_count(text, "checkpoints", key)
    except ConfigurationError as error:
        raise _refused(str(error) if key == "keep" else _unreadable(text)) from None


def _unreadable(words: str) -> str:
    return f'checkpoints: every="{words}" is not known; write updates such as 200, seconds such as 10s, or none'


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _checked_seconds(value: object) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):  # type: ignore[operator]  # it is a number where this is asked
        raise _refused(f"checkpoints: every_seconds={value!r} must be a finite number above 0")
    return float(value)  # type: ignore[arg-type]  # it is a number


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="checkpoints")
