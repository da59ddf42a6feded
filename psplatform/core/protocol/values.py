"""How messages, events and effects are declared: immutable, and quick to make.

``@dataclass(frozen=True, slots=True)`` of this module means to type checkers what it means in the standard library:
they refuse to set an attribute.  At run time that is refused only in Python's development mode (``python -X dev``):
the check makes each attribute of a new value a call, which would be a tenth of what a simulated run takes.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool):
        """Return what makes a class one of values that are compared and hashed by their attributes."""
        return dataclasses.dataclass(frozen=frozen and sys.flags.dev_mode, slots=slots, unsafe_hash=True)
