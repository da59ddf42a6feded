"""What another user of the machine finds of a run with a cluster of its own: nothing to read, and closed doors."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

import psplatform as ps
from psplatform.client.clusters.connecting import address_of
from psplatform.client.clusters.credentials import Credentials, make_credentials
from psplatform.client.runs import records

pytestmark = pytest.mark.cluster

LIMIT_S: Final = 180.0
NOBODY: Final = 65534

STRANGER: Final = """
import encodings.idna, encodings.latin_1, json, os, socket, ssl, sys
user, files, ports, certificate, tries = json.loads(sys.argv[1])
if user is not None:  # here, because Python itself may lie where only its owner gets at it
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)

def read(path):
    try:
        with open(path, "rb") as file:
            return len(file.read())
    except PermissionError:
        return 0

def answer(port, said, context=None):
    with socket.create_connection(("127.0.0.1", port), timeout=180) as connection:
        try:
            if context is not None:
                connection = context.wrap_socket(connection)
            connection.sendall(said)
            return connection.recv(64).decode("latin-1")
        except OSError as error:  # of TLS as well
            return ""

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.load_cert_chain(certificate)
said = {
    "plain": (bytes(64), None),
    "tls": (b"", context),
    "http": (b"GET /info/main/workers.html HTTP/1.0\\r\\n\\r\\n", None),
}
answers = {one: [answer(port, *said[one]) for port in ports] for one in tries}
print(json.dumps({"read": [read(path) for path in files], **answers}))
"""


class Home:
    """A run, and two folders that every user may look into: that of its store and that of the owner's records."""

    def __init__(self, folder: Path) -> None:
        self.state, self.store = folder / "state", folder / "stores" / "run.zarr"
        self._certificates = folder / "certificates"
        for one in (folder, self.state, self.store.parent, self._certificates):
            one.mkdir(mode=0o755, exist_ok=True)
            one.chmod(0o755)
        self.run = ps.train(
            ps.Job(
                workload="mlp",
                options={"samples": 500},
                workers=1,
                stop=ps.Stop(updates=10**9),
                stragglers="constant:seconds=0.01",
                store=str(self.store),
            )
        )

    @property
    def record(self) -> Path:
        """The file of the owner's record of the run."""
        (found,) = (self.state / "runs").iterdir()
        return found

    @property
    def key(self) -> Credentials:
        """What the cluster admits programs with."""
        found = records.known(self.run.run, str(self.store))
        assert found is not None
        assert found.credentials is not None
        return found.credentials

    def ports(self) -> dict[str, int]:
        """Return where the scheduler, the Dask workers and their nannies listen."""
        client: Any = self.run.client
        workers = client.scheduler_info(n_workers=-1)["workers"]
        addresses = {"scheduler": address_of(client)}
        addresses |= {f"worker {place}": address for place, address in enumerate(workers)}
        addresses |= {f"nanny {place}": one["nanny"] for place, one in enumerate(workers.values())}
        return {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}

    def look(self, credentials: Credentials, ports: list[int], *tries: str, user: int | None = None) -> dict[str, Any]:
        """Return what a program of that user gets at, with those credentials, when it tries in these ways."""
        certificate = self._certificates / f"{user}.pem"
        certificate.write_text(credentials.certificate + credentials.key)
        certificate.chmod(0o644)
        files = [str(self.record), str(self.store / "zarr.json")]
        asked = json.dumps([user, files, ports, str(certificate), tries])
        command = [sys.executable, "-I", "-c", STRANGER, asked]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=LIMIT_S, check=False, env={})
        certificate.unlink()
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="psplatform-test-"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PSPLATFORM_STATE", str(folder / "state"))
        made = Home(folder)
        yield made
        made.run.close()
        shutil.rmtree(folder)


def processes() -> list[psutil.Process]:
    """Return this program and all that it has started."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a test")
def test_another_user_reads_nothing_and_is_admitted_nowhere(home: Home) -> None:
    ports = home.ports()
    assert len(ports) >= 5, "a scheduler, and two or more workers with a nanny each"
    found = home.look(make_credentials(), list(ports.values()), "plain", "tls", user=NOBODY)
    assert found["read"] == [0, 0], "neither the record nor what the store says"
    for attempt in ("plain", "tls"):
        admitted = {name: said for name, said in zip(ports, found[attempt], strict=True) if not refused(said)}
        assert admitted == {}, f"{attempt}: nobody is greeted"


def refused(said: str) -> bool:
    """Whether a server of TLS has sent nothing but an alert, if anything."""
    return said == "" or said.startswith("\x15\x03")


def test_who_has_the_key_is_admitted(home: Home) -> None:
    """So the test above can fail."""
    ports = home.ports()
    found = home.look(home.key, list(ports.values()), "tls")
    assert all(size > 0 for size in found["read"])
    assert [name for name, said in zip(ports, found["tls"], strict=True) if refused(said)] == []


def test_no_other_door_of_the_run_shows_anything(home: Home) -> None:
    """Dask's servers listen for browsers as well."""
    listening = {
        one.laddr.port
        for process in processes()
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    known = home.ports()
    assert set(known.values()) < listening
    others = sorted(listening - set(known.values()))
    found = home.look(make_credentials(), others, "http")
    assert {said[:12] for said in found["http"]} == {"HTTP/1.1 404"}


def test_the_key_is_in_the_record_alone(home: Home) -> None:
    """Neither in the store, nor in an environment, nor on a command line."""
    secret = home.key.key.splitlines()[1]
    assert secret in home.record.read_text()
    told = [Path(f"/proc/{one.pid}/{what}") for one in processes() for what in ("environ", "cmdline")]
    files = [one for one in home.store.rglob("*") if one.is_file()]
    assert len(told) > 10
    assert files
    leaks = []
    for path in (*told, *files):
        with contextlib.suppress(FileNotFoundError):  # a segment of the log that was merged meanwhile
            leaks += [str(path)] if secret.encode() in path.read_bytes() else []
    assert leaks == []
    assert "PRIVATE" not in f"{home.key!r} {records.find(home.run.run)!r}"


def test_another_program_of_the_owner_stops_the_run_by_its_store_and_its_record_goes_with_it(home: Home) -> None:
    command = [sys.executable, "-m", "psplatform", "attach", str(home.store), "--stop", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["detail"] == "stopped by psplatform attach --stop"
    assert home.run.wait(LIMIT_S)["outcome"] == "stopped"
    home.run.close()
    assert list((home.state / "runs").iterdir()) == []
