"""The folder of a store that holds the log's segments: the one place of telemetry that touches storage.

A segment appears whole or not at all.  On local file systems it is written under a hidden name and renamed; elsewhere
it is one put, which object stores and fsspec's memory file system make visible in one piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from psplatform.errors import MORE_FILES, StoreError, lacks_files
from psplatform.telemetry.log.segments import Position
from psplatform.untrusted.files import SEGMENT_BYTES, inside, read_object


class SegmentFolder:
    """The segments under ``log/`` of a store.

    Parameters
    ----------
    store
        A local path or any URL that fsspec knows.

    Raises
    ------
    StoreError
        By every method, naming the store, when its storage fails.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        try:
            self._files, root = url_to_fs(store)
        except Exception as error:  # every driver has exceptions of its own
            message = f"nothing here can open the store {store} ({error}); give a local path or install its driver"
            raise StoreError(message, store=store) from error
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/log"

    def newest(self) -> list[Position]:
        """Return the last visible segment of each term, in order; none where the log does not exist yet.

        Segments of a term appear in the order of their numbers: one that is seen vouches for all below it, even where
        the listing, which is not atomic, missed them.
        """
        last: list[Position] = []
        known: set[str] = set()  # how the names of their terms begin
        # From the newest on: a long run has thousands and is looked at every second, so few may be taken apart.
        for name in sorted(self._names(), key=lambda name: (len(name), name), reverse=True):
            term = name.partition("-")[0]
            position = None if term in known else Position.of(name)
            if position is not None:
                last.append(position)
                known.add(term)
        return sorted(last)

    def positions(self) -> list[Position]:
        """Return every visible segment, in order."""
        return sorted(one for name in self._names() if (one := Position.of(name)) is not None)

    def _names(self) -> list[str]:
        with self._named_failure("list the log of"):
            try:
                if isinstance(self._files, LocalFileSystem):
                    inside(self._root, "log")
                    return os.listdir(self._folder)  # noqa: PTH208  names are all that is wanted, at a tenth of the time
                self._files.invalidate_cache(self._folder)
                return [name.rpartition("/")[2] for name in self._files.ls(self._folder, detail=False)]
            except FileNotFoundError:
                return []
            except NotADirectoryError:
                if not self._files.isfile(self._folder):
                    raise  # what should be the store is a file
                return []

    def read(self, position: Position) -> bytes:
        """Return the bytes of a segment."""
        with self._named_failure(f"read log/{position.name} of"):
            return read_object(self._files, self._root, f"log/{position.name}", SEGMENT_BYTES)

    def write(self, position: Position, data: bytes) -> None:
        """Make a segment visible; after a failure it may or may not be, so try again with the same bytes."""
        path = f"{self._folder}/{position.name}"
        with self._named_failure(f"write log/{position.name} to"):
            if isinstance(self._files, LocalFileSystem):
                _rename_into_place(Path(path), data)
            else:
                self._files.pipe_file(path, data)

    def clear(self, term: int) -> None:
        """Remove the segments of all terms up to `term`."""
        for name in self._names():
            position = Position.of(name)
            if position is not None and position.term <= term:
                with self._named_failure(f"remove log/{name} from"), suppress(FileNotFoundError):
                    self._files.rm_file(f"{self._folder}/{name}")

    @contextmanager
    def _named_failure(self, action: str) -> Iterator[None]:
        # Every fsspec driver has exceptions of its own, so this seam cannot list them.
        try:
            yield
        except Exception as error:
            remedy = MORE_FILES if lacks_files(error) else "free or mend it, or choose another store"
            message = f"cannot {action} the store {self._store} ({error}); {remedy}"
            raise StoreError(message, store=self._store) from error


def _rename_into_place(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # With the process in its name not even two writers that wrongly share a term can tear each other's files.
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        hidden.write_bytes(data)
        hidden.replace(path)
    except OSError:
        with suppress(OSError):
            hidden.unlink()
        raise
