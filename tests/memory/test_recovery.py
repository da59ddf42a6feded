"""A run that goes on from a checkpoint is the run that was never interrupted."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgpack
import pytest
from torch import Tensor

from psplatform.core.coordination.shards.checkpoints import place_after
from psplatform.core.plan import Cuts, Protection, Stop
from psplatform.jobs.optimizers import SGD, Adam, AdamW
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.registry import policy_names
from psplatform.replication.accounts import Account
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, shard_vectors

UPDATES = 9
EVERY = 4


def whole_state(layout: Layout, parts: dict[int, tuple[dict[str, Tensor], int]]) -> dict[str, dict[str, Tensor]]:
    """Return the vectors of the whole model by slot of the optimiser; the parameters under the empty name."""
    whole: dict[str, dict[str, Tensor]] = {}
    for shard, (state, _) in parts.items():
        for name, vector in state.items():
            slot, key = ("", name) if name in {one.key for one in layout.regions} else name.split(".", 1)
            target = whole.setdefault(slot, allocate(layout))
            shard_vectors(layout, shard, target)[key].copy_(vector)
    return whole


def restored(parts: Any, layout: Layout, state: dict[str, Any], commit_logs: int = 1) -> type[TensorArithmetic]:
    """Return an arithmetic whose copies begin with archived parts, however many shards there were then."""
    whole = whole_state(layout, parts)
    commits = max(steps for _, steps in parts.values())

    class Restored(TensorArithmetic):
        def open_copy(self, copy: str, shard: int) -> None:
            super().open_copy(copy, shard)
            held = self.copies[copy]
            vectors = {}
            for slot, vector in whole.items():
                for key, piece in shard_vectors(self.layout, shard, vector).items():
                    vectors[f"{slot}.{key}" if slot else key] = piece
            _, version = place_after(state, shard, commit_logs)
            wanted = held.state_sizes()
            held.restore({name: vectors[name] for name in wanted}, version=version, commits=commits)

    return Restored


def interrupted(trained: Any, version: int | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the parts and the coordinator's state of a checkpoint, the latter as it comes out of a store.

    Of the last one that was cut while the run went on, if no version is named.
    """
    seals = sorted(trained.memory.seals.items())
    number, seal = next(one for one in seals if one[1].version == version) if version is not None else seals[-2]
    state = msgpack.unpackb(msgpack.packb(seal.state), use_list=False)
    assert isinstance(state, dict)
    return trained.arithmetic.archives[number], state


@pytest.mark.parametrize("sampling", ["replacement", "epoch"])
@pytest.mark.parametrize(
    "optimizer", [SGD(lr=0.05, momentum=0.9), Adam(lr=0.01), AdamW()], ids=["momentum", "adam", "adamw"]
)
@pytest.mark.parametrize("shards", [2, 1, 3], ids=["as many shards", "fewer", "more"])
def test_a_restored_synchronous_run_equals_the_uninterrupted_one_bit_for_bit(
    train: Any, assert_equal: Any, convolutional: Any, *, sampling: str, optimizer: Any, shards: int
) -> None:
    given = {"workers": 3, "sampling": sampling, "optimizer": optimizer, "clip_norm": 0.5}
    undisturbed = train(convolutional(), shards=2, stop=Stop(updates=UPDATES), **given).run()
    first = train(convolutional(), shards=2, stop=Stop(updates=6), cuts=Cuts(EVERY), **given).run()
    assert [one.version for _, one in sorted(first.memory.seals.items())] == [1, EVERY, 6]
    for version in (1, EVERY, 6):
        parts, state = interrupted(first, version)
        assert (state["version"], state["positions"]) == (version, (version, version))
        kind = restored(parts, first.arithmetic.layout, state)
        again = train(convolutional(), kind=kind, shards=shards, stop=Stop(updates=UPDATES), resume=state, **given)
        again.run()
        assert [one["position"] for one in again.of_kind("commit")] == list(range(version + 1, UPDATES + 1))
        assert_equal(again.result, undisturbed.result)


@pytest.mark.parametrize("sampling", ["replacement", "epoch"])
@pytest.mark.parametrize("at", [3.2, 4.5, 5.9])
def test_a_run_that_is_stopped_in_the_middle_of_a_round_goes_on_as_if_it_had_not_been(
    train: Any, assert_equal: Any, convolutional: Any, *, at: float, sampling: str
) -> None:
    """From the checkpoint of its last version: what was being computed has left no trace in it."""
    given = {"workers": 3, "shards": 2, "sampling": sampling, "compute_s": lambda slot, sequence: 1.0 + 0.25 * slot}
    undisturbed = train(convolutional(), stop=Stop(updates=UPDATES), **given).run()
    first = train(convolutional(), stop=Stop(updates=1000), cuts=Cuts(every_updates=1000), **given)
    first.stop(at)
    first.run()
    last = first.of_kind("finished")[0]["version"]
    parts, state = interrupted(first, last)
    kind = restored(parts, first.arithmetic.layout, state)
    again = train(convolutional(), kind=kind, stop=Stop(updates=UPDATES), resume=state, **given).run()
    assert [one["version"] for one in again.of_kind("commit")] == list(range(last + 1, UPDATES + 1))
    assert_equal(again.result, undisturbed.result)


