"""What the process of the pages does once it has shown the first one."""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle() -> None:
    """Spare what is loaded by now the search for garbage, which Streamlit makes after each refresh."""
    gc.collect()
    gc.freeze()
