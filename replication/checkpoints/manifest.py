"""The manifest of a checkpoint: the one object that makes it exist.

It is written last, in two lines: the format with the checksum of the second line, and that line, which names every
object with its length and checksum.  So a part of a manifest is no manifest, and a checkpoint is complete if and only
if its manifest is whole and every object it names is there as it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psplatform.errors import ConfigurationError, StoreError
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.stores.checksums import fingerprint
from psplatform.replication.stores.objects import OBJECT_BYTES, Stored
from psplatform.tensors.layout import ITEM_BYTES
from psplatform.untrusted.checks import are_counts, is_count, is_number
from psplatform.untrusted.values import from_json

MANIFEST: Final = "manifest.jsonl"
STATE: Final = "state.msgpack"
_METADATA: Final = "zarr.json"
_LATEST_S: Final = 1e11
"""Unix time of the year 5138; later ones are no dates."""
_MOST_SLOTS: Final = 64
_MOST_SHARDS: Final = 1 << 20
_MOST_AXES: Final = 64
FORMAT: Final = 3
"""Since 2, the checksum of an object names its kind; since 3, that may be CRC-32C."""


class BrokenManifest(ValueError):
    """These bytes are no whole manifest; the message says in a few words why."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A complete checkpoint in short.

    Attributes
    ----------
    positions, versions
        Of each shard: where its order of commits was cut, and the version of its state.
    time_s
        When it was cut, on the clock of the coordinator that sealed it.
    size_bytes
        Length of all its objects but the manifest.
    """

    number: int
    positions: tuple[int, ...]
    versions: tuple[int, ...]
    time_s: float
    size_bytes: int

    @property
    def version(self) -> int:
        """The version of the whole model: that of its oldest shard."""
        return min(self.versions)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of."""

    number: int
    positions: tuple[int, ...]
    versions: tuple[int, ...]
    time_s: float
    contents: Contents
    objects: Mapping[str, Stored]

    @property
    def summary(self) -> Summary:
        """The checkpoint in short."""
        size_bytes = sum(stored.size for stored in self.objects.values())
        return Summary(self.number, self.positions, self.versions, self.time_s, size_bytes)

    def flaw_of(self, sizes: Mapping[str, int]) -> tuple[str, str] | None:
        """Name an object that the folder does not hold in its full length, and what is wrong with it."""
        for path, stored in self.objects.items():
            if path not in sizes:
                return path, "it is missing"
            if sizes[path] != stored.size:
                return path, f"it has {sizes[path]} bytes instead of {stored.size}"
        return None

    def to_bytes(self) -> bytes:
        """Return the manifest as it is stored."""
        body = {
            "number": self.number,
            "positions": self.positions,
            "versions": self.versions,
            "time_s": self.time_s,
            **self.contents.to_plain(),
            "objects": {path: [stored.size, stored.digest] for path, stored in sorted(self.objects.items())},
        }
        line = json.dumps(body).encode()
        head = json.dumps({"psplatform_checkpoint": FORMAT, "blake2b": _seal(FORMAT, line)}).encode()
        return head + b"\n" + line + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, store: str) -> Manifest:
        """Return the manifest that `to_bytes` described.

        Raises
        ------
        BrokenManifest
            If the bytes are not all of a manifest, or have changed.
        StoreError
            If they are a whole manifest of a newer format.
        """
        line, format_ = _opened(data)
        if format_ > FORMAT:
            text = (
                f"a checkpoint of {store} has format {format_}; this psplatform reads formats up to {FORMAT}, update it"
            )
            raise StoreError(text, store=store)
        return _made(line)


def _made(line: bytes) -> Manifest:
    """Return the manifest that the second line describes.

    Anybody who may write to the store can make one whose checksum is right: what it says must fit together before
    anything is allocated for it, or read by the names in it.
    """
    try:
        body = from_json(line)
    except ValueError as error:
        raise BrokenManifest(f"it is not as a manifest is ({error})") from None
    if flaw := flaw_of(body):
        raise BrokenManifest(f"it is not as a manifest is ({flaw})")
    objects = {path: Stored(path, size, digest) for path, (size, digest) in body["objects"].items()}
    try:
        contents = Contents.from_plain(body)
    except ConfigurationError as error:
        raise BrokenManifest(f"it is not as a manifest is ({error})") from None
    positions, versions = tuple(body["positions"]), tuple(body["versions"])
    found = Manifest(body["number"], positions, versions, body["time_s"], contents, objects)
    if flaw := _mismatch(found):
        raise BrokenManifest(flaw)
    return found


