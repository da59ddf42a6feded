"""Hosts of processes."""

from __future__ import annotations

import pytest

from psplatform.core.addresses import host_of


@pytest.mark.parametrize(
    ("process", "host"),
    [
        ("tcp://10.0.0.1:4000", "10.0.0.1"),
        ("tls://10.0.0.1:4001 pid 7", "10.0.0.1"),
        ("inproc://10.0.0.1/7/1", "10.0.0.1"),
        ("inproc://10.0.0.1/7/2 pid 7", "10.0.0.1"),
        ("tcp://[fe80::1]:4000 pid 7", "fe80::1"),
        ("tcp://node-3:4000", "node-3"),
        ("memory://w0", "w0"),
        ("", ""),
    ],
)
def test_an_address_and_what_a_process_is_called_tell_its_host(process: str, host: str) -> None:
    assert host_of(process) == host
