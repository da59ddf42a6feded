"""Parameters declared once: a dataclass field with type, range and help drives validation, command line and forms.

::

    @dataclass
    class StaleSynchronous(Policy):
        bound: int = parameter(3, minimum=0, help="iterations a worker may be ahead of the slowest")
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass
from typing import Any, Final

from psplatform.errors import ConfigurationError

_KEY = "psplatform.parameter"

LARGEST: Final = 2**63 - 1
"""Parameters are part of the event log, whose integers have 64 bits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known about one parameter.

    Attributes
    ----------
    kind
        ``int``, ``float``, ``str`` or ``bool``.
    optional
        Whether ``None`` is allowed; `help` says what it stands for.
    minimum, maximum
        Inclusive range of numbers, ``None`` where open.
    choices
        The allowed words of a ``str``, empty where any is allowed.
    """

    name: str
    kind: type
    optional: bool
    default: Any
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return a plain dictionary for ``--json`` and for forms."""
        kind = self.kind.__name__
        return {
            "name": self.name,
            "type": f"{kind} | None" if self.optional else kind,
            "default": self.default,
            "range": list(self.choices) if self.choices else [self.minimum, self.maximum],
            "help": self.help,
        }

    def accept(self, value: Any) -> Any:
        """Return `value` in this parameter's type, read from text where it is a text.

        Raises
        ------
        ConfigurationError
            If the type is wrong or the value out of range.
        """
        if value is None or (isinstance(value, str) and self.optional and value.lower() == "none"):
            if self.optional:
                return None
            raise self._refusal(value)
        value = self._typed(value)
        if self.kind is int and abs(value) > LARGEST:
            raise ConfigurationError(f"{self.name} must be at most {LARGEST}, not {value!r}", field=self.name)
        if self.choices and value not in self.choices:
            raise self._refusal(value)
        if self.kind in (int, float) and not self._in_range(value):
            raise self._refusal(value)
        return value

    def _typed(self, value: Any) -> Any:
        if isinstance(value, str) and self.kind is not str:
            return self._read(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if type(value) is not self.kind:
            raise self._refusal(value)
        return value

    def _read(self, text: str) -> Any:
        if self.kind is bool:
            words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            if text.lower() in words:
                return words[text.lower()]
            raise self._refusal(text)
        try:
            return self.kind(text)
        except ValueError:
            raise self._refusal(text) from None

    def _in_range(self, value: float) -> bool:
        if math.isnan(value):
            return False
        above = self.minimum is None or value >= self.minimum
        return above and (self.maximum is None or value <= self.maximum)

    def _refusal(self, value: Any) -> ConfigurationError:
        article = "an" if self.kind is int else "a"
        wanted = " or ".join(map(repr, self.choices)) or f"{article} {self.kind.__name__}{self._range_in_words()}"
        return ConfigurationError(f"{self.name} must be {wanted}, not {value!r}", field=self.name)

    def _range_in_words(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f" of at least {self.minimum:g}"
        return "" if self.maximum is None else f" of at most {self.maximum:g}"


def parameter(
    default: Any,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a dataclass field as a parameter; its type is the field's annotation."""
    return dataclasses.field(
        default=default,
        metadata={_KEY: {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}},
    )


def parameters_of(owner: type) -> tuple[Parameter, ...]:
    """Return the parameters that dataclass `owner` declares, in order of declaration."""
    hints = typing.get_type_hints(owner)
    declared = []
    for field in dataclasses.fields(owner):
        if _KEY in field.metadata:
            kind, optional = _kind_of(hints[field.name])
            declared.append(
                Parameter(name=field.name, kind=kind, optional=optional, default=field.default, **field.metadata[_KEY])
            )
    return tuple(declared)


def accept_all(owner: type, options: typing.Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Return `options` typed and checked against the parameters of `owner`.

    Raises
    ------
    ConfigurationError
        If an option is unknown (the nearest name is suggested), has the wrong type or is out of range.
    """
    declared = {one.name: one for one in parameters_of(owner)}
    accepted = {}
    for name, value in options.items():
        if name not in declared:
            raise ConfigurationError(_unknown(name, sorted(declared), what), field=name)
        accepted[name] = declared[name].accept(value)
    return accepted


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known word nearest to `name`, or nothing where none is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _unknown(name: str, known: list[str], what: str) -> str:
    if not known:
        return f"{what} has no parameter {name!r}; it takes none"
    return f"{what} has no parameter {name!r}{nearest(name, known)} (it has {', '.join(known)})"


def _kind_of(hint: Any) -> tuple[type, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [one for one in typing.get_args(hint) if one is not type(None)]
        return kinds[0], True
    return hint, False
