"""When a run writes checkpoints, and how many of them are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from psplatform.core.parameters import declared, parameter, require_known, settle
from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import naming, parse_count, parse_number

USUAL_SECONDS: Final = 30.0
"""Between checkpoints where nothing is said: what the loss of the whole cluster may cost."""

_NEVER: Final = "none"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints after so many updates, so many seconds, or at the first of both; every 30 s if nothing is said.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.
    """

    every_updates: int | None = parameter(None, minimum=1, help="updates between checkpoints")
    every_seconds: float | None = parameter(None, above=0, finite=True, help="seconds between checkpoints")
    keep: int = parameter(3, minimum=0, help="checkpoints that are kept, the newest ones; 0 where none is written")

    def __post_init__(self) -> None:
        settle(self, "checkpoints: ", field="checkpoints")
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
        known = declared(cls)
        for name in options:
            require_known(name, [*known, "every"], "checkpoints have no", field="checkpoints")
        if isinstance(options.get("keep"), str):
            with naming("checkpoints"):
                options["keep"] = known["keep"].accept(options["keep"])
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
    try:
        if text.endswith("s") and not text.endswith("updates"):
            return {"every_seconds": parse_number(text.removesuffix("s"), "checkpoints", "every")}
        return {"every_updates": parse_count(text.removesuffix("updates"), "checkpoints", "every")}
    except ConfigurationError:
        remedy = "write updates such as 200, seconds such as 10s, or none"
        raise _refused(f'checkpoints: every="{words}" is not known; {remedy}') from None


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="checkpoints")
