"""Sealing a checkpoint: torn chunks are made whole, everything is seen to be there, and the manifest is written last.

Until then nobody reads the checkpoint; from then on it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgpack
import numpy as np

from psplatform.errors import StoreError
from psplatform.replication.checkpoints.arrays import Array, Contents, group_metadata
from psplatform.replication.checkpoints.manifest import MANIFEST, STATE, BrokenManifest, Manifest, missing_arrays
from psplatform.replication.checkpoints.parts import FOLDER, Fragment, Part, folder_of
from psplatform.replication.stores.checksums import Data
from psplatform.replication.stores.objects import ObjectFolder

_METADATA: Final = "zarr.json"


def seal(
    store: str,
    number: int,
    parts: Iterable[Part],
    *,
    positions: Sequence[int],
    state: Mapping[str, Any],
    time_s: float,
) -> int:
    """Make the checkpoint of that number complete, and return its bytes.

    After a failure it is not complete, or, where the storage fails after it has written, is; in either case it may be
    tried again with the same arguments.

    Parameters
    ----------
    positions
        Where each shard's order of commits was to be cut.
    state
        The coordinator's state, of numbers, strings, bytes, lists and dicts; tuples come back as lists.
    time_s
        When the checkpoint was cut, for people to read.

    Raises
    ------
    StoreError
        If parts are missing or were cut elsewhere, if what they name is not there, or if the storage fails.
    """
    sealing = _Sealing(store, number, sorted(parts, key=lambda part: part.shard))
    sealing.check(tuple(positions))
    if (sealed := sealing.sealed()) is not None:
        return sealed.summary.size_bytes
    sealing.merge()
    sealing.describe(state)
    return sealing.finish(time_s).summary.size_bytes


class _Sealing:
    def __init__(self, store: str, number: int, parts: Sequence[Part]) -> None:
        self._number, self._parts = number, parts
        self._root = ObjectFolder(store, FOLDER)
        self._folder = ObjectFolder(store, f"{FOLDER}/{folder_of(number)}")
        self._objects = {stored.path: stored for part in parts for stored in part.objects}
        self._mine: list[str] = []
        self._positions = tuple(part.position for part in parts)
        self._versions = tuple(part.version for part in parts)
        self._contents = self._described()

    def _described(self) -> Contents:
        for part in self._parts:
            if part.contents is not None:
                return part.contents
        raise self._refused("it has no part of shard 0, which says what it holds")

    def check(self, positions: tuple[int, ...]) -> None:
        """Refuse parts that are not one of each shard, cut where it was to be cut."""
        shards = list(range(self._contents.layout.shards))
        found = [part.shard for part in self._parts]
        if found != shards:
            raise self._refused(f"it has parts of shards {found} where it needs {shards}")
        if self._positions != positions:
            raise self._refused(f"its parts were cut at {list(self._positions)} and not at {list(positions)}")
        if strangers := [part.number for part in self._parts if part.number != self._number]:
            raise self._refused(f"a part belongs to checkpoint {strangers[0]}")

    def sealed(self) -> Manifest | None:
        """Return the manifest if an earlier attempt got as far, and refuse a number that another cut has taken."""
        try:
            manifest = Manifest.from_bytes(self._folder.get(MANIFEST) or b"", self._folder.store)
        except BrokenManifest:
            return None
        if (manifest.positions, manifest.versions) != (self._positions, self._versions):
            raise self._refused(f"there is one already, cut at {list(manifest.positions)}")
        return manifest

    def merge(self) -> None:
        """Write the chunks that boundaries of shards cut, one at a time."""
        torn: dict[str, list[Fragment]] = {}
        for part in self._parts:
            for fragment in part.fragments:
                torn.setdefault(fragment.array, []).append(fragment)
        for array in self._contents.arrays():
            self._merge_array(array, sorted(torn.get(array.path, []), key=lambda fragment: fragment.start))
        if missing := missing_arrays(self._contents, list(self._objects)):
            raise self._refused(f"its parts lack {missing[0]}")

    def describe(self, state: Mapping[str, Any]) -> None:
        """Write the plain states, and last the metadata that lets Zarr find the arrays."""
        plain = {"coordinator": dict(state), "shards": [dict(part.plain) for part in self._parts]}
        try:
            packed = msgpack.packb(plain)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refused(f"a state in it is not made of plain values ({error})") from error
        known = {"number": self._number, "version": min(self._versions), "positions": list(self._positions)}
        self._put([(STATE, packed)])
        self._put((f"{array.path}/{_METADATA}", array.metadata()) for array in self._contents.arrays())
        self._put((f"{group}/{_METADATA}", group_metadata({})) for group in self._contents.groups())
        self._put([(_METADATA, group_metadata({"psplatform": known}))])
        self._root.show(_METADATA, group_metadata({}))

    def finish(self, time_s: float) -> Manifest:
        """See that everything is there, write the manifest, and remove what only served to get here."""
        manifest = Manifest(self._number, self._positions, self._versions, time_s, self._contents, self._objects)
        if flaw := manifest.flaw_of(self._folder.sizes("")):
            raise self._refused("{} is not as it was written ({})".format(*flaw))
        self._folder.flush(self._mine)
        self._folder.show(MANIFEST, manifest.to_bytes())
        if self._folder.get(MANIFEST) != manifest.to_bytes():
            raise self._refused(f"{MANIFEST} does not read as it was written")
        with suppress(StoreError):  # The checkpoint is complete, and `prune` comes by again.
            self._folder.remove("fragments")
        return manifest

    def _merge_array(self, array: Array, fragments: Sequence[Fragment]) -> None:
        while fragments:
            (chunk,) = array.grid.chunks(fragments[0].start, fragments[0].start + 1)
            values, end = np.empty(chunk.stop - chunk.start, array.dtype), chunk.start
            while fragments and fragments[0].start == end and fragments[0].stop <= chunk.stop:
                fragment, *fragments = fragments
                values[fragment.start - chunk.start : fragment.stop - chunk.start] = self._read(array, fragment)
                end = fragment.stop
            if end != chunk.stop:
                raise self._refused(f"its parts lack elements of {array.path}/{chunk.key}")
            self._put([(f"{array.path}/{chunk.key}", array.packed(values, chunk.capacity))])

    def _read(self, array: Array, fragment: Fragment) -> Any:
        data = self._folder.get(fragment.stored.path)
        if flaw := fragment.stored.flaw_of(data):
            raise self._refused(f"{fragment.stored.path} is not as it was written ({flaw})")
        return np.frombuffer(data or b"", array.dtype)

    def _put(self, objects: Iterable[tuple[str, Data]]) -> None:
        for stored in self._folder.put_all(objects):
            self._objects[stored.path] = stored
            self._mine.append(stored.path)

    def _refused(self, reason: str) -> StoreError:
        store = self._folder.store
        remedy = "those before it stay, take a new one"
        text = f"checkpoint {self._number} of {store} cannot be completed because {reason}; {remedy}"
        return StoreError(text, store=store)
