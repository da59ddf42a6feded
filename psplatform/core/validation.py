"""Declared parameters as pydantic sees them, and pydantic's errors as sentences; loaded when a value is checked."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, BaseModel, BeforeValidator, Field, InstanceOf, TypeAdapter, ValidationError

from psplatform.core.parameters import LARGEST, Parameter, declared, described, nearest
from psplatform.errors import ConfigurationError

_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "above", "lt": "below"}


def validated(parameter: Parameter, value: Any) -> Any:
    """Return `value` in the parameter's type; no text is taken for a number.

    Raises
    ------
    ConfigurationError
        If the type is wrong or the value out of range.
    """
    try:
        return _adapter(parameter).validate_python(value, strict=True)
    except ValidationError as error:
        raise _refusal(parameter, value, error) from None


def read(parameter: Parameter, text: str) -> Any:
    """Return what `text` says in the parameter's type, or raise as `validated` does."""
    value: Any = text
    try:
        if parameter.kind in (int, float, bool):
            value = _plain_adapter(parameter.kind).validate_strings(text)
        elif parameter.kind is tuple:
            parts = tuple(part.strip() for part in text.split(",") if part.strip())
            value = _plain_adapter(parameter.hint).validate_python(parts)
    except ValidationError:
        raise parameter.refusal(text) from None
    return validated(parameter, value)


def refused(error: ValidationError, owner: type[BaseModel], what: str) -> ConfigurationError:
    """Return the first of a model's errors in one sentence that names the field; `what` begins an unknown name's."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or what
    known = declared(owner)
    if first["type"] == "extra_forbidden":
        return ConfigurationError(f'{what} "{where}"; {nearest(where, known)}', field=where)
    if where in known:
        return _refusal(known[where], first["input"], error)
    said = first["msg"].replace("Input ", "")
    return ConfigurationError(f"{where} {said[0].lower()}{said[1:]}, not {first['input']!r}", field=where)


def parameters_of_model(owner: type[BaseModel]) -> tuple[Parameter, ...]:
    """Return the fields of a pydantic model as parameters."""
    hints = typing.get_type_hints(owner, include_extras=True)
    found = []
    for name, info in owner.model_fields.items():
        limits = [(ours, getattr(one, key, None)) for one in info.metadata for key, ours in _BOUNDS.items()]
        bounds = {ours: limit for ours, limit in limits if limit not in (None, LARGEST)}
        default = info.get_default(call_default_factory=True)
        found.append(described(name, hints[name], default, "", {"help": info.description or "", **bounds}))
    return tuple(found)


@cache
def _plain_adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


@cache
def _adapter(parameter: Parameter) -> TypeAdapter[Any]:
    checked = _checked(parameter.hint, parameter)
    return TypeAdapter(checked | None if parameter.optional else checked)


def _checked(hint: Any, limits: Parameter) -> Any:
    """Return the annotation with the limits of each number and word in it."""
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        return Annotated[(_checked(inner, limits), *metadata)]
    if typing.get_origin(hint) is tuple:
        items = tuple(one if one is Ellipsis else _checked(one, limits) for one in typing.get_args(hint))
        return Annotated[tuple[items], BeforeValidator(_as_tuple)]  # type: ignore[valid-type]  # made at run time
    if limits.choices:
        words: Any = Literal
        return words[limits.choices]
    if hint in (int, float):
        return _in_range(hint, limits)
    if isinstance(hint, type) and hint not in (Any, bool):
        instance: Any = InstanceOf
        return Annotated[str, BeforeValidator(_as_text)] if hint is str else instance[hint]
    return hint


def _in_range(kind: type, limits: Parameter) -> Any:
    # NaN is in no range, so that there is always one, and the integers of the event log have one.
    largest = LARGEST if kind is int else math.inf
    low = -largest if limits.minimum is None else limits.minimum
    high = largest if limits.maximum is None else limits.maximum
    span = Field(ge=low, gt=limits.above, le=high, lt=limits.below)
    if kind is int:
        return Annotated[int, span, BeforeValidator(_as_int)]
    return Annotated[float, AllowInfNan(not limits.finite), span, BeforeValidator(_as_float)]


def _as_float(value: Any) -> Any:
    """Take the numbers of NumPy and of other libraries for what they are."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
    except OverflowError:
        return value


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else value


def _as_text(value: Any) -> Any:
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def _refusal(parameter: Parameter, value: Any, error: ValidationError) -> ConfigurationError:
    if error.errors()[0].get("ctx", {}).get("le") == LARGEST and parameter.maximum is None:
        parameter = replace(parameter, maximum=LARGEST)
    return parameter.refusal(value)
