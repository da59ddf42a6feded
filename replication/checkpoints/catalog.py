"""Which checkpoints a store holds, which of them are complete, and what is said of one that is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psplatform.errors import CheckpointError, StoreError
from psplatform.replication.checkpoints.manifest import MANIFEST, BrokenManifest, Manifest, Summary
from psplatform.replication.checkpoints.parts import FOLDER, folder_of
from psplatform.replication.stores.objects import ObjectFolder, Stored
from psplatform.untrusted.files import MANIFEST_BYTES

_REMEDY_WITHOUT_PREVIOUS: Final = "there is no complete one before it, so start the run again in another store"


@dataclass(frozen=True, slots=True)
class Held:
    """A checkpoint that was sealed, as it is found in its store without reading its objects.

    Attributes
    ----------
    state
        ``complete``, ``damaged``, or ``unreadable`` where it is of a newer format or the storage fails.
    flaw
        What is wrong with it, empty where it is complete.
    summary
        Of a complete one.
    """

    number: int
    state: str
    flaw: str = ""
    summary: Summary | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return number, version, time, bytes, state and flaw, ``None`` for what is not known."""
        found = self.summary
        cut = (None, None, None) if found is None else (found.version, found.time_s, found.size_bytes)
        known = dict(zip(("version", "time", "bytes"), cut, strict=True))
        return {"number": self.number, **known, "state": self.state, "flaw": self.flaw}


class Catalog:
    """The checkpoints of one store.

    Raises
    ------
    StoreError
        By every method, when the storage fails or a checkpoint is of a newer format.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self.folder = ObjectFolder(store, FOLDER)

    def numbers(self) -> list[int]:
        """Return the numbers of all that was ever begun and not removed, complete or not, in order."""
        return sorted(int(name) for name in self.folder.folders() if name.isdecimal() and name == folder_of(int(name)))

    def manifest_bytes(self, number: int) -> bytes | None:
        """Return the manifest as it is stored, or ``None`` where the checkpoint was not sealed."""
        return self.folder.get(f"{folder_of(number)}/{MANIFEST}", MANIFEST_BYTES)

    def manifest(self, number: int, data: bytes) -> Manifest:
        """Return the manifest that these bytes are, once it is whole and all that it names is there.

        Raises
        ------
        CheckpointError
            If the checkpoint is damaged, as far as that can be seen without reading the objects.
        """
        found = self.examined(number, data)
        if not isinstance(found, Manifest):
            raise self.damaged(number, *found)
        return found

    def complete(self, number: int) -> Manifest | None:
        """Return the manifest of a checkpoint, or ``None`` if it is not complete."""
        data = self.manifest_bytes(number)
        found = None if data is None else self.examined(number, data)
        return found if isinstance(found, Manifest) else None

    def held(self, number: int) -> Held | None:
        """Return a checkpoint as it is found, whatever that is, or ``None`` if it was not sealed or is removed."""
        try:
            data = self.manifest_bytes(number)
            found = None if data is None else self.examined(number, data)
            if isinstance(found, Manifest):
                return Held(number, "complete", summary=found.summary)
            # One that is being pruned loses its manifest first.
            if found is None or self.manifest_bytes(number) is None:
                return None
        except StoreError as error:
            return Held(number, "unreadable", str(error))
        return Held(number, "damaged", "{}: {}".format(*found))

    def read(self, number: int, objects: Sequence[Stored]) -> Iterator[bytes]:
        """Yield the bytes of objects of a checkpoint, in order.

        Raises
        ------
        CheckpointError
            If they are not those that were written.
        """
        for stored, data in self.found(number, objects):
            flaw = stored.flaw_of(data)
            if data is None or flaw is not None:
                raise self.damaged(number, stored.path, str(flaw))
            yield data

    def found(self, number: int, objects: Sequence[Stored]) -> Iterator[tuple[Stored, bytes | None]]:
        """Yield objects of a checkpoint with the bytes that are there now, whatever they are."""
        folder = folder_of(number)
        data = self.folder.get_all(f"{folder}/{stored.path}" for stored in objects)
        return zip(objects, data, strict=True)

    def damaged(self, number: int, path: str, flaw: str) -> CheckpointError:
        """Return the error that names the object at fault and the checkpoint to go back to."""
        previous = self.previous(number)
        remedy = _REMEDY_WITHOUT_PREVIOUS
        if previous is not None:
            remedy = f"recover from checkpoint {previous}, the last complete one before it"
        text = f"checkpoint {number} of {self.store} is damaged ({path}: {flaw}); {remedy}"
        return CheckpointError(text, store=self.store, number=number, previous=previous)

    def previous(self, number: int) -> int | None:
        """Return the number of the last complete checkpoint before one, as far as the storage tells."""
        try:
            earlier = [candidate for candidate in self.numbers() if candidate < number]
            return next((candidate for candidate in reversed(earlier) if self.complete(candidate)), None)
        except StoreError:
            return None  # Said while another failure is reported, which must not be hidden by this one.

    def examined(self, number: int, data: bytes) -> Manifest | tuple[str, str]:
        """Return the manifest that these bytes are, or the object at fault and what is wrong with it."""
        try:
            manifest = Manifest.from_bytes(data, self.store)
        except BrokenManifest as error:
            return MANIFEST, str(error)
        if manifest.number != number:
            return MANIFEST, f"it is that of checkpoint {manifest.number}"
        sizes = self.folder.sizes(folder_of(number))
        return manifest.flaw_of({path.partition("/")[2]: size for path, size in sizes.items()}) or manifest
