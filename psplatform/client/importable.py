"""What the job's objects refer to must be importable in every process of the run; else one sentence with the remedy."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Final

from distributed import Client

from psplatform.errors import ConfigurationError
from psplatform.runtime.references import Lack, References, find_lacking

_SEVERITY: Final = ("absent", "broken", "content", "silent")
"""What is told first, where Dask workers lack different things: what the others may only follow from."""


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


def refusal(found: Mapping[str, tuple[Lack, ...]], references: References) -> ConfigurationError:
    """Return the error that names what Dask workers lack, by address; of several modules the first."""
    worst = min(chain(*found.values()), key=lambda one: (_SEVERITY.index(one.kind), one.module))
    alike = {address: [one for one in lacks if _blames(one, worst)] for address, lacks in sorted(found.items())}
    workers = [address for address, lacks in alike.items() if lacks]
    lacking = {one.reference for one in chain(*alike.values())}
    fields = [field for field, named in references.items() if lacking & set(named)]
    more = f" (and {len(workers) - 1} more)" if len(workers) > 1 else ""
    needed = f"which {_listed(fields)} {'need' if len(fields) > 1 else 'needs'}"
    text = f"the Dask worker {workers[0]}{more} {worst.reason}, {needed}; {_remedy(worst)}"
    return ConfigurationError(text, field=fields[0])


def _blames(one: Lack, other: Lack) -> bool:
    return (one.kind, one.module) == (other.kind, other.module)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _remedy(lack: Lack) -> str:
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
    by_value = f"define it in your main script or call cloudpickle.register_pickle_by_value({package})"
    return f"{install}{upload}, or let it travel with the job: {by_value}"
