"""What a pickle refers to by name, and whether another process can import it.

A class or function that can be imported is pickled as its module and name; only what the main script or a notebook
defines travels by value.  The names are noted while the user's objects are pickled, which costs nothing.  So a process
can be asked for the names alone before anything large is sent to it, and nothing of the user's is called for that.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, Literal

import cloudpickle
from distributed import Client

from psplatform.runtime.timeouts import TIMEOUTS

_EVERYWHERE: Final = frozenset({"psplatform", "torch", "numpy", "cloudpickle"}) | sys.stdlib_module_names
"""Packages that every process has that can run this psplatform."""

StandIn = tuple[Callable[..., Any], tuple[Any, ...]]

References = Mapping[str, tuple[str, ...]]
"""By field of the job, what it refers to: ``module:name``, or ``module:`` for a module as such."""


class ReferencePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
    """Pickles as cloudpickle does; notes what it refers to by name (`references`) and what was left out (`stood_in`).

    Parameters
    ----------
    stand_ins
        What is pickled in place of objects, by their ids: a function and its arguments.
    """

    def __init__(self, file: io.BytesIO, stand_ins: Mapping[int, StandIn] | None = None) -> None:
        super().__init__(file)
        self.references: set[str] = set()
        self.stood_in: set[int] = set()
        self._stand_ins = stand_ins or {}

    def reducer_override(self, obj: Any) -> Any:
        """Return how cloudpickle pickles `obj`; ``NotImplemented`` is its word for a name, or for any other object."""
        if id(obj) in self._stand_ins:
            self.stood_in.add(id(obj))
            return self._stand_ins[id(obj)]
        if isinstance(obj, ModuleType):
            reduced = self.dispatch_table[ModuleType](obj)
            if len(reduced[1]) == 1:  # its name; a module that travels by value has its content beside that
                self._note(obj.__name__, "")
            return reduced
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and isinstance(obj, type | FunctionType | BuiltinFunctionType):
            self._note(obj.__module__, obj.__qualname__)
        return reduced

    def _note(self, module: object, name: str) -> None:
        # Methods of built-in objects have no module: they are pickled as their object and their name.
        if isinstance(module, str) and module.partition(".")[0] not in _EVERYWHERE:
            self.references.add(f"{module}:{name}")


def pickled(value: object, stand_ins: Mapping[int, StandIn] | None = None) -> tuple[bytes, tuple[str, ...]]:
    """Return `value` as cloudpickle pickles it, and what that refers to and not every process has.

    `stand_ins` are `ReferencePickler`'s.
    """
    with io.BytesIO() as file:
        pickler = ReferencePickler(file, stand_ins)
        pickler.dump(value)
        return file.getvalue(), tuple(sorted(pickler.references))


def reached(value: object, stand_ins: Mapping[int, StandIn]) -> set[int]:
    """Return the ids of those objects for which something would stand in what is pickled of `value`."""
    with io.BytesIO() as file:
        pickler = ReferencePickler(file, stand_ins)
        pickler.dump(value)
        return pickler.stood_in


@dataclass(frozen=True, slots=True)
class Lack:
    """A reference that a process cannot resolve.

    Attributes
    ----------
    kind
        A module is ``absent``, it is ``broken`` and cannot be imported, it has another ``content`` than here, or the
        process was ``silent``.
    module
        The module that is to blame, which may be one that the reference's own imports.
    reason
        What is wrong, in words that follow "it".
    """

    reference: str
    kind: Literal["absent", "broken", "content", "silent"]
    module: str
    reason: str


async def lacks_here(references: Collection[str]) -> tuple[Lack, ...]:
    """Import what is referred to, in a thread, and return what this process lacks of it."""
    return await asyncio.to_thread(find_lacks, references)


def find_lacks(references: Iterable[str]) -> tuple[Lack, ...]:
    """Import what is referred to, each module once, and return what this process lacks of it."""
    importlib.invalidate_caches()  # a module may have been brought here since this process began
    modules: dict[str, ModuleType | Lack] = {}
    found = []
    for reference in references:
        module, _, name = reference.partition(":")
        if module not in modules:
            modules[module] = _import(module)
        imported = modules[module]
        if isinstance(imported, Lack):
            found.append(Lack(reference, imported.kind, imported.module, imported.reason))
        elif not _has(imported, name):
            found.append(Lack(reference, "content", module, f"has a module {module} without {name}"))
    return tuple(found)


def _import(module: str) -> ModuleType | Lack:
    try:
        importlib.import_module(module)
        return sys.modules[module]
    except ModuleNotFoundError as error:
        if error.name:
            return Lack(module, "absent", error.name, f"has no module {error.name}")
        return Lack(module, "broken", module, _broken(module, error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever the user's module raises when it is imported
        return Lack(module, "broken", module, _broken(module, error))


def _broken(module: str, error: BaseException) -> str:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"cannot import the module {module} ({said})"


def _has(found: Any, name: str) -> bool:
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


async def find_lacking(
    client: Client, references: Iterable[str], addresses: Iterable[str], limit_s: float = TIMEOUTS.import_s
) -> dict[str, tuple[Lack, ...]]:
    """Return, for each Dask worker that lacks something of what is referred to, what that is; all are asked at once."""
    wanted, asked = tuple(references), sorted(set(addresses))
    answers = await asyncio.gather(*(_ask(client, wanted, address, limit_s) for address in asked))
    return {address: lacks for address, lacks in zip(asked, answers, strict=True) if lacks}


async def _ask(client: Client, references: tuple[str, ...], address: str, limit_s: float) -> tuple[Lack, ...]:
    try:
        async with asyncio.timeout(limit_s):
            found: Any = await client.run(lacks_here, references, workers=[address], on_error="return")
        answer = found.get(address, "it is gone")
    except TimeoutError:
        answer = f"no answer within {limit_s:g} s"
    if isinstance(answer, tuple):
        return answer
    said = " ".join(str(answer).split())
    module = references[0].partition(":")[0]
    return (Lack(references[0], "silent", module, f"did not say whether it can import {module} ({said})"),)
