"""Parameters that workers get through another worker's process, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import Client
from relayed_pulls import hand_ons, relay_all_pulls
from torch import nn

import psplatform as ps

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

THROUGH_RELAYS = {"fabric": {"tick_s": 0.05, "aggregators": 1}}
UPDATES = 12


def wide() -> nn.Module:
    """A model that workers on a server's host compute on where it is shown."""
    return nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


@pytest.fixture(scope="module", autouse=True)
def relayed(client: Client) -> None:
    """Have all pulls planned through a relay, which a worker waits for longer than a test takes."""
    relay_all_pulls(client, expected_s=60.0)


@pytest.mark.parametrize(("transport", "model"), [("comms", {}), ("auto", {}), ("auto", {"model": wide, "shards": 1})])
def test_a_model_is_the_same_to_the_last_bit_whoever_workers_got_it_from(
    client: Client, finish: Finish, log: Log, small: Fields, by_value: Callable[[str], None], transport: str, model: Any
) -> None:
    """The relay's own worker is among them; under bsp all compute on one version of all shards."""
    by_value(__name__)
    fields = {**small, **model, "policy": "bsp", "workers": 3, "stop": ps.Stop(updates=UPDATES), "transport": transport}
    straight = finish(**fields)
    assert hand_ons(client) == {}
    run = finish(**fields, network=THROUGH_RELAYS)
    assert [one["version"] for one in log(run, "commit")] == list(range(1, UPDATES + 1))
    assert all(one["staleness"] == [0, 0, 0] for one in log(run, "commit"))
    (handed_on,) = hand_ons(client).values()
    assert handed_on >= 3 * UPDATES * fields["shards"], "all pulls went through one worker's process"
    expected = straight.model().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in run.model().state_dict().items())
