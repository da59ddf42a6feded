"""Numbers and texts as pages show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from psplatform.telemetry.words import shortened

UNKNOWN: Final = "–"

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|$:~&])")

_LONGEST: Final = 1000
"""Characters of a sentence with its remedy, paths included: a text out of a store is sent at each refresh."""

_LINK: Final = re.compile(r"(?i)(https?(?=://)|www(?=\.)|@(?=\w))")
_JOINER: Final = "\u2060"
"""Shows as nothing, and parts what Streamlit would make a link of in spite of every backslash."""


def plain(text: object) -> str:
    """Return a text out of a store as Markdown shows it word for word: no link, no image, no formula."""
    parted = _LINK.sub(rf"\1{_JOINER}", " ".join(shortened(text, _LONGEST).split()))
    return _SPECIAL.sub(r"\\\1", parted)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with so many significant digits."""
    return UNKNOWN if value is None else f"{value:.{digits}g}"


def decimals(value: float | None, places: int = 4) -> str:
    """Return a number with so many places behind the point, as the command line shows losses."""
    return UNKNOWN if value is None else f"{value:.{places}f}"


def duration(seconds: float | None) -> str:
    """Return seconds in the two largest units that they fill."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: float | None) -> str:
    """Return bytes in the unit that gives them one to three digits before the point."""
    if count is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def date_of(unix_s: object) -> datetime | None:
    """Return a time as a date, ``None`` for what is none: a store may say anything."""
    if not isinstance(unix_s, int | float):
        return None
    try:
        return datetime.fromtimestamp(unix_s, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def moment(unix_s: float | None) -> str:
    """Return a time of day with its date, in this machine's time zone."""
    date = date_of(unix_s)
    return UNKNOWN if date is None else date.astimezone().isoformat(" ", "seconds")[:19]
