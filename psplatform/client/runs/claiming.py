"""Claiming to go on with a run in the name of this process, so that others can tell when it has ended."""

from __future__ import annotations

import platform
import time
from contextlib import ExitStack
from typing import Any

from psplatform.errors import ConfigurationError
from psplatform.replication.stores.claims import Claimant, claim_recovery
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.comms.processes import ProcessId, is_running, this_process
from psplatform.runtime.program import Resume


def claim(store: str, resume: Resume, undo: ExitStack) -> dict[str, Any]:
    """Claim to go on with the run in a store, until `undo` is closed; return what the store says of the run.

    Raises
    ------
    ConfigurationError
        If another program has gone on with it, or may still do so.
    """
    held = claim_recovery(store, resume.succeeds, this_claimant(), after=resume.claims, is_gone=is_gone)
    undo.callback(held.release)
    before = describe_run(store)
    if before.get("term", 1) != resume.succeeds:  # whose claim was taken over had only ended, and not been killed
        text = f"another program has gone on with the run in {store} meanwhile; attach to it instead"
        raise ConfigurationError(text, field="store")
    held.require()
    return before


def this_claimant() -> Claimant | None:
    """Return this process as a claimant, ``None`` where the system does not tell processes apart."""
    process = this_process()
    if process is None:
        return None
    return Claimant(platform.node(), process.host, process.pid, process.began, time.time())


def is_gone(claimant: Claimant) -> bool:
    """Whether the process of a claimant has ended; of one on another host, or of another boot, nobody can tell."""
    here = this_process()
    if here is None or here.host != claimant.host:
        return False
    return not is_running(ProcessId(claimant.host, claimant.pid, claimant.began))