def _mismatch(manifest: Manifest) -> str | None:
    """Return what is wrong where a manifest does not name the very objects that its arrays are made of."""
    arrays, groups = manifest.contents.arrays(), manifest.contents.groups()
    rest = [STATE, _METADATA, *(f"{path}/{_METADATA}" for path in [*groups, *(array.path for array in arrays)])]
    # Counted before they are named: a shape may promise more of them than there are atoms.
    if sum(array.grid.count for array in arrays) + len(rest) != len(manifest.objects):
        return f"it names {len(manifest.objects)} objects, and its arrays are of other shapes"
    for array in arrays:
        for chunk in array.grid.chunks(0, array.entry.size):
            stored = manifest.objects.get(f"{array.path}/{chunk.key}")
            if stored is None or stored.size != chunk.capacity * array.dtype.itemsize:
                return f"it names no object {array.path}/{chunk.key} of the size that the array's shape promises"
    lacking = next((path for path in rest if path not in manifest.objects), None)
    return f"it names no object {lacking}" if lacking is not None else None


def missing_arrays(contents: Contents, paths: Sequence[str]) -> list[str]:
    """Return the paths of the chunks that a checkpoint of these contents needs and these objects do not make up."""
    needed = {
        f"{array.path}/{chunk.key}" for array in contents.arrays() for chunk in array.grid.chunks(0, array.entry.size)
    }
    return sorted(needed - set(paths))


def flaw_of(body: Any) -> str | None:
    """Return what in a manifest's second line is not of its kind."""
    if not isinstance(body, dict):
        return "it is no table"
    layout, objects, slots = body.get("layout"), body.get("objects"), body.get("slots")
    checks = {
        "number": is_count(body.get("number")),
        "positions": are_counts(body.get("positions")),
        "versions": are_counts(body.get("versions")),
        "time_s": is_number(body.get("time_s")) and 0 <= body["time_s"] < _LATEST_S,
        "slots": isinstance(slots, list) and all(isinstance(one, str) for one in slots) and len(slots) <= _MOST_SLOTS,
        "chunk_bytes": is_count(body.get("chunk_bytes"), OBJECT_BYTES),
        "layout": _is_layout(layout),
        "objects": isinstance(objects, dict) and all(_is_stored(one) for one in objects.values()),
    }
    wrong = next((name for name, holds in checks.items() if not holds), None)
    if wrong is None and isinstance(layout, dict):
        counts = {len(body["positions"]), len(body["versions"]), layout["shards"]}
        return "it has positions of other shards than the layout" if len(counts) > 1 or 0 in counts else None
    return f"its {wrong}"


def _is_stored(plain: Any) -> bool:
    return isinstance(plain, list) and len(plain) == 2 and is_count(plain[0]) and isinstance(plain[1], str)


def _is_layout(plain: Any) -> bool:
    if not isinstance(plain, dict) or not isinstance(plain.get("regions"), list):
        return False
    sizes = is_count(plain.get("shards"), _MOST_SHARDS) and is_count(plain.get("block_elements"))
    return sizes and all(_is_region(one) for one in plain["regions"])


def _is_region(plain: Any) -> bool:
    if not isinstance(plain, dict) or not isinstance(plain.get("tensors"), list):
        return False
    known = plain.get("kind") in ("parameter", "buffer") and str(plain.get("dtype")) in ITEM_BYTES
    return known and all(_is_tensor(one) for one in plain["tensors"])


def _is_tensor(plain: Any) -> bool:
    if not isinstance(plain, list) or len(plain) != 3:
        return False
    name, shape, group = plain
    return isinstance(name, str) and are_counts(shape) and len(shape) <= _MOST_AXES and is_count(group)


def _seal(format_: int, line: bytes) -> str:
    # Every later format keeps this line and this checksum, so that a newer manifest can be told from a broken one.
    return fingerprint(b"%d\n" % format_ + line)


def _opened(data: bytes) -> tuple[bytes, int]:
    head, _, rest = data.partition(b"\n")
    line, end = rest[:-1], rest[-1:]
    try:
        fields = from_json(head)
        format_, digest = fields["psplatform_checkpoint"], fields["blake2b"]
        whole = end == b"\n" and type(format_) is int and digest == _seal(format_, line)
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise BrokenManifest("it does not begin as a manifest does") from error
    if not whole:
        raise BrokenManifest("its checksum differs")
    return line, format_
