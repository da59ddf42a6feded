"""Running the user's code: whatever it raises becomes an error of ours that keeps its traceback."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from psplatform.errors import MORE_FILES, ClusterError, PsplatformError, UserCodeError, lacks_files

_FULL_DEVICE: Final = "OutOfMemoryError"
_LESS_MEMORY: Final = "choose a smaller batch_size, or more micro_batches"


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Turn what the user's code raises into `UserCodeError`; our own errors pass."""
    try:
        yield
    except PsplatformError:
        raise
    except Exception as error:  # noqa: BLE001  the seam where whatever the user's code raises gets its name
        kind, text, trace = describe(error)
        said = f"{kind} in the user's code while {doing}: {text}"
        raise UserCodeError(said, kind=kind, user_traceback=trace) from None


def describe(error: BaseException) -> tuple[str, str, str]:
    """Return class name, text and traceback of an exception; the text has a remedy where a GPU's memory is full."""
    kind, text = type(error).__name__, str(error)
    if kind == _FULL_DEVICE:
        first = ". ".join(text.split(". ")[:2]).removesuffix(".")  # what follows is about torch's settings
        text = f"{first}; {_LESS_MEMORY}"
    return kind, text, "".join(traceback.format_exception(error))


def unforeseen(error: BaseException, what: str, peer: str | None = None) -> ClusterError:
    """Return what ends a run when `what` happened at `peer` because of an error that nobody has foreseen."""
    kind, text, trace = describe(error)
    remedy = f"; {MORE_FILES}" if lacks_files(error) else ""
    return ClusterError(f"{what} ({kind}: {text}){remedy}\n{trace}", peer=peer)
