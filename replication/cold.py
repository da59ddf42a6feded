"""Cold replicas: a shard's state kept in the store instead of in a process that could take over at once.

For every epoch of the shard there are two places that are written in turn, each complete when its header is, which is
shown last and vouches for the rest::

    cold/00000001/shard-00000/00000002/     term in which the run began or was recovered, shard, epoch
      0.msgpack  1.msgpack                  headers: position, version, dedupe table, and checksums of the vectors
      0/<name>   1/<name>                   vectors as raw bytes

A server that was replaced and does not know it writes under its own epoch and spoils nothing.  A run that was recovered
begins with epoch 1 again: what it had kept before, perhaps further on and of other shards, is not read any more.

What nobody reads any more is removed by `ColdCopy.prune` as soon as there is a state of a later epoch or term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Past
from psplatform.core.protocol.wire import decode, encode
from psplatform.errors import ProtocolError, StoreError
from psplatform.replication.checkpoints.metadata import memory_bytes
from psplatform.replication.stores.checksums import fingerprint
from psplatform.replication.stores.objects import ObjectFolder, Stored
from psplatform.tensors.layout import ITEM_BYTES
from psplatform.untrusted.checks import are_counts, is_count
from psplatform.untrusted.values import from_msgpack

_PLACES: Final = 2


@dataclass(frozen=True, slots=True)
class ColdState:
    """What is kept of a shard.

    Attributes
    ----------
    vectors
        By the names of `psplatform.tensors.shard.Shard.state`.
    applied
        By slot, the last sequence applied.
    commits
        Steps that the optimiser has seen.
    past
        The last commits that the state contains: a copy made of it may be the last to know them.
    """

    epoch: int
    position: int
    version: int
    applied: Mapping[int, int]
    commits: int
    vectors: Mapping[str, NDArray[Any]] = field(repr=False)
    past: tuple[Past, ...] = ()


class ColdCopy:
    """The cold replica of one shard.

    Parameters
    ----------
    term
        The first coordinator's, since the run began or was recovered.

    Raises
    ------
    StoreError
        By every method, when the storage fails.
    """

    def __init__(self, store: str, shard: int, term: int) -> None:
        self._store, self._shard = store, shard
        self._term = f"{term:08d}"
        self._folder = ObjectFolder(store, f"cold/{self._term}/shard-{shard:05d}")
        self._next: dict[int, int] = {}

    def write(self, state: ColdState) -> int:
        """Keep a state; return its bytes.  After a failure the one before is kept."""
        place = self._next.get(state.epoch, 0)
        folder = f"{state.epoch:08d}"
        vectors = {name: np.ascontiguousarray(vector) for name, vector in state.vectors.items()}
        objects = ((f"{folder}/{place}/{name}", vector.tobytes()) for name, vector in vectors.items())
        stored = self._folder.put_all(objects)
        self._folder.flush([one.path for one in stored])
        header = {
            "position": state.position,
            "version": state.version,
            "applied": sorted(state.applied.items()),
            "commits": state.commits,
            "past": encode(list(state.past)),
            "vectors": [
                [name, str(vector.dtype), one.path, one.size, one.digest]
                for (name, vector), one in zip(vectors.items(), stored, strict=True)
            ],
        }
        self._folder.show(f"{folder}/{place}.msgpack", _sealed(header))
        self._next[state.epoch] = (place + 1) % _PLACES
        return sum(one.size for one in stored)

    def read(self) -> ColdState | None:
        """Return the newest state that is whole, of the highest epoch that has one; ``None`` where nothing was kept.

        Raises
        ------
        StoreError
            If something was kept, and all of it is damaged.
        """
        flaws: list[str] = []
        for folder in reversed([one for one in self._folder.folders() if one.isdecimal()]):
            headers = [self._header(f"{folder}/{place}.msgpack", flaws) for place in range(_PLACES)]
            for header in sorted((one for one in headers if one is not None), key=lambda one: -one["position"]):
                state = self._state(int(folder), header, flaws)
                if state is not None:
                    return state
        if flaws:
            text = f"the cold replica of shard {self._shard} in {self._store} is damaged ({flaws[0]})"
            raise StoreError(f"{text}; recover the run from a checkpoint", store=self._store)
        return None

    def prune(self, epoch: int) -> None:
        """Remove the shard's earlier epochs and, for the first shard, the earlier terms; a failure leaves some.

        Only when a state of `epoch` was written: it began after the server before it was replaced, and the term after
        the run was recovered, so nothing that is earlier may be read from then on.
        """
        for folder in self._folder.folders():
            if folder < f"{epoch:08d}":
                self._folder.remove(folder)
        if self._shard != 0:
            return  # one that removes what another removes stops half way
        terms = ObjectFolder(self._store, "cold")
        for folder in terms.folders():
            if folder < self._term:
                terms.remove(folder)

    def _header(self, path: str, flaws: list[str]) -> dict[str, Any] | None:
        data = self._folder.get(path)
        header = _opened(data, path.removesuffix(".msgpack")) if data is not None else None
        if data is not None and header is None:
            flaws.append(f"{path}: it is not as it was written")
        return header

    def _state(self, epoch: int, header: Mapping[str, Any], flaws: list[str]) -> ColdState | None:
        vectors = {}
        for name, dtype, *stored in header["vectors"]:
            data = self._folder.get(stored[0], memory_bytes())
            flaw = Stored(*stored).flaw_of(data)
            if flaw is not None or data is None:
                flaws.append(f"{stored[0]}: {flaw}")
                return None
            vectors[name] = np.frombuffer(data, dtype).copy()
        place = epoch, header["position"], header["version"]
        return ColdState(*place, dict(header["applied"]), header["commits"], vectors, header["past"])


def _sealed(header: Mapping[str, Any]) -> bytes:
    body: bytes = msgpack.packb(header)
    sealed: bytes = msgpack.packb([body, fingerprint(body)])
    return sealed


def _opened(data: bytes, place: str) -> dict[str, Any] | None:
    """Return the header of the state in a place, or ``None`` where it is torn or speaks of other places."""
    try:
        body, digest = from_msgpack(data)
        if not isinstance(body, bytes) or fingerprint(body) != digest:
            return None
        header: dict[str, Any] = from_msgpack(body)
        if not _is_header(header, place):
            return None
        past = decode(header["past"])
    except (ValueError, TypeError, ProtocolError):
        return None
    known = isinstance(past, tuple) and all(isinstance(one, Past) for one in past)
    return {**header, "past": past} if known else None


def _is_header(header: Any, place: str) -> bool:
    if not isinstance(header, dict) or not isinstance(header.get("past"), bytes):
        return False
    applied, vectors = header.get("applied"), header.get("vectors")
    counts = all(is_count(header.get(name)) for name in ("position", "version", "commits"))
    pairs = isinstance(applied, list) and all(are_counts(one) and len(one) == 2 for one in applied)
    return counts and pairs and isinstance(vectors, list) and all(_is_vector(one, place) for one in vectors)


def _is_vector(plain: Any, place: str) -> bool:
    """Whether this names a vector beside its header, of a size that its type divides."""
    if not isinstance(plain, list) or len(plain) != 5 or not all(isinstance(plain[at], str) for at in (0, 1, 2, 4)):
        return False
    name, dtype, path, size, _ = plain
    return dtype in _DTYPES and path == f"{place}/{name}" and is_count(size) and size % ITEM_BYTES[dtype] == 0


_DTYPES: Final = frozenset(ITEM_BYTES) - {"bfloat16"}  # which NumPy does not have
