"""Reading every byte of a store's checkpoints, one object after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from psplatform.errors import CheckpointError, StoreError
from psplatform.replication.checkpoints.catalog import Catalog
from psplatform.replication.checkpoints.checkpoint import Checkpoint
from psplatform.replication.checkpoints.manifest import Manifest

COMPLETE: Final = "complete"
DAMAGED: Final = "damaged"
INCOMPLETE: Final = "incomplete"
UNREADABLE: Final = "unreadable"
MISSING: Final = "missing"

_UNSEALED: Final = "it has no manifest, and the log does not say that it was ever sealed"


@dataclass(frozen=True, slots=True)
class Verified:
    """A checkpoint of which every byte was read.

    Attributes
    ----------
    state
        ``complete``, ``damaged``, ``incomplete`` where it has no manifest, ``unreadable`` where it is of a newer format
        or the storage fails, or ``missing``, which its log tells.
    flaw
        What is wrong with it, empty where it is complete.
    version
        Of a complete one.
    bytes
        How many were read and found as they were written.
    """

    number: int
    state: str
    flaw: str = ""
    version: int | None = None
    bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Return the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


def verified_checkpoints(store: str) -> Iterator[Verified]:
    """Yield what each checkpoint of a store is once all of it was read; what is removed meanwhile is left out.

    Raises
    ------
    StoreError
        If the checkpoints cannot be listed.
    """
    catalog = Catalog(store)
    for name in catalog.folder.links():
        if name.isdecimal():
            yield Verified(
                int(name), UNREADABLE, "a link is in its place, and what a store holds must lie in the store"
            )
    for number in catalog.numbers():
        try:
            data = catalog.manifest_bytes(number)
            if data is None:
                if catalog.folder.sizes(f"{number:08d}"):
                    yield Verified(number, INCOMPLETE, _UNSEALED)
                continue
            found = catalog.examined(number, data)
            verified = _read(catalog, found) if isinstance(found, Manifest) else _damaged(number, [found])
            if verified.state == COMPLETE or catalog.manifest_bytes(number) is not None:  # else it was pruned just now
                yield verified
        except StoreError as error:
            yield Verified(number, UNREADABLE, str(error))


def sealed_numbers(store: str) -> list[int]:
    """Return the numbers of the checkpoints that have a manifest, in order, be it damaged or unreadable.

    Raises
    ------
    StoreError
        If they cannot be listed.
    """
    catalog = Catalog(store)
    return [number for number in catalog.numbers() if _is_sealed(catalog, number)]


def _is_sealed(catalog: Catalog, number: int) -> bool:
    try:
        return catalog.manifest_bytes(number) is not None
    except StoreError:
        return True


def _read(catalog: Catalog, manifest: Manifest) -> Verified:
    flaws: list[tuple[str, str]] = []
    size = 0
    for stored, data in catalog.found(manifest.number, list(manifest.objects.values())):
        if (flaw := stored.flaw_of(data)) is not None:
            flaws.append((stored.path, flaw))
        else:
            size += stored.size
    if not flaws:
        try:
            Checkpoint(catalog, manifest)
        except CheckpointError as error:
            return Verified(manifest.number, DAMAGED, str(error), bytes=size)
        return Verified(manifest.number, COMPLETE, "", manifest.summary.version, size)
    return _damaged(manifest.number, flaws, size)


def _damaged(number: int, flaws: list[tuple[str, str]], size: int = 0) -> Verified:
    more = f", and {len(flaws) - 1} more of its objects" if len(flaws) > 1 else ""
    return Verified(number, DAMAGED, "{}: {}".format(*flaws[0]) + more, bytes=size)
