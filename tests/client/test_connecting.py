"""An address at which no scheduler is gets one sentence within seconds, and no client is left that goes on trying."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from psplatform.client.clusters import connecting
from psplatform.client.clusters.connecting import connect, connect_or_none
from psplatform.errors import ConfigurationError


@pytest.fixture
def other() -> Iterator[tuple[str, list[bytes]]]:
    """Listen as another program does; return the address, and what it says to whoever comes (nothing where empty)."""
    words: list[bytes] = []
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if words:
                    connection.sendall(words[0])
                    connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", words
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in held:
        connection.close()


@pytest.fixture(autouse=True)
def _no_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("a client that Dask cannot connect tries for ever")

    monkeypatch.setattr(connecting, "Client", refuse)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1", r"127\.0\.0\.1 has no port; write HOST:PORT, such as 127\.0\.0\.1:8786"),
        ("http://127.0.0.1:8787", "no scheduler can be at http://.*; its address begins with tcp://, tls://"),
        ("tcp://no-such-host.invalid:8786", "no host is called 'no-such-host.invalid' here; give the address"),
        ("tcp://127.0.0.1:1", "no scheduler answers at tcp://127.0.0.1:1; start one with `dask scheduler`"),
    ],
)
def test_addresses_of_nothing(address: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        connect(address)
    assert caught.value.field == "scheduler"


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"220"])
def test_another_program_is_named_as_such(other: tuple[str, list[bytes]], said: bytes) -> None:
    address, words = other
    words.append(said)
    with pytest.raises(ConfigurationError, match="is no Dask scheduler, its dashboard perhaps; give the address"):
        connect(address)
    assert connect_or_none(address) is None


def test_one_that_says_nothing_is_not_waited_for(
    other: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CONNECT_S", 0.2)
    with pytest.raises(ConfigurationError, match=r"nothing came back in 0\.2 s; see that host and port are right"):
        connect(other[0])
