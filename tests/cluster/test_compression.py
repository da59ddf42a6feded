"""Compressed gradients on a real cluster: what is learned, and that it does not depend on how they travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import Client
from torch import nn

import psplatform as ps

Finish = Callable[..., ps.Run]
Fields = dict[str, Any]
LIMIT_S = 180.0
KINDS = ["bf16", "fp16", "topk:0.2"]


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1))


def points() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(64, 4, generator=generator), torch.randn(64, 1, generator=generator)


def bits(tensors: dict[str, Any]) -> dict[str, bytes]:
    return {name: one.tobytes() if hasattr(one, "tobytes") else one.numpy().tobytes() for name, one in tensors.items()}


def fields(small: Fields, kind: str) -> Fields:
    return {**small, "policy": "bsp", "compression": kind, "stop": ps.Stop(updates=40)}


@pytest.mark.parametrize("kind", KINDS)
def test_whether_gradients_are_read_or_sent_or_simulated_the_same_is_learned(
    finish: Finish, small: Fields, kind: str
) -> None:
    job = fields(small, kind)
    expected = bits(ps.simulate(ps.Job(**job)).model)
    assert bits(ps.simulate(ps.Job(**{**job, "compression": "none"})).model) != expected

    read, sent = finish(**job), finish(**job, transport="comms")

    assert bits(read.parameters()[0]) == expected
    assert bits(sent.parameters()[0]) == expected
    assert sent.metrics()["compression"] == kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["server", "workers"])
def test_replicas_hold_what_servers_made_of_them(finish: Finish, small: Fields, kind: str, source: str) -> None:
    """Wherever they have the gradients from."""
    job = fields(small, kind)
    expected = bits(ps.simulate(ps.Job(**job)).model)

    run = finish(**job, transport="comms", replication=ps.Chain(source=source))

    assert bits(run.parameters()[0]) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["asp", "psp", "backup"])
def test_every_way_of_synchronising_learns_with_them(
    finish: Finish, log: Callable[..., list[dict[str, Any]]], small: Fields, policy: str, kind: str
) -> None:
    transport = "auto" if kind == "fp16" else "comms"  # `psp` sends gradients either way
    job = {**fields(small, kind), "policy": policy, "transport": transport, "stop": ps.Stop(updates=200)}

    run = finish(**{**job, "evaluate_every": 1})

    first, last = (log(run, "evaluated")[at] for at in (0, -1))
    assert last["version"] == 200
    assert last["loss"] < first["loss"] - 0.1


def test_what_is_large_is_packed_beside_the_event_loop(finish: Finish, by_value: Callable[[str], None]) -> None:
    """A model of two megabytes: whether it is read or sent, the same is learned."""
    by_value(__name__)
    fields = {"model": wide, "loss": nn.functional.mse_loss, "data": points, "workers": 2, "shards": 2}
    job: Fields = {**fields, "batch_size": 4, "stop": ps.Stop(updates=5), "evaluate_every": None, "torch_threads": 1}
    for kind in ("none", "bf16", "topk"):
        read, sent = (finish(**job, compression=kind, transport=transport) for transport in ("auto", "comms"))
        assert bits(read.parameters()[0]) == bits(sent.parameters()[0]), kind


@pytest.mark.parametrize("kind", ["bf16", "topk:0.2"])
def test_a_run_goes_on_from_its_checkpoint_with_the_same(
    start: Callable[..., ps.Run], client: Client, small: Fields, request: Any, kind: str
) -> None:
    """What is rounded does not depend on what was before; what was kept back is in no checkpoint."""
    job = {**fields(small, kind), "checkpoints": ps.Checkpoints(every_updates=10), "sampling": "epoch"}
    first = start(**{**job, "stop": ps.Stop(updates=15)})
    first.wait(LIMIT_S)
    given = {name: small[name] for name in ("model", "loss", "data", "test")}
    resumed = ps.recover(first.store, client, **given, stop=ps.Stop(updates=40))
    request.addfinalizer(resumed.close)
    resumed.wait(LIMIT_S)

    assert resumed.metrics()["compression"] == kind
    whole = start(**job)
    whole.wait(LIMIT_S)
    same = bits(resumed.parameters()[0]) == bits(whole.parameters()[0])
    assert same == (kind == "bf16")
