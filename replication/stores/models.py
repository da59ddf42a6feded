"""The models in a run's store: of its last version, and of the best one where the job keeps it.

::

    model/               a group of arrays by parameter name, with the version they are as attribute
    best/                the same of the best version; its attribute "whole" names the group

Arrays are named as those of a checkpoint: a name that no path can hold is encoded, and each stands in its array's
attributes.  They are written first and the group's attributes last, so that a model that says its version is whole.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from psplatform.core.quality import Watch
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.arrays import encoded
from psplatform.replication.stores.checksums import Checksum, Data, agrees, checksum
from psplatform.replication.stores.groups import Array, Group
from psplatform.replication.stores.store import KEY, READABLE, group_of, named_failure
from psplatform.untrusted.values import Refused

_BEST: Final = "best"
_SUMS: Final = "checksums"
_TRIES: Final = 5
"""To read a best model that others take the place of meanwhile."""


def save_model(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int) -> None:
    """Put named arrays into the store as the model of `version`, in place of the one before."""
    with named_failure(store, "write the model to"):
        _write_arrays(group_of(store, "r+").create_group("model", overwrite=True), arrays, version=version)


def save_best(store: str, arrays: Mapping[str, NDArray[Any]], *, version: int, watch: Watch, value: float) -> bool:
    """Put named arrays into the store as the model of the best version, unless it has one as good.

    The one before is there until this one is whole, and it stays where it is better than this one and was written
    meanwhile.  Return whether the store has the model of this version as the best.

    Parameters
    ----------
    watch, value
        What versions are compared by, and this one's value.
    """
    told = {"version": version, "metric": watch.metric, "value": repr(float(value))}
    with named_failure(store, "write the best model to"):
        root = group_of(store, "r+").require_group(_BEST)
        before = _best_of(root)
        if not _is_better(value, before, watch):
            return before is not None and _told(before) == told
        name = f"{version}-{uuid.uuid4().hex[:8]}"  # none that was there: its arrays may be read just now
        _write_arrays(root.create_group(name), arrays, **told)
        others = [other for other, _ in root.groups() if other != name]
        now = _best_of(group_of(store, "r").get(_BEST))
        if not _is_better(value, now, watch):  # an evaluator that took the place of this one was faster
            del root[name]
            return False
        _point_to(root, name)
        for other in others:
            with contextlib.suppress(KeyError, FileNotFoundError):
                del root[other]
        return True


def _told(group: Group) -> dict[str, Any]:
    return {name: group.attrs[name] for name in ("version", "metric", "value")}


def _is_better(value: float, before: Group | None, watch: Watch) -> bool:
    """Return whether a value is better than that of the version in `before`; those of other metrics do not count."""
    comparable = before is not None and before.attrs["metric"] == watch.metric
    return watch.is_better(value, float(str(before.attrs["value"])) if before is not None and comparable else None)


def load_model(store: str, *, best: bool = False) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the model's arrays by name, and its version; of the last version, or of the `best` one.

    Raises
    ------
    StoreError
        If the store holds no whole model.
    """
    with named_failure(store, "read the model of", READABLE):
        if not best:
            group = group_of(store, "r").get("model")
            if not isinstance(group, Group) or "version" not in group.attrs:
                raise StoreError(f"{store} holds no model yet; its run has not ended well", store=store)
            return _read_arrays(group)
        for _ in range(_TRIES):
            found = _best_of(group_of(store, "r").get(_BEST))
            if found is None:
                text = "no model of a best version: its job has no keep_best, or what it watches had no value yet"
                raise StoreError(f"{store} holds {text}; read the last version's", store=store)
            with contextlib.suppress(KeyError, FileNotFoundError):
                arrays = _read_arrays(found)
                now = _best_of(group_of(store, "r").get(_BEST))
                if now is not None and now.name == found.name:
                    return arrays  # else a better one has taken its place, and its arrays may have been removed
        raise StoreError(f"the best model of {store} was replaced while it was read; read it again", store=store)


