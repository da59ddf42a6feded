"""The manifest of a checkpoint: the one object that makes it exist.

It is written last, in two lines: the format with the checksum of the second line, and that line, which names every
object with its length and checksum.  So a part of a manifest is no manifest, and a checkpoint is complete if and only
if its manifest is whole and every object it names is there as it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.errors import StoreError
from psplatform.replication.arrays import Contents
from psplatform.replication.objects import Stored, fingerprint

MANIFEST: Final = "manifest.jsonl"
STATE: Final = "state.msgpack"
FORMAT: Final = 2
"""Since 2, the checksum of an object names its kind."""


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
        When it was cut, on the clock of whoever sealed it.
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
        body = json.loads(line)
        objects = {path: Stored(path, size, digest) for path, (size, digest) in body["objects"].items()}
        positions, versions = tuple(body["positions"]), tuple(body["versions"])
        return cls(body["number"], positions, versions, body["time_s"], Contents.from_plain(body), objects)


def missing_arrays(contents: Contents, paths: Sequence[str]) -> list[str]:
    """Return the paths of the chunks that a checkpoint of these contents needs and these objects do not make up."""
    needed = {
        f"{array.path}/{chunk.key}" for array in contents.arrays() for chunk in array.grid.chunks(0, array.entry.size)
    }
    return sorted(needed - set(paths))


def _seal(format_: int, line: bytes) -> str:
    # Every later format keeps this line and this checksum, so that a newer manifest can be told from a broken one.
    return fingerprint(b"%d\n" % format_ + line)


def _opened(data: bytes) -> tuple[bytes, int]:
    head, _, rest = data.partition(b"\n")
    line, end = rest[:-1], rest[-1:]
    try:
        fields = json.loads(head)
        format_, digest = fields["psplatform_checkpoint"], fields["blake2b"]
        whole = end == b"\n" and digest == _seal(format_, line)
    except (ValueError, LookupError, TypeError) as error:
        raise BrokenManifest("it does not begin as a manifest does") from error
    if not whole:
        raise BrokenManifest("its checksum differs")
    return line, format_
