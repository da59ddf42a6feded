"""Reaching a scheduler, within seconds or not at all."""

from __future__ import annotations

import re
import reprlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from distributed import Client
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.registry import get_backend

from psplatform.client.clusters.credentials import security_of
from psplatform.client.runs.records import Record, credentials_at
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError

_CONNECT_S: Final = 5
"""Seconds to reach a scheduler: the user hears within ten."""

ANSWER_S: Final = 5.0
"""For a scheduler to answer; one that is busy takes less than a second."""

_CERTIFICATES: Final = ", ".join(
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)
"""Variables by which Dask learns of a client's certificate; its configuration files do as well."""

_SOCKETS: Final = ("tcp", "tls")
_LENGTH: Final = struct.Struct("<Q")
_LONGEST_GREETING: Final = 2**20
"""Bytes that the first message of a Dask process does not have."""

_ADDRESS: Final = re.compile(r"[a-z]+://[\w.:\[\]%-]{1,200}")
"""What may be an address that a store names: it is repeated to a person."""

_Answer = TypeVar("_Answer")


def connect(scheduler: str) -> Client:
    """Return a client of the scheduler at that address, or of that scheduler file.

    Certificates for a scheduler that wants some are those of this user's own embedded cluster there, or else those that
    Dask is configured with.

    Raises
    ------
    ConfigurationError
        If it cannot be reached within ten seconds, or wants a certificate and none is configured.
    """
    try:
        if Path(scheduler).is_file():
            return Client(scheduler_file=scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True)
        _require_listener(scheduler)
        own = credentials_at(scheduler)
        security = security_of(own) if own is not None else None
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True, security=security)
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


def _require_listener(scheduler: str) -> None:
    """Refuse an address at which nothing can listen, or nothing does: Dask leaves a client that tries for ever.

    Raises
    ------
    ConfigurationError
        Saying what is wrong with it.
    """
    scheme, location = parse_address(scheduler)
    try:
        get_backend(scheme)
    except (ValueError, ImportError) as error:
        known = ", ".join(f"{one}://" for one in _SOCKETS)
        text = f"no scheduler can be at {scheduler}; its address begins with {known}"
        raise ConfigurationError(text, field="scheduler") from error
    if scheme not in _SOCKETS:
        return
    try:
        host, port = parse_host_port(location)
    except ValueError as error:
        text = f"the scheduler's address {scheduler} has no port; write HOST:PORT, such as {location}:8786"
        raise ConfigurationError(text, field="scheduler") from error
    text = f"no scheduler answers at {scheduler}"
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S) as connection:
            speaks = scheme == "tls" or _greets(connection)
    except socket.gaierror as error:
        text = f"{text}: no host is called {host!r} here; give the address that `dask scheduler` prints"
        raise ConfigurationError(text, field="scheduler") from error
    except TimeoutError as error:
        text = (
            f"{text}: nothing came back in {_CONNECT_S} s; see that host and port are right (its dashboard has another)"
        )
        raise ConfigurationError(text, field="scheduler") from error
    except OverflowError as error:
        raise ConfigurationError(f"{text}: {port} is no port; write one such as 8786", field="scheduler") from error
    if not speaks:
        text = f"what answers at {scheduler} is no Dask scheduler, its dashboard perhaps; give the address that"
        raise ConfigurationError(f"{text} `dask scheduler` prints, which usually ends in :8786", field="scheduler")


def _greets(connection: socket.socket) -> bool:
    """Return whether the other side begins as Dask does, with the length of a message, which others' words are not."""
    said = b""
    while len(said) < _LENGTH.size:
        more = connection.recv(_LENGTH.size - len(said))
        if not more:
            return False
        said += more
    return int(_LENGTH.unpack(said)[0]) < _LONGEST_GREETING


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
    """Return a client of the scheduler at that address, or ``None`` where it does not answer within seconds.

    What answers is believed, so the address must not come from a store: see `connect_to`.
    """
    if not scheduler:
        return None
    try:
        _require_listener(scheduler)
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False, direct_to_workers=True, security=security)
    except (OSError, PsplatformError, ValueError, TypeError, RuntimeError):
        # No scheduler is there, or it is an address that only its own program knows; the last two are what Dask says
        # where one side wants encryption that the other has not.
        return None


def connect_to(record: Record, otherwise: Any = None) -> Client | None:
    """Return a client of the scheduler that the user's own record names, or ``None`` where it does not answer.

    Parameters
    ----------
    otherwise
        Dask's ``Security`` for a cluster that is none of psplatform's own; by default what Dask is configured with.
    """
    security = security_of(record.credentials) if record.credentials is not None else otherwise
    return connect_or_none(record.scheduler, security)


def not_asked(store: str, description: Mapping[str, Any]) -> str:
    """Return which scheduler a store names, in a clause that says why it was not asked and how a person can ask it."""
    named = description.get("scheduler")
    if isinstance(named, str) and _ADDRESS.fullmatch(named):
        text = f"the scheduler {named} that {store} names is in none of your own records, so it was not asked"
        return f"{text}; to ask it, give it: --scheduler {named}, or client=Client({named!r})"
    text = f"{store} names no scheduler and your own records know none of its run, so none was asked"
    return f"{text}; to ask one, give it: --scheduler ADDRESS, or client=Client(ADDRESS)"


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
