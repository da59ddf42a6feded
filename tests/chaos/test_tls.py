"""Runs on a cluster that speaks TLS, set up with Dask's own flags and configuration, as its users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from distributed import Client, Security

import psplatform as ps
from psplatform.client.clusters.connecting import connect
from psplatform.errors import ConfigurationError

LIMIT_S = 180.0


class Secured:
    """A scheduler and three Dask workers that take part with a certificate only."""

    def __init__(self, folder: Path, until: Callable[..., None]) -> None:
        made = Security.temporary()
        self.authority, self.certificate, self.key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.authority.write_text(made.tls_ca_file)
        self.certificate.write_text(made.tls_scheduler_cert)
        self.key.write_text(made.tls_scheduler_key)
        self._folder, self._output = folder, (folder / "output.txt").open("w")
        self._programs: list[subprocess.Popen[bytes]] = []
        found = folder / "scheduler.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", found)
        until(lambda: found.exists() and found.read_text(), "the scheduler listens", limit_s=LIMIT_S)
        self.address = str(json.loads(found.read_text())["address"])
        self._start("worker", self.address, "--nworkers", "3", "--nthreads", "1", "--host", "127.0.0.1")
        with self.connect() as client:
            client.wait_for_workers(3, timeout=LIMIT_S)

    def _start(self, *arguments: object) -> None:
        flags = ["--tls-ca-file", self.authority, "--tls-cert", self.certificate, "--tls-key", self.key]
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        command = [sys.executable, "-m", "dask", *map(str, (*arguments, *flags, *quiet))]
        self._programs.append(subprocess.Popen(command, cwd=self._folder, stdout=self._output, stderr=self._output))

    def connect(self) -> Client:
        """Return a client with the user's certificate."""
        security = Security(
            tls_ca_file=str(self.authority),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
            require_encryption=True,
        )
        return Client(self.address, security=security, timeout=LIMIT_S, set_as_default=False, direct_to_workers=True)

    @property
    def configured(self) -> Mapping[str, str]:
        """The environment of a program whose Dask is configured for this cluster."""
        names = {"CA_FILE": self.authority, "CLIENT__CERT": self.certificate, "CLIENT__KEY": self.key}
        return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in names.items()}

    def end(self) -> None:
        """End every process of it."""
        for one in reversed(self._programs):
            one.terminate()
        for one in self._programs:
            one.wait(LIMIT_S)
        self._output.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, until: Callable[..., None]) -> Iterator[Secured]:
    cluster = Secured(tmp_path_factory.mktemp("tls"), until)
    yield cluster
    cluster.end()


def test_a_job_trains_with_servers_replicas_and_workers_that_speak_tls(secured: Secured, tmp_path: Path) -> None:
    job = ps.Job(
        workload="digits",
        workers=2,
        shards=2,
        stop=ps.Stop(updates=10),
        replication=ps.Chain(),
        transport="comms",
        store=str(tmp_path / "run.zarr"),
    )
    with secured.connect() as client, ps.train(job, client) as run:
        summary = run.wait(LIMIT_S)
    assert (summary["outcome"], summary["updates"], summary["unprotected"]) == ("updates", 10, [])


def test_the_command_line_takes_what_dask_is_configured_with(secured: Secured, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "psplatform", "train", "digits", "--scheduler", secured.address, "--json"]
    done = subprocess.run(
        [*command, "--workers", "2", "--updates", "5", "--store", str(tmp_path / "run.zarr")],
        env={**os.environ, **secured.configured},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["updates"] == 5


def test_a_client_without_a_certificate_is_told_so_in_one_sentence(secured: Secured) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect(secured.address)
    said = str(caught.value)
    assert said.startswith(f"the scheduler at {secured.address} wants a certificate")
    assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT" in said
    assert "\n" not in said
