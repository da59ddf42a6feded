"""Where a first gradient is tried, so that the end of its process has a name.

On a cluster a gradient worker's process tries it: the data must be there, and the device.  Without one, this program
tries it by itself, while the cluster's processes are prepared: a debugger works, and a mistake shows before anything
is started.  Code that ends its process ends this program then; a process that waits for it prints what has happened.
"""

from __future__ import annotations

import contextlib
import faulthandler
import subprocess
from collections.abc import Iterator
from typing import Final

import cloudpickle
from distributed import Client

from psplatform.client.starting.prepared import Prepared
from psplatform.errors import ClusterError
from psplatform.runtime.cluster import cluster_of
from psplatform.runtime.comms.calls import Peer, PeerLost, PeerSilent, call_the_living
from psplatform.runtime.comms.hosting import call_named
from psplatform.runtime.comms.hosting import name_of as hosted_name
from psplatform.runtime.pools.deaths import death_of, died
from psplatform.runtime.pools.fleet import made
from psplatform.runtime.trial import Trial, TrialHost, try_task

TRIAL_LIMIT_S: Final = 600.0
"""For a first gradient: data may have to be read and a large model built."""

_ANSWER_S: Final = 30.0
_DOING: Final = "a first gradient was tried"

_LAST_WORDS: Final = (
    "psplatform: this program ended while a first gradient was tried in it: the model, loss, step or data ended the "
    "process (os._exit), crashed it (what is printed above then shows the line), or took more memory than there is; "
    "mend it, or take a smaller batch_size"
)
_WAITER: Final = 'trap "" INT TERM; read -r done || printf "%s\\n" "$0" >&2'


async def try_on(client: Client, prepared: Prepared, address: str) -> Trial:
    """Try a first gradient in the process of a Dask worker.

    Raises
    ------
    ProcessDied
        If that process ends meanwhile.
    ClusterError
        If it does not answer, or ends because it was asked to.
    UserCodeError, ConfigurationError
        As `try_task` does.
    """
    processes, _ = await cluster_of(client)
    nanny = next((one.nanny for one in processes if one.address == address), "")
    peer = Peer(address, f"psplatform-{prepared.run}-trial")
    future = client.submit(call_named, hosted_name(TrialHost), actor=True, key=peer.key, workers=[address], pure=False)
    pid = None
    try:
        await made(future, "trial", address)
        process = await call_the_living(client.rpc, peer, "alive", 0.0, deadline_s=_ANSWER_S)
        pid = process.pid if process is not None else None
        return await _run(client, peer, prepared)
    except PeerLost as error:
        death = await death_of(client, address, nanny, pid)
        if death is None:
            text = f"no first gradient could be tried: {error}; see whether that Dask worker is busy or stopped"
            raise ClusterError(f"{text}, and start the run again", peer=address) from error
        raise died(death, f"{_DOING} there") from error
    finally:
        future.release()


async def _run(client: Client, peer: Peer, prepared: Prepared) -> Trial:
    arguments = prepared.pickled, prepared.initial, cloudpickle.dumps(prepared.job.optimizer), prepared.settings
    try:
        trial: Trial = await call_the_living(client.rpc, peer, "run", *arguments, deadline_s=TRIAL_LIMIT_S)
    except PeerSilent as error:
        text = f"the Dask worker {peer.address} tried a first gradient and did not answer within {TRIAL_LIMIT_S:g} s"
        text = f"{text}; take a smaller model or batch_size, or a faster source of data"
        raise ClusterError(text, peer=peer.address) from error
    return trial


def try_here(prepared: Prepared) -> Trial:
    """Try a first gradient in this process.

    Raises
    ------
    UserCodeError, ConfigurationError
        As `try_task` does.
    """
    with _last_words():
        return try_task(prepared.pickled, prepared.initial, prepared.job.optimizer, prepared.settings)


@contextlib.contextmanager
def _last_words() -> Iterator[None]:
    """Let a process say on standard error that this one has ended, unless it gets to the end of this.

    Python's own report of a crash, with the line, is printed as well.
    """
    waiter = _start_waiter()
    reports = _report_crashes()
    try:
        yield
    finally:
        if reports:
            faulthandler.disable()
        if waiter is not None:
            with contextlib.suppress(OSError):
                waiter.communicate(b"done\n")


def _start_waiter() -> subprocess.Popen[bytes] | None:
    # A shell takes a millisecond; another Python would need to import.
    try:
        return subprocess.Popen(["/bin/sh", "-c", _WAITER, _LAST_WORDS], stdin=subprocess.PIPE)  # noqa: S603  a constant
    except OSError:
        return None


def _report_crashes() -> bool:
    """Let Python report a crash, unless it does; return whether that is new."""
    if faulthandler.is_enabled():
        return False
    try:
        faulthandler.enable()
    except (RuntimeError, ValueError, OSError, AttributeError):  # no standard error, or one without a descriptor
        return False
    return True
