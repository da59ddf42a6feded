"""Messages to and from msgpack: each message type has a fixed code, nested messages included.

A code is part of the wire format: never reuse or reorder, only append.  Events travel inside of `LogEntry`; an error
that one of them carries travels as its class, text and attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgpack

from psplatform.core.protocol import effects, events, messages, place_messages
from psplatform.errors import ProtocolError, PsplatformError, from_plain, to_plain

_TYPES: Final[tuple[type, ...]] = (
    messages.Label,
    messages.BatchAssignment,
    messages.Join,
    messages.Welcome,
    messages.Release,
    messages.Abort,
    messages.Stop,
    messages.Announce,
    messages.Aborted,
    messages.Failed,
    messages.Leave,
    messages.Contribution,
    messages.Commit,
    messages.Proceed,
    messages.Gathered,
    messages.Applied,
    messages.Refused,
    messages.Pull,
    messages.Pulled,
    effects.Evaluate,
    effects.SaveModel,
    events.Evaluated,
    events.EvaluationFailed,
    events.ModelSaved,
    events.SaveFailed,
    messages.Promote,
    messages.Promoted,
    messages.Include,
    messages.Exclude,
    messages.InSync,
    messages.Transfer,
    messages.Replicated,
    messages.Outdated,
    messages.Unreachable,
    messages.Moved,
    messages.Written,
    messages.NotWritten,
    messages.Beat,
    messages.Lease,
    messages.StateRequest,
    messages.ServerState,
    messages.WorkerState,
    messages.LogEntry,
    messages.Acknowledged,
    messages.Retiring,
    messages.HandOver,
    messages.HandedOver,
    events.Begin,
    events.TimerFired,
    events.MemberLost,
    events.CopyLost,
    events.CopyReady,
    events.ProcessesChanged,
    events.NoCopy,
    events.RunFailed,
    events.RunBroken,
    events.StopRequested,
    events.EvaluationLost,
    events.CheckpointSealed,
    events.CheckpointFailed,
    messages.Past,
    events.CopyAwake,
    messages.Flaw,
    messages.Cut,
    events.MemberDied,
    events.EvaluatorDied,
    events.CopyMisplaced,
    place_messages.ActorAt,
    place_messages.CoordinatorAt,
    place_messages.ActorReleased,
    place_messages.Logged,
    place_messages.LogWritten,
    messages.Offer,
    messages.Route,
    messages.Drop,
    messages.Bundle,
    messages.Assemble,
    messages.Bundled,
    messages.Fetched,
    messages.Carried,
)
_ERROR_FIELDS: Final = {"class", "message", "attributes"}
_ERROR: Final = 127
_DEEPEST: Final = 5
"""Messages inside messages; foreign bytes that nest without end would exhaust the stack."""


def _reader(kind: type) -> Callable[[Any], Any]:
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda message: [getattr(message, name) for name in names]


_READERS: Final = {kind: (code, _reader(kind)) for code, kind in enumerate(_TYPES)}
"""The code of each message, and what reads all its fields at once, in their order."""


def encode(message: Any) -> bytes:
    """Return `message`, or a list of messages, as msgpack bytes."""
    return _pack(message)


def decode(data: bytes) -> Any:
    """Return what `encode` was given, lists as tuples.

    Raises
    ------
    ProtocolError
        If the bytes are not a message of this version of psplatform.
    """
    try:
        return _unpack(data, _DEEPEST)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"undecodable message ({error}); all processes must run the same psplatform") from error


_idle_packers: Final[list[msgpack.Packer]] = []
"""Making one takes longer than packing; one for each message inside of another and for each thread."""


def _pack(value: Any) -> bytes:
    try:
        packer = _idle_packers.pop()
    except IndexError:
        packer = msgpack.Packer(default=_to_extension)
    packed: bytes = packer.pack(value)  # one that raises is not used again
    _idle_packers.append(packer)
    return packed


def _to_extension(message: Any) -> msgpack.ExtType:
    kind = type(message)
    if kind in _READERS:
        code, read = _READERS[kind]
        return msgpack.ExtType(code, _pack(read(message)))
    if isinstance(message, PsplatformError):
        return msgpack.ExtType(_ERROR, msgpack.packb(to_plain(message)))
    raise ProtocolError(f"{kind.__name__} is not a message; only plain values and messages travel")


def _error_of(plain: Any) -> PsplatformError:
    # Of a store's, less is taken: but a message is made by the same psplatform.
    if not isinstance(plain, dict) or plain.keys() != _ERROR_FIELDS:
        raise ValueError("an error is a class, a message and attributes")
    return from_plain(plain)


def _unpack(data: bytes, depth: int) -> Any:
    return msgpack.unpackb(data, ext_hook=_HOOKS[depth], use_list=False)


def _from_extension(depth: int, code: int, packed: bytes) -> Any:
    if code == _ERROR and depth:
        return _error_of(_unpack(packed, 0))
    if not (0 <= code < len(_TYPES) and depth):
        raise ValueError(f"no message has the code {code} here")
    return _TYPES[code](*_unpack(packed, depth - 1))


_HOOKS: Final = tuple(partial(_from_extension, depth) for depth in range(_DEEPEST + 1))
"""What makes a message of its code and bytes, by how deep messages may nest there."""
