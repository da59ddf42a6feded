"""Whether a value that another program wrote is of the kind that it should be."""

from __future__ import annotations

import math
import re
from typing import Any, Final

MOST: Final = 2**53
"""Counts above it are none: no position, size or number of a run comes near, and JSON readers round them."""

_RUN: Final = re.compile(r"[^\W_][\w.+-]{0,199}")


def is_count(value: Any, most: int = MOST) -> bool:
    """Whether it is a whole number from 0 to `most`."""
    return type(value) is int and 0 <= value <= most


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return math.isfinite(value) if type(value) is float else type(value) is int and abs(value) <= MOST**2


def are_counts(value: Any, most: int = MOST) -> bool:
    """Whether it is a list of whole numbers from 0 to `most`."""
    return isinstance(value, list | tuple) and all(is_count(one, most) for one in value)


def is_run_id(value: Any) -> bool:
    """Whether it may be the id of a run: letters, digits and ``_ . + -``, 200 at most, and a letter or digit first.

    psplatform makes them of the names of the workload and the policy and of six digits.  Ids are parts of names on
    schedulers and of files, and are printed.
    """
    return isinstance(value, str) and _RUN.fullmatch(value) is not None
