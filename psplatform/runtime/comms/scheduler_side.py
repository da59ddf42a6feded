"""What a run keeps on its scheduler beside tasks: a card that says where its coordinator is, and claimed numbers.

These functions run on the scheduler, which need not have torch: nothing here imports more than the standard library.
"""

from __future__ import annotations

import re
from typing import Any

from psplatform.runtime.comms.hosting import dataset_name


def show_card(dask_scheduler: Any, run: str, card: dict[str, Any]) -> None:
    """Let programs find the run's coordinator, unless that of a later term has been there before.

    The numbers of standbys of earlier terms are forgotten: one of them was claimed for this coordinator, so that none
    may be granted any more, and an unknown one is not.
    """
    known = dask_scheduler.task_metadata.get(dataset_name(run)) or {}
    if known.get("term", 0) <= card["term"]:
        dask_scheduler.task_metadata[dataset_name(run)] = card
        _forget_numbers(dask_scheduler, run, before=card["term"])


def take_card(dask_scheduler: Any, run: str, key: str) -> None:
    """Let nobody find the run at the coordinator of that key any more; another's card stays."""
    known = dask_scheduler.task_metadata.get(dataset_name(run)) or {}
    if known.get("key") == key:
        del dask_scheduler.task_metadata[dataset_name(run)]


def forget_run(dask_scheduler: Any, run: str) -> None:
    """Forget a run that is over: its card, the numbers of its standbys, and the name under which Dask published it.

    From then on none of the numbers is granted to anybody.
    """
    name = dataset_name(run)
    dask_scheduler.task_metadata.pop(name, None)
    publisher = dask_scheduler.clients.get(f"published-{name}")
    if publisher is not None and not publisher.wants_what:
        del dask_scheduler.clients[f"published-{name}"]
    _forget_numbers(dask_scheduler, run)


def _forget_numbers(dask_scheduler: Any, run: str, before: int | None = None) -> None:
    semaphores = dask_scheduler.extensions["semaphores"]
    of_run = re.compile(rf"{re.escape(dataset_name(run))}-(?:\d+-)?term-(\d+)-\d+")
    for number in list(semaphores.max_leases):
        found = of_run.fullmatch(str(number))
        if found and (before is None or int(found[1]) < before):
            semaphores.leases.pop(number, None)  # the claims themselves: Dask would warn that they were not given back
            semaphores.close(name=number)
