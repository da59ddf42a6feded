"""One widget for each declared parameter, with its range and help, and the error beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Final

import streamlit as st

from psplatform.core.parameters import Parameter
from psplatform.dashboard.words import plain
from psplatform.errors import ConfigurationError

_AS_DECLARED: Final = "default"
_PLAIN: Final = (bool, int, float, str, tuple)
"""What a job file can say of a value as it is."""

_LONGEST_HINT: Final = 60


@dataclass(slots=True)
class Filled:
    """What was filled in.

    Attributes
    ----------
    values
        The values that differ from the defaults, by name; typed and in range.
    errors
        What is wrong, by name; the page says it beside the field.
    """

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def fill(
    parameters: Iterable[Parameter],
    key: str,
    *,
    columns: int = 2,
    before: Mapping[str, Any] | None = None,
) -> Filled:
    """Show a widget for each parameter and return what was filled in.

    Parameters
    ----------
    key
        What the widgets' keys begin with.
    before
        Values that hold where nothing is filled in, instead of the declared defaults.
    """
    filled = Filled()
    places = st.columns(columns)
    for number, one in enumerate(parameters):
        with places[number % columns]:
            _field(one, f"{key}.{one.name}", filled, (before or {}).get(one.name, one.default))
    return filled


def _field(one: Parameter, key: str, filled: Filled, before: Any) -> None:
    tip = plain(f"{one.help} ({one.wanted})")
    label = plain(one.name)
    if one.path:
        _path(one, key, filled, before, label=label, tip=tip)
        return
    if one.choices or one.kind is bool:
        _choice(one, key, filled, before, label=label, tip=tip)
        return
    text = st.text_input(label, key=key, placeholder=_shown(before), help=tip, persist_state="session")
    if not text.strip():
        if one.default is MISSING and before is MISSING:
            filled.errors[one.name] = f"{one.name} must be given: {one.wanted}"
            st.caption(f":red[{plain(filled.errors[one.name])}]")
        return
    try:
        value = one.accept(text.strip())
    except ConfigurationError as error:
        filled.errors[one.name] = str(error.args[0])
        st.caption(f":red[{plain(error.args[0])}]")
        return
    if value != before:
        # A job file has the words of what is more than numbers, such as stragglers.
        filled.values[one.name] = value if value is None or isinstance(value, _PLAIN) else text.strip()


def _path(one: Parameter, key: str, filled: Filled, before: Any, *, label: str, tip: str) -> None:
    hint = "in a job file only" if before in (None, MISSING) else _shown(before)
    st.text_input(label, key=key, placeholder=hint, help=tip, disabled=True)
    if before is MISSING:
        filled.errors[one.name] = (
            f"{one.name} is a path, which a page may not name; start the dashboard with a job file"
        )
        st.caption(f":red[{plain(filled.errors[one.name])}]")


def _choice(one: Parameter, key: str, filled: Filled, before: Any, *, label: str, tip: str) -> None:
    words = list(one.choices) if one.choices else ["yes", "no"]
    usual = f"{_AS_DECLARED} ({_shown(before)})"
    chosen = st.selectbox(label, [usual, *words], key=key, help=tip, persist_state="session")
    if chosen and chosen != usual:
        value = one.accept(chosen)
        if value != before:
            filled.values[one.name] = value


def _shown(value: Any) -> str:
    words = _words(value)
    return words if len(words) <= _LONGEST_HINT else f"{words[: _LONGEST_HINT - 1]}…"


def _words(value: Any) -> str:
    if value is None or value is MISSING:
        return "none" if value is None else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)
