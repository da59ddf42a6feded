"""The checkpoints of a store: which there are, the one to go on from, and which to keep.

Below ``checkpoints/`` each has a folder by its number::

    00000012/
      zarr.json                   a Zarr group; its attributes name number, version and positions
      model/<name>                an array per parameter and buffer, in the model's shape
      optimizer/<slot>/<name>     an array per slot of the optimiser and parameter
      state.msgpack               the coordinator's state and each shard's, as plain values
      manifest.jsonl              names all of the above with length and checksum; written last
      fragments/                  while it is being written

It is written by `parts` and `sealing`.
"""

from __future__ import annotations

from collections.abc import Iterator

from psplatform.errors import CheckpointError, StoreError
from psplatform.replication.checkpoints.catalog import Catalog, Held
from psplatform.replication.checkpoints.checkpoint import Checkpoint
from psplatform.replication.checkpoints.manifest import MANIFEST, Summary
from psplatform.replication.checkpoints.parts import folder_of
from psplatform.replication.stores.store import describe_run


def checkpoints_of(store: str) -> list[Summary]:
    """Return the complete checkpoints of a store in short, in order; their arrays are not read.

    Raises
    ------
    StoreError
        If there is no run, its storage fails, or a checkpoint is of a newer format.
    """
    catalog = Catalog(store)
    found = [manifest.summary for number in catalog.numbers() if (manifest := catalog.complete(number))]
    if not found:
        describe_run(store)
    return found


def held_checkpoints(store: str) -> list[Held]:
    """Return every checkpoint of a store that was sealed, in order, be it damaged or of a newer format.

    Only manifests are read, and the lengths of objects looked at: a byte that rotted is found when it is read.

    Raises
    ------
    StoreError
        If the checkpoints cannot be listed.
    """
    catalog = Catalog(store)
    return [held for number in catalog.numbers() if (held := catalog.held(number))]


def next_number(store: str) -> int:
    """Return the number of the next checkpoint: above all that were ever begun and not removed."""
    return max(Catalog(store).numbers(), default=0) + 1


def load_checkpoint(store: str, number: int | None = None) -> Checkpoint:
    """Return a checkpoint, of that number or the newest that was sealed; its arrays are verified when they are read.

    Raises
    ------
    CheckpointError
        If it is damaged, or there is none of that number; names the one to go back to.
    StoreError
        If there is no run, no checkpoint, or one of a newer format, or if the storage fails.
    """
    catalog = Catalog(store)
    if number is None:
        return _opened(catalog, *_newest(catalog))
    data = catalog.manifest_bytes(number)
    if data is None:
        held = ", ".join(str(summary.number) for summary in checkpoints_of(store)) or "none"
        text = f"{store} holds no complete checkpoint {number}; choose one of those it holds: {held}"
        raise CheckpointError(text, store=store, number=number, previous=catalog.previous(number))
    return _opened(catalog, number, data)


def newest_whole(store: str) -> Checkpoint:
    """Return the newest checkpoint of which every byte was read and found as it was written.

    Raises
    ------
    CheckpointError
        If there are checkpoints, but every one is damaged.
    StoreError
        If there is no run, no checkpoint, or one of a newer format, or if the storage fails.
    """
    catalog = Catalog(store)
    first: CheckpointError | None = None
    for number, data in _sealed(catalog):
        try:
            checkpoint = _opened(catalog, number, data)
            checkpoint.verify()
        except CheckpointError as error:
            first = first or error
        else:
            return checkpoint
    raise first or _nothing(store)


def prune(store: str, keep: int, *, writing: int | None) -> list[int]:
    """Remove all but the newest `keep` complete checkpoints and what unfinished ones left; return their numbers.

    What is damaged but newer than one that is kept stays for inspection.  An old checkpoint loses its manifest first,
    so that at no time half of one is taken for a whole.

    Parameters
    ----------
    keep
        At least 1.
    writing
        The lowest number that is being written now: it and all above it are left alone.  ``None`` if none is.

    Raises
    ------
    StoreError
        If the storage fails, or a checkpoint is of a newer format; then nothing was removed.
    """
    if keep < 1:
        raise ValueError(f"at least one checkpoint must be kept, not {keep}")
    catalog = Catalog(store)
    numbers = [number for number in catalog.numbers() if writing is None or number < writing]
    sealed = [number for number in numbers if catalog.manifest_bytes(number) is not None]
    kept = [number for number in catalog.numbers() if catalog.complete(number)][-keep:]
    removed = [number for number in numbers if number not in sealed or number < min(kept, default=0)]
    for number in removed:
        catalog.folder.remove(f"{folder_of(number)}/{MANIFEST}")
        catalog.folder.remove(folder_of(number))
    for number in set(numbers) & set(kept):
        catalog.folder.remove(f"{folder_of(number)}/fragments")
    return removed


def discard(store: str, number: int) -> None:
    """Remove what was written of a checkpoint that was given up; one that has a manifest is left alone.

    Nobody may be sealing it.  What a writer that was given up puts there later goes with the next `prune`.

    Raises
    ------
    StoreError
        If the storage fails; then some of it may be left.
    """
    catalog = Catalog(store)
    if catalog.manifest_bytes(number) is None:
        catalog.folder.remove(folder_of(number))


def discard_unsealed(store: str) -> list[int]:
    """Remove what was written of every checkpoint that was never sealed; return their numbers.

    Only for a run that is over: nobody may be writing one, or sealing it.

    Raises
    ------
    StoreError
        If the storage fails; then some of them may be left.
    """
    catalog = Catalog(store)
    unsealed = [number for number in catalog.numbers() if catalog.manifest_bytes(number) is None]
    for number in unsealed:
        catalog.folder.remove(folder_of(number))
    return unsealed


def _opened(catalog: Catalog, number: int, data: bytes) -> Checkpoint:
    return Checkpoint(catalog, catalog.manifest(number, data))


def _sealed(catalog: Catalog) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and manifests, newest first, of all that have one, be it damaged."""
    for number in reversed(catalog.numbers()):
        data = catalog.manifest_bytes(number)
        if data is not None:
            yield number, data


def _newest(catalog: Catalog) -> tuple[int, bytes]:
    found = next(_sealed(catalog), None)
    if found is None:
        raise _nothing(catalog.store)
    return found


def _nothing(store: str) -> StoreError:
    """Return what is to be said of a store without checkpoints; of one without a run, that is raised."""
    describe_run(store)
    return StoreError(f"{store} holds no complete checkpoint; start the run again in another store", store=store)
