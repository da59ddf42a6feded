"""Replicas that take gradients from the workers, in real trainings: they are the server's state, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from psplatform.core.plan import Protection, Stop
from psplatform.core.protocol.messages import GRADIENTS, Transfer
from psplatform.jobs.optimizers import SGD, Adam, AdamW, RMSProp
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.training import TensorArithmetic
from psplatform.replication.accounts import Account

CHAIN = partial(Account, 0.0, 0)
TWO_UPDATES = partial(Account, most_updates=2)
UPDATES = 10


def pace(slot: int, sequence: int) -> float:
    return 1.0 + 0.25 * slot + 0.125 * (sequence % 3)


def shard_and_steps(held: Any) -> tuple[int, int]:
    return held.index, held.commits


class Compared(TensorArithmetic):
    """Keeps the state of every server after every step, and compares what replicas load with it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.states: dict[tuple[int, int], dict[str, Any]] = {}
        self.loaded: Counter[str] = Counter()
        self.missing: set[int] = set()

    def open_copy(self, copy: str, shard: int) -> None:
        super().open_copy(copy, shard)
        self._note(copy)

    def _note(self, copy: str) -> None:
        held = self.copies[copy]
        self.states[shard_and_steps(held)] = {name: vector.clone() for name, vector in held.state().items()}

    def stage(self, copy: str, factor: float, rate: float) -> float:
        step = super().stage(copy, factor, rate)
        self._note(copy)
        return step

    def absorb(self, copy: str, transfer: Transfer, content: Any) -> bool:
        if transfer.kind == GRADIENTS and transfer.position in self.missing:
            return False
        whole = super().absorb(copy, transfer, content)
        held = self.copies[copy]
        if whole:
            self.loaded[transfer.kind] += 1
            found, wanted = held.state(), self.states[shard_and_steps(held)]
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], wanted[name]) for name in wanted), f"{copy} at {transfer.position}"
        return whole


@pytest.fixture
def followed(train: Any, convolutional: Any) -> Callable[..., Any]:
    """Prepare a training of three workers and two shards, the replicas of which take gradients from the workers."""

    def prepare(policy: str = "bsp", account: Callable[[], Account] = CHAIN, **given: Any) -> Any:
        known: dict[str, Any] = {
            "workers": 3,
            "shards": 2,
            "stop": Stop(updates=UPDATES),
            "latency_s": 0.02,
            "optimizer": SGD(lr=0.05, momentum=0.9),
        }
        return train(
            convolutional(count=24, normalised=True),
            policy,
            kind=Compared,
            batch_size=4,
            compute_s=pace,
            protection=Protection(given.pop("replicas", 1), from_workers=given.pop("from_workers", True)),
            make_account=account,
            measures_steps=True,
            supervision=Supervision(spares=6, notice_s=0.05),
            **{**known, **given},
        )

    return prepare


@pytest.mark.parametrize("account", [CHAIN, TWO_UPDATES], ids=["chain", "bounded"])
@pytest.mark.parametrize("policy", ["bsp", "asp", "ssp", "psp", "backup"])
def test_a_replica_is_its_servers_state_whatever_the_policy(followed: Any, policy: str, account: Any) -> None:
    trained = followed(policy, account).run()
    assert trained.finish.outcome == "updates"
    assert trained.arithmetic.loaded[GRADIENTS] >= UPDATES


@pytest.mark.parametrize("clip", [None, 0.05], ids=["unclipped", "clipped"])
@pytest.mark.parametrize(
    "optimizer",
    [SGD(lr=0.05, momentum=0.9), SGD(lr=0.05, momentum=0.9, nesterov=True), Adam(lr=0.01), AdamW(), RMSProp(lr=0.01)],
    ids=["momentum", "nesterov", "adam", "adamw", "rmsprop"],
)
def test_a_replica_is_its_servers_state_whatever_the_optimizer(followed: Any, optimizer: Any, clip: Any) -> None:
    trained = followed(optimizer=optimizer, clip_norm=clip).run()
    assert trained.arithmetic.loaded == {GRADIENTS: 2 * UPDATES}, "under chain nothing has to come from the server"


@pytest.mark.parametrize("account", [CHAIN, TWO_UPDATES], ids=["chain", "bounded"])
@pytest.mark.parametrize("policy", ["bsp", "asp", "psp"])
def test_what_replicas_take_from_workers_changes_nothing_else(
    followed: Any, assert_equal: Any, policy: str, account: Any
) -> None:
    assert_equal(followed(policy, account).run().result, followed(policy, account, from_workers=False).run().result)


@pytest.mark.parametrize("at", [1.3, 2.9, 4.45, 6.6])
def test_under_chain_a_promoted_replica_goes_on_as_if_nothing_had_happened(
    followed: Any, assert_equal: Any, at: float
) -> None:
    disturbed = followed(optimizer=Adam(lr=0.01))
    disturbed.memory.lose_server(1, at=at)
    disturbed.run()
    (promoted,) = [one for one in disturbed.of_kind("promoted") if one["role"] == "server"]
    assert (promoted["shard"], promoted["updates_lost"]) == (1, 0)
    assert_equal(disturbed.result, followed(optimizer=Adam(lr=0.01)).run().result)


@pytest.mark.parametrize("policy", ["bsp", "asp", "psp"])
def test_no_more_is_lost_with_a_server_than_the_bound(followed: Any, policy: str) -> None:
    for step in range(6):
        trained = followed(policy, TWO_UPDATES)
        trained.memory.lose_server(0, at=2.0 + 0.31 * step)
        trained.run()
        assert all(one["updates_lost"] <= 2 for one in trained.of_kind("promoted") if one["role"] == "server")


@pytest.mark.parametrize("account", [CHAIN, TWO_UPDATES], ids=["chain", "bounded"])
def test_gradients_that_are_gone_are_made_up_for_by_the_server(followed: Any, assert_equal: Any, account: Any) -> None:
    trained = followed(account=account, replicas=2)
    trained.arithmetic.missing = {2, 3, 7}
    trained.run()
    loaded = trained.arithmetic.loaded
    assert loaded[GRADIENTS]
    assert loaded.total() > loaded[GRADIENTS]
    assert_equal(trained.result, followed().run().result)


def test_a_replica_that_is_made_later_follows_the_workers_too(followed: Any) -> None:
    trained = followed(stop=Stop(updates=12)).kill("replica-0-0", at=3.0).run()
    assert trained.finish.outcome == "updates"
    assert trained.arithmetic.loaded["state"] >= 1
    assert trained.arithmetic.loaded[GRADIENTS] > 12


def test_the_bytes_that_workers_send_count_as_replicated(followed: Any) -> None:
    """Three gradients for each step of the model, buffers included."""
    trained = followed().run()
    pieces = [vector for shard in (0, 1) for vector in trained.arithmetic.copies[f"server-{shard}"].front.values()]
    gradient_bytes = sum(vector.numel() * vector.element_size() for vector in pieces)
    assert trained.of_kind("applied")[-1]["to_replica_bytes"] == 3 * UPDATES * gradient_bytes
