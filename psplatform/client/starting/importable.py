"""What the job's objects refer to must be importable in every process of the run; else one sentence with the remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import Final

from distributed import Client

from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.runtime.references import Lack, References, find_lacking

_SEVERITY: Final = ("absent", "broken", "content", "silent")
"""What is told first, where Dask workers lack different things: what the others may only follow from."""

_MISSING: Final = re.compile(r"No module named '([\w.]+)'")
"""What Python says of it."""


async def require_importable(client: Client, references: References, addresses: Collection[str]) -> None:
    """Refuse a job whose processes cannot import what its objects refer to.

    Raises
    ------
    ConfigurationError
        Naming the module, the first Dask worker that lacks it, and how to bring it there.
    """
    wanted = sorted(set(chain(*references.values())))
    if not wanted:
        return
    found = await find_lacking(client, wanted, addresses)
    if found:
        raise refusal(found, references)


async def require_imported(client: Client, error: UserCodeError, addresses: Collection[str]) -> None:
    """Refuse a job whose code has failed in a Dask worker because it imports a module that only this process has.

    An import in the body of a function is not known before it is executed: it may be one that need not succeed.

    Raises
    ------
    ConfigurationError
        As `require_importable` does.
    """
    named = _MISSING.search(str(error.args[0])) if error.kind == "ModuleNotFoundError" else None
    if named is None or find_spec(named[1].partition(".")[0]) is None:
        return
    found = await find_lacking(client, [f"{named[1]}:"], addresses)
    if found:
        raise refusal(found, {})


def refusal(found: Mapping[str, tuple[Lack, ...]], references: References) -> ConfigurationError:
    """Return the error that names what Dask workers lack, by address; of several modules the first.

    What no field of the job refers to is imported by a function of the job's.
    """
    worst = min(chain(*found.values()), key=lambda one: (_SEVERITY.index(one.kind), one.module))
    alike = {address: [one for one in lacks if _blames(one, worst)] for address, lacks in sorted(found.items())}
    workers = [address for address, lacks in alike.items() if lacks]
    lacking = {one.reference for one in chain(*alike.values())}
    fields = [field for field, named in references.items() if lacking & set(named)]
    more = f" (and {len(workers) - 1} more)" if len(workers) > 1 else ""
    needs = f"{_listed(fields)} {'need' if len(fields) > 1 else 'needs'}" if fields else "a function of the job imports"
    text = f"the Dask worker {workers[0]}{more} {worst.reason}, which {needs}; {_remedy(worst, named=bool(fields))}"
    return ConfigurationError(text, field=fields[0] if fields else None)


def _blames(one: Lack, other: Lack) -> bool:
    return (one.kind, one.module) == (other.kind, other.module)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _remedy(lack: Lack, *, named: bool) -> str:
    package = lack.module.partition(".")[0]
    if lack.kind == "broken":
        return f"make `import {lack.module}` work in the environment of every worker"
    if lack.kind == "content":
        return f"install the same {package} in every worker's environment as here, and restart the workers"
    if lack.kind == "silent":
        return "see what that worker does in its log, or restart it"
    install = f"install {package} in every worker's environment"
    if package != lack.reference.partition(".")[0].partition(":")[0]:
        return install  # it is a module of the worker's own that wants it
    file = getattr(sys.modules.get(package), "__file__", None)
    single = file is not None and not hasattr(sys.modules[package], "__path__")
    upload = f', or send its file with client.upload_file("{file}")' if single else ""
    if not named:  # the statement is executed there, however the function has travelled
        return f"{install}{upload}"
    by_value = f"define it in your main script or call cloudpickle.register_pickle_by_value({package})"
    return f"{install}{upload}, or let it travel with the job: {by_value}"
