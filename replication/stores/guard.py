"""Whose a store is, looked at before anything is written: it may be removed under a run, or be another run's by then.

A look costs one question to a local file system, and its answer is read anew only when the description has changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from fsspec.implementations.local import LocalFileSystem

from psplatform.errors import StoreError
from psplatform.replication.stores.group_file import make_group
from psplatform.replication.stores.objects import file_system_of
from psplatform.replication.stores.store import describe_run, new_description

_Made = TypeVar("_Made")
_Sign = tuple[int, ...]

RENEWED: Final = "renewed"
"""What the description of a store that was made anew says beside all else: when that was."""

_DESCRIPTION: Final = "zarr.json"
_REMOTE_LOOK_S: Final = 2.0
"""Between two looks at a store that is not local: each is a request or two."""


class StoreGone(StoreError):
    """Nothing describes a run in the store any more: it was removed."""


class StoreTaken(StoreError):
    """The store is another run's, or no store at all."""


class StoreGuard:
    """Sees that a store is a run's own.

    Parameters
    ----------
    store, run
        The run that is to be in the store.
    term
        The term under which that run began or was recovered: one that another program goes on with is another's.
    """

    def __init__(self, store: str, run: str, term: int) -> None:
        self._store, self._run, self._term = store, run, term
        self._files, root = file_system_of(store)
        self._root = root.rstrip("/")
        self._seen: _Sign | None = None
        self._looked_at = -_REMOTE_LOOK_S

    @property
    def _local(self) -> bool:
        return isinstance(self._files, LocalFileSystem)

    def check(self, written: str = "") -> None:
        """Return if the store is the run's own, and has the object `written` before, if one is named.

        Raises
        ------
        StoreGone
            If nothing is there, or what was written before is not.
        StoreTaken
            If another run is there.
        StoreError
            If the storage fails, or the description cannot be read.
        """
        if not self._local and time.monotonic() - self._looked_at < _REMOTE_LOOK_S:
            return
        sign = self._sign(_DESCRIPTION)
        if not sign or sign != self._seen:
            self._require_own()
        if written and self._sign(written) is None:
            raise StoreGone(f"{written} is missing in {self._store}: it was removed", store=self._store)
        self._seen, self._looked_at = sign, time.monotonic()

    def within(self, write: Callable[[], _Made]) -> _Made:
        """Return what `write` does to a store that is the run's own, before it and, if it fails, after it."""
        self.check()
        try:
            return write()
        except StoreError:
            self.check()  # which says more, where the store was removed meanwhile
            raise

    def renew(self, description: Mapping[str, Any]) -> None:
        """Describe the run anew where nothing does, in one piece and only if nobody else has done so meanwhile.

        Raises
        ------
        StoreTaken
            If another run is there.
        StoreError
            If the storage fails.
        """
        data = new_description(description)
        try:
            if self._local:
                make_group(Path(self._root), data)
            else:
                self._files.pipe_file(f"{self._root}/{_DESCRIPTION}", data, mode="create")
        except FileExistsError:
            pass
        except Exception as error:  # every fsspec driver has exceptions of its own
            if not self._sign(_DESCRIPTION):
                text = f"cannot make the store {self._store} anew ({error}); make it writable, or room for it"
                raise StoreError(text, store=self._store) from error
        self._require_own()

    def _sign(self, path: str) -> _Sign | None:
        """Return what changes when an object does, or nothing but that it is there; ``None`` if it is not."""
        place = f"{self._root}/{path}"
        try:
            if self._local:
                found = os.stat(place)  # noqa: PTH116  twice a second
                return found.st_ino, found.st_mtime_ns, found.st_size
            self._files.invalidate_cache()
            return () if self._files.exists(place) else None
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise StoreTaken(self._taken("is a file"), store=self._store) from None
        except Exception as error:  # every fsspec driver has exceptions of its own
            text = f"cannot look into the store {self._store} ({error}); see that it can be reached"
            raise StoreError(text, store=self._store) from error

    def _require_own(self) -> None:
        if self._sign(_DESCRIPTION) is None:
            raise StoreGone(f"the store {self._store} was removed while run {self._run} went on", store=self._store)
        description = describe_run(self._store)
        run, term = description.get("run"), description.get("term", 1)
        if run != self._run:
            raise StoreTaken(self._taken(f"holds run {run}"), store=self._store)
        if term != self._term:
            text = f"another program goes on with run {run} in {self._store} (term {term}, not {self._term})"
            raise StoreTaken(f"{text}; attach to that one", store=self._store)

    def _taken(self, what: str) -> str:
        return (
            f"{self._store} now {what}: it was removed while run {self._run} went on, of which nothing more is kept; "
            f"start {self._run} again in another store"
        )
