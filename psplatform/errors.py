"""The errors psplatform raises, branching by what the catcher can do.

::

    PsplatformError
    ├── ConfigurationError     mend the job, the call or the environment, then start again
    │   └── StoreError         mend or change the place where the run persists
    │       └── CheckpointError    go back to an earlier checkpoint
    ├── ClusterError           processes were lost or stayed silent; the store keeps what was reached
    ├── UserCodeError          the model, loss, step, data or task raised; carries its traceback
    │   └── ProcessDied            the process that ran it ended meanwhile: by its own doing, or for want of memory
    ├── DivergedError          training produced no finite gradient any more
    │   └── BadBatchError      because of the data: mend or remove the samples named
    └── ProtocolError          a peer sent what the protocol does not allow

    InvariantViolation         our bug: a promise of the platform does not hold

Every message is one sentence that ends with the remedy.  The data behind it are attributes, and every error survives
pickling, because errors travel between Dask processes.
"""

from __future__ import annotations

import errno
import inspect
from typing import Any, Final, TypeVar

MORE_FILES: Final = "raise the limit of open files with `ulimit -n 1024` where its process is started"
"""What to do where `lacks_files` holds."""

_CAUSES: Final = 8
"""Errors that are looked at, each the cause of the one before."""

_Kind = TypeVar("_Kind", bound=Exception)


def _rebuild(kind: type[_Kind], args: tuple[Any, ...], state: dict[str, Any]) -> _Kind:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class _Portable(Exception):
    """An exception whose keyword attributes survive pickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class PsplatformError(_Portable):
    """Base of all errors that psplatform raises on purpose."""


class ConfigurationError(PsplatformError):
    """The job, the call or the environment must change before a run can start.

    Attributes
    ----------
    field
        Name of the offending field or option, or ``None`` where no single one is to blame.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class StoreError(ConfigurationError):
    """The store cannot be used as asked: it is foreign, occupied, read-only, damaged or out of a worker's sight."""

    def __init__(self, message: str, *, store: str) -> None:
        super().__init__(message, field="store")
        self.store = store


class CheckpointError(StoreError):
    """A checkpoint is damaged or not complete.

    Attributes
    ----------
    number
        The checkpoint's number.
    previous
        Number of the last complete checkpoint before it, or ``None`` where there is none.
    """

    def __init__(self, message: str, *, store: str, number: int, previous: int | None) -> None:
        super().__init__(message, store=store)
        self.number = number
        self.previous = previous


class ClusterError(PsplatformError):
    """Processes the run needs are gone, silent or out of reach.

    Attributes
    ----------
    peer
        Address of the process that was waited for, or ``None`` where several are missing.
    """

    def __init__(self, message: str, *, peer: str | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class UserCodeError(PsplatformError):
    """The user's model, loss, step, data or task raised; the run stopped with the user's own traceback.

    Attributes
    ----------
    kind
        Class name of the user's exception.
    user_traceback
        Its traceback as text, as the raising process saw it.
    """

    def __init__(self, message: str, *, kind: str, user_traceback: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        return f"{self.args[0]}\n{self.user_traceback}" if self.user_traceback else str(self.args[0])


class ProcessDied(UserCodeError):
    """A process ended while it ran the user's model, loss, step, data or task: nothing was left that could raise.

    Its `kind` is the signal's name or ``exit code N``; there is no traceback.

    Attributes
    ----------
    peer
        Address of the Dask worker that the process was.
    pid
        Its process id, or ``None`` where that is not known.
    code
        Its exit code, negative for the signal that killed it; ``None`` where nothing tells.
    """

    def __init__(self, message: str, *, kind: str, peer: str, pid: int | None, code: int | None) -> None:
        super().__init__(message, kind=kind, user_traceback="")
        self.peer = peer
        self.pid = pid
        self.code = code


class DivergedError(PsplatformError):
    """A whole round of gradients was not finite; the store keeps everything up to there.

    Attributes
    ----------
    slot, version, loss
        The worker whose gradient came last, the version it was computed on and the loss it reported.
    """

    def __init__(self, message: str, *, slot: int, version: int, loss: float) -> None:
        super().__init__(message)
        self.slot = slot
        self.version = version
        self.loss = loss


class BadBatchError(DivergedError):
    """Gradients were not finite because of samples, which are named.

    Attributes
    ----------
    samples
        Indices in the data set, the first ones.
    tensor
        What is not finite, in words; "" where that is not known.
    """

    def __init__(
        self, message: str, *, slot: int, version: int, loss: float, samples: tuple[int, ...], tensor: str
    ) -> None:
        super().__init__(message, slot=slot, version=version, loss=loss)
        self.samples = samples
        self.tensor = tensor


class ProtocolError(PsplatformError):
    """A peer sent what the protocol does not allow."""


class InvariantViolation(AssertionError):
    """A promise of psplatform does not hold: a bug in psplatform, please report it."""


def lacks_files(error: BaseException | None) -> bool:
    """Whether an error came of this process, or its host, having as many files open as it may."""
    for _ in range(_CAUSES):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def to_plain(error: PsplatformError) -> dict[str, Any]:
    """Return class, message and attributes of an error as plain values, for stores and other programs."""
    return {"class": type(error).__name__, "message": str(error.args[0]), "attributes": dict(error.__dict__)}


def from_plain(plain: Any) -> PsplatformError:
    """Return the error that `to_plain` described; a `ClusterError` where this version does not know what it is."""
    described = plain if isinstance(plain, dict) else {}
    name, attributes = described.get("class"), described.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    found = globals().get(name) if isinstance(name, str) else None
    kind = found if isinstance(found, type) and issubclass(found, PsplatformError) else ClusterError
    message = str(described.get("message", "an error of no known kind"))
    if not _attributes_of(kind) <= attributes.keys() or not all(isinstance(one, str) for one in attributes):
        return ClusterError(message)
    return _rebuild(kind, (message,), attributes)


def _attributes_of(kind: type[PsplatformError]) -> set[str]:
    """Return the names of what an error of a class needs to be printed."""
    given = inspect.signature(kind).parameters.values()
    return {one.name for one in given if one.kind is one.KEYWORD_ONLY and one.default is one.empty}
