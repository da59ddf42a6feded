"""Replicas of a whole run read parameters where their server shows them, and get what it had captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client

import psplatform as ps
from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import STATE, Transfer
from psplatform.runtime.dataplane.replicas.outbox import Outbox
from psplatform.runtime.dataplane.replicas.receiver import Receiver
from psplatform.runtime.dataplane.replicas.transfers import ProcessCarrier
from psplatform.tensors import shard as shard_module

LIMIT_S = 180.0


def test_states_are_read_in_place_and_arrive_as_they_were_captured(
    start_here: Callable[..., AbstractContextManager[Client]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured: dict[tuple[str, int], Mapping[str, torch.Tensor]] = {}
    seen: Counter[str] = Counter()
    capture, load = ProcessCarrier.capture, Receiver.load
    in_place, copy, measure = Outbox.capture_in_place, Outbox.capture, shard_module.copy_and_measure

    def note_capture(carrier: ProcessCarrier, effect: Transmit) -> int:
        if effect.transfer.kind == STATE:
            state = {name: vector.clone() for name, vector in carrier._shard.state().items()}
            captured[effect.transfer.server, effect.transfer.number] = state
        return capture(carrier, effect)

    def compare(receiver: Receiver, transfer: Transfer, begin_writing: Callable[[], None]) -> bool:
        loaded = load(receiver, transfer, begin_writing)
        if transfer.kind == STATE:
            expected, found = captured[transfer.server, transfer.number], receiver._shard.state()
            same = expected.keys() == found.keys() and all(
                torch.equal(one, found[key]) for key, one in expected.items()
            )
            seen["loaded" if same else "wrong"] += 1
        return loaded

    def note_measured(*arguments: Any) -> float:
        seen["measured"] += 1
        return measure(*arguments)

    def note_in_place(*arguments: Any) -> None:
        seen["in place"] += 1
        in_place(*arguments)

    def note_copy(*arguments: Any) -> int:
        seen["copied at once"] += 1
        return copy(*arguments)

    monkeypatch.setattr(shard_module, "copy_and_measure", note_measured)
    monkeypatch.setattr(ProcessCarrier, "capture", note_capture)
    monkeypatch.setattr(Receiver, "load", compare)
    monkeypatch.setattr(Outbox, "capture_in_place", note_in_place)
    monkeypatch.setattr(Outbox, "capture", note_copy)
    job = ps.Job(
        workload="digits",
        policy="asp",
        workers=2,
        shards=2,
        optimizer=ps.SGD(lr=0.01, momentum=0.9),
        replication=ps.Bounded(max_divergence=8, unit="updates", replicas=1),
        stop=ps.Stop(updates=200),
        store=str(tmp_path / "store"),
    )
    with start_here(workers=5, threads=2) as client, ps.train(job, client) as run:
        assert run.wait(LIMIT_S)["updates"] == 200
    assert seen["wrong"] == seen["copied at once"] == 0
    assert seen["loaded"] >= 20
    assert seen["in place"] >= 20
    assert seen["measured"] * 2 < seen["loaded"], "servers soon know how long their parameters are, and say so"