def test_a_checkpoint_is_one_cut_of_replicas_as_it_is_of_servers(
    train: Any, assert_equal: Any, convolutional: Any
) -> None:
    """Whoever writes it, and whatever is lost meanwhile."""
    given = {"workers": 2, "shards": 2, "stop": Stop(updates=6), "cuts": Cuts(EVERY), "latency_s": 0.02}
    alone = train(convolutional(), **given).run()
    protected = train(
        convolutional(),
        protection=Protection(1),
        make_account=partial(Account, most_updates=3),
        measures_steps=True,
        supervision=Supervision(spares=2, notice_s=0.05),
        **given,
    )
    protected.memory.kill("replica-1-0", at=2.5)
    protected.run()
    for version in (EVERY, 6):
        (parts, _), (others, _) = interrupted(alone, version), interrupted(protected, version)
        assert parts.keys() == others.keys()
        for shard in parts:
            assert_equal(parts[shard][0], others[shard][0])


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("shards", [2, 3], ids=["as many shards", "more"])
def test_a_run_under_any_policy_goes_on_from_its_checkpoint(
    train: Any, convolutional: Any, policy: str, shards: int
) -> None:
    given = {"workers": 3, "sampling": "epoch", "compute_s": lambda slot, sequence: 1.0 + 0.25 * slot}
    first = train(convolutional(), policy, shards=2, stop=Stop(updates=14), cuts=Cuts(5), **given).run()
    parts, state = interrupted(first)
    commit_logs = shards if policy == "psp" else 1
    kind = restored(parts, first.arithmetic.layout, state, commit_logs)
    again = train(convolutional(), policy, kind=kind, shards=shards, stop=Stop(updates=20), resume=state, **given)
    again.run()
    assert again.finish.outcome == "updates"
    assert again.of_kind("finished")[0]["version"] == 20
    assert min(one["version"] for one in again.of_kind("commit")) == state["version"] + 1
    assert again.memory.drain() == []


@pytest.mark.parametrize("before", ["bsp", "psp"])
@pytest.mark.parametrize("after", ["bsp", "psp", "dbw"])
def test_a_run_goes_on_under_another_policy(train: Any, convolutional: Any, before: str, after: str) -> None:
    given = {"workers": 3, "shards": 2, "compute_s": lambda slot, sequence: 1.0 + 0.25 * slot}
    first = train(convolutional(), before, stop=Stop(updates=14), cuts=Cuts(5), **given).run()
    parts, state = interrupted(first)
    kind = restored(parts, first.arithmetic.layout, state, 2 if after == "psp" else 1)
    again = train(convolutional(), after, kind=kind, stop=Stop(updates=20), resume=state, **given).run()
    assert again.finish.outcome == "updates"
    assert again.of_kind("finished")[0]["version"] == 20


def test_workers_of_another_life_meet_as_soon_as_those_of_the_first(train: Any, convolutional: Any) -> None:
    """A barrier that was agreed on by the clock of the first life is nobody's in the second."""
    given = {"workers": 2, "compute_s": lambda slot, sequence: (2.0, 5.0)[slot]}
    first = train(convolutional(), "elastic-bsp", stop=Stop(updates=200), cuts=Cuts(48), **given).run()
    parts, state = interrupted(first)
    assert state["policy"]["superstep"]["meeting"] is not None
    kind = restored(parts, first.arithmetic.layout, state)
    again = train(convolutional(), "elastic-bsp", kind=kind, stop=Stop(updates=300), resume=state, **given).run()
    met = [one["at"] for one in again.of_kind("commit") if "at the barrier" in one["reason"]]
    assert met[0] == next(one["at"] for one in first.of_kind("commit") if "at the barrier" in one["reason"])


def test_a_run_that_had_ended_ends_at_once_when_it_is_restored(train: Any, convolutional: Any) -> None:
    first = train(convolutional(), stop=Stop(updates=EVERY), cuts=Cuts(EVERY)).run()
    parts, state = interrupted(first, EVERY)
    kind = restored(parts, first.arithmetic.layout, state)
    again = train(convolutional(), kind=kind, stop=Stop(updates=EVERY), resume=state).run()
    assert again.finish.outcome == "updates"
    assert again.of_kind("commit") == []
    assert again.arithmetic.saved_version == EVERY