def _read_arrays(group: Group) -> tuple[dict[str, NDArray[Any]], int]:
    found, sums = _arrays_of(group), _sums_of(group)
    arrays = {_name_of(path, found[path]): np.asarray(found[path][...]) for path in sorted(found)}
    for name, array in arrays.items():
        if sums is not None and not agrees(str(sums.get(name)), _bytes_of(array)):
            raise Refused(f"{name[:200]} is not as it was written")
    return arrays, int(str(group.attrs["version"]))


def _arrays_of(group: Group) -> dict[str, Array[Any]]:
    # Before names were encoded, one with a slash was a path of groups.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what else lies there, by names that may be anything
        return {path: array for path, array in group.members(max_depth=None) if isinstance(array, Array)}


def _sums_of(group: Group) -> dict[str, Any] | None:
    """Return the checksums of the arrays by name, ``None`` where they were written without."""
    found = group.attrs.get(_SUMS)
    return found if isinstance(found, dict) else None


def _bytes_of(array: NDArray[Any]) -> Data:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""


def _write_arrays(group: Group, arrays: Mapping[str, NDArray[Any]], **said: Any) -> None:
    sums = {}
    for name, array in arrays.items():
        known: dict[str, Any] = {KEY: {"name": name}}
        data = np.asarray(array, order="C")
        group.create_array(encoded(name), data=data, attributes=known)
        sums[name] = checksum(_bytes_of(data))
    group.attrs.update({_SUMS: sums, **said})


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """A saved model of which every byte was read.

    Attributes
    ----------
    state
        ``complete``, ``damaged``, ``incomplete`` where it does not say its version, or ``none``.
    flaw
        What is wrong with it, or what cannot be told of it.
    bytes
        Of its arrays.
    """

    state: str
    flaw: str = ""
    bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Return the fields."""
        return {name: getattr(self, name) for name in self.__slots__}


def verified_model(store: str, *, best: bool = False) -> VerifiedModel:
    """Return what the saved model is, of the last version or of the `best` one, once all of it was read."""
    try:
        with named_failure(store, "read the model of", READABLE):
            found = group_of(store, "r").get(_BEST if best else "model")
            group = _best_of(found) if best else found
            if not isinstance(group, Group):
                return VerifiedModel("none")
            if "version" not in group.attrs:
                return VerifiedModel("incomplete", "it does not say its version: it was not saved to its end")
            return _verified(group)
    except StoreError as error:
        return VerifiedModel("damaged", str(error))


def _verified(group: Group) -> VerifiedModel:
    found, sums, size = _arrays_of(group), _sums_of(group), 0
    names = {_name_of(path, array): array for path, array in found.items()}
    lacking = sorted((sums or {}).keys() - names.keys())
    if lacking:
        return VerifiedModel("damaged", f"{lacking[0][:200]} is missing")
    for name, array in sorted(names.items()):
        total = Checksum.like(str((sums or {}).get(name)))
        for part in _slabs(array):
            data = _bytes_of(part)
            total.add(data)
            size += len(data)
        if sums is not None and sums.get(name) != str(total):
            return VerifiedModel("damaged", f"{name[:200]} is not as it was written", size)
    untold = "" if sums is not None else "saved by a psplatform that noted no checksums: it can be read, and no more"
    return VerifiedModel("complete", untold, size)


def _slabs(array: Array[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array in parts, as many of its rows as a chunk has."""
    if not array.shape:
        yield np.asarray(array[...])
        return
    rows = array.chunks[0]
    for first in range(0, array.shape[0], rows):
        yield np.asarray(array[first : first + rows])


def _point_to(root: Group, name: str) -> None:
    root.attrs["whole"] = name


def _best_of(root: Any) -> Group | None:
    """Return the group of the best version's model, the last that was wholly written."""
    if not isinstance(root, Group) or "whole" not in root.attrs:
        return None
    group = root.get(str(root.attrs["whole"]))
    return group if isinstance(group, Group) and {"version", "metric", "value"} <= set(group.attrs) else None


def _name_of(path: str, array: Array[Any]) -> str:
    known = array.attrs.get(KEY)
    return str(known["name"]) if isinstance(known, dict) else path
