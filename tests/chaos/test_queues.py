"""What waits to go out of a host's interface is known there, and tells which of two interfaces is the slow one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from psplatform.bench.clusters.namespaces import Hosts, why_not

SLOW_MBIT, FAST_MBIT = 20.0, 400.0
LOOKS: Final = 12

RECEIVES: Final = """
import socket, sys, threading

def receive(sender):
    while sender.recv(1 << 16):
        pass

with socket.create_server((sys.argv[1], 7000)) as server:
    while True:
        sender, _ = server.accept()
        threading.Thread(target=receive, args=(sender,), daemon=True).start()
"""

SENDS: Final = """
import json, socket, sys, threading, time
from psplatform.runtime.comms.queues import waiting_at
told = waiting_at("eth0")
idle = told()
def connect():
    while True:
        try:
            return socket.create_connection((sys.argv[1], 7000))
        except OSError:
            time.sleep(0.1)

def send(receiver):
    while True:
        receiver.sendall(bytes(1 << 16))

for _ in range(int(sys.argv[3])):
    threading.Thread(target=send, args=(connect(),), daemon=True).start()
time.sleep(1.0)
found = []
for _ in range(int(sys.argv[2])):
    time.sleep(0.1)
    found.append(told())
with open("found.new", "w") as out:
    json.dump([idle, found], out)
import os
os.rename("found.new", "found.json")
time.sleep(600)
"""


@pytest.mark.parametrize("sender_is_slow", [True, False])
def test_something_waits_where_the_interface_that_sends_is_slow_and_nothing_where_the_other_is(
    tmp_path: Path, until: Callable[..., Any], sender_is_slow: bool
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    rates = {"sender": FAST_MBIT, "receiver": FAST_MBIT}
    rates["sender" if sender_is_slow else "receiver"] = SLOW_MBIT
    found = tmp_path / "sender" / "found.json"
    with Hosts(("sender", "receiver"), rates) as hosts:
        address = hosts["receiver"].address
        hosts["receiver"].start([sys.executable, "-c", RECEIVES, address], tmp_path, {})
        # What several connections hold lasts while a busy machine lets this process wait.
        connections = 4 if sender_is_slow else 1
        hosts["sender"].start([sys.executable, "-c", SENDS, address, str(LOOKS), str(connections)], tmp_path, {})
        until(found.exists, "the sender has looked")
        idle, waiting = json.loads(found.read_text())
    assert idle == 0
    assert len(waiting) == LOOKS
    assert all(one > 0 for one in waiting) if sender_is_slow else sum(one > 0 for one in waiting) <= 1
