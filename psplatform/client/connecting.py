"""Reaching a scheduler, within seconds or not at all."""

from __future__ import annotations

import reprlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from distributed import Client

from psplatform.errors import ClusterError, ConfigurationError, PsplatformError

_CONNECT_S: Final = 5
"""Seconds to reach a scheduler: the user hears within ten."""

ANSWER_S: Final = 5.0
"""For a scheduler to answer; one that is busy takes less than a second."""

_CERTIFICATES: Final = ", ".join(
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)
"""Variables by which Dask learns of a client's certificate; its configuration files do as well."""

_Answer = TypeVar("_Answer")


def connect(scheduler: str) -> Client:
    """Return a client of the scheduler at that address, or of that scheduler file.

    Certificates for a scheduler that wants some are those that Dask is configured with.

    Raises
    ------
    ConfigurationError
        If it cannot be reached within ten seconds, or wants a certificate and none is configured.
    """
    try:
        if Path(scheduler).is_file():
            return Client(scheduler_file=scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
    except TypeError as error:  # what Dask says of an address that begins with tls:// where no certificate is known
        raise ConfigurationError(
            f"the scheduler at {scheduler} wants a certificate and Dask is configured with none; set {_CERTIFICATES}",
            field="scheduler",
        ) from error
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigurationError(
            f"no scheduler answers at {scheduler}; start one with `dask scheduler` and give its address",
            field="scheduler",
        ) from error


def usable(client: object) -> Client:
    """Return the client that a program hands in, which must be open and wait for its answers.

    It may be used where an event loop runs in the same thread, in a notebook for example.

    Raises
    ------
    ConfigurationError
        If it is no client, is closed, or was made with ``asynchronous=True``.
    """
    if not isinstance(client, Client):
        address = getattr(client, "scheduler_address", client)
        remedy = f'write Client("{address}")' if isinstance(address, str) else "make one with Client(address)"
        shown = reprlib.repr(client)
        raise ConfigurationError(f"client must be a distributed.Client, not {shown}; {remedy}", field="client")
    if client.asynchronous:
        text = "client is asynchronous, and psplatform waits for its answers; make it with Client(address), and in a"
        remedy = "coroutine call psplatform in a thread, as in await asyncio.to_thread(ps.train, job, client)"
        raise ConfigurationError(f"{text} {remedy}", field="client")
    if client.status in ("closing", "closed"):
        text = f"client is closed; make another with Client({address_of(client)!r})"
        raise ConfigurationError(text, field="client")
    return client


def connect_or_none(scheduler: str | None, security: Any = None) -> Client | None:
    """Return a client of the scheduler that a store names, or ``None`` where it does not answer within seconds."""
    if not scheduler:
        return None
    try:
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True, security=security)
    except (OSError, PsplatformError, ValueError, TypeError, RuntimeError):
        # No scheduler is there, or it is an address that only its own program knows; the last two are what Dask says
        # where one side wants encryption that the other has not.
        return None


def ask(
    client: Client, question: Callable[..., Awaitable[_Answer]], *arguments: Any, deadline_s: float = ANSWER_S
) -> _Answer:
    """Return what a coroutine function, called with the client and `arguments`, learns of its cluster in time.

    Raises
    ------
    ClusterError
        If the scheduler is gone, does not answer within `deadline_s`, because it was stopped for example, or cannot
        run what it was sent, because it has another psplatform.
    """
    scheduler = address_of(client)
    try:
        if client.scheduler is None:  # Dask has given it up
            raise OSError("its connection is closed")
        answer: _Answer = client.sync(question, client, *arguments, callback_timeout=deadline_s)
    except TimeoutError as error:
        text = f"the scheduler at {scheduler} did not answer within {deadline_s:g} s; see whether it still runs"
        raise ClusterError(text, peer=scheduler) from error
    except (OSError, RuntimeError) as error:  # the latter where the client was closed
        text = f"the scheduler at {scheduler} is gone ({error}); start one with `dask scheduler` and connect to it"
        raise ClusterError(text, peer=scheduler) from error
    except PsplatformError:
        raise
    except Exception as error:  # Dask raises here whatever was raised there, an ImportError for example
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        text = f"the scheduler at {scheduler} runs another version of psplatform or Dask, or lacks psplatform ({what})"
        raise ClusterError(f"{text}; install the same there", peer=scheduler) from error
    return answer


def address_of(client: Client) -> str:
    """Return the address of a client's scheduler, or as much as is known of it."""
    if client.scheduler is not None:
        return str(client.scheduler.address)
    # Dask keeps nothing else of one that it has given up: what the client was made with.
    started = client._start_arg or client.scheduler_file  # noqa: SLF001
    return str(getattr(started, "scheduler_address", started))
