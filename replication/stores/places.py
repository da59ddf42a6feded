"""Where a store is, as all else names it: a path where it is local, and any other URL as it was given."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote

from psplatform.errors import ConfigurationError

_LOCAL_URL: Final = re.compile(r"(?:file|local):(?://(?:localhost(?=/))?)?")


def place_of(store: str | os.PathLike[str]) -> str:
    """Return the place of a store as a path, unless it is a URL of something that is not local.

    Of ``file:`` and ``local:`` URLs the path remains, with what is percent-encoded decoded, and ``~`` becomes the
    user's home.  For to a path Zarr writes as everybody else here does; to such a URL it makes no folders.
    """
    try:
        store = os.fspath(store)
    except TypeError:
        text = f"a store is named by a path or a URL, not by {store!r}"
        raise ConfigurationError(f"{text}; give the one that the run has", field="store") from None
    url = _LOCAL_URL.match(store)
    path = unquote(store[url.end() :], errors="surrogateescape") if url else store
    return os.path.expanduser(path)  # noqa: PTH111  unlike Path, it leaves what it cannot expand, and URLs


def whole_place(store: str | os.PathLike[str]) -> str:
    """Return where a store is, without links and dots: two that name one folder differently get the same."""
    place = place_of(store)
    return place.rstrip("/") if "://" in place else os.path.realpath(place)
