"""What a specification of replication accepts, refuses and bounds."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest

import psplatform as ps
from psplatform.errors import ConfigurationError
from psplatform.jobs.replication import (
    MODES,
    USUAL_UPDATES,
    Bounded,
    Chain,
    NoReplication,
    Replication,
    parse_divergence,
)

SPECS = [
    NoReplication(),
    Chain(),
    Chain(replicas=2, source="workers", on_replica_loss="pause", on_isolation="continue"),
    Bounded(),
    Bounded(max_divergence=0.5),
    Bounded(max_divergence=3, unit="updates", target="store"),
]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_specification_survives_its_plain_form_json_and_pickle(spec: Replication) -> None:
    assert Replication.from_plain(json.loads(json.dumps(spec.to_plain()))) == spec
    assert Replication.from_plain(spec) is spec
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - made here


def test_every_mode_is_known_by_its_name() -> None:
    assert [kind.mode for kind in MODES.values()] == list(MODES) == ["none", "chain", "bounded"]
    assert {type(spec) for spec in SPECS} == set(MODES.values())


def test_users_find_the_modes_in_the_package() -> None:
    assert (ps.Bounded, ps.Chain, ps.NoReplication) == (Bounded, Chain, NoReplication)


@pytest.mark.parametrize(
    ("plain", "spec"),
    [
        ("none", NoReplication()),
        (None, NoReplication()),
        ("chain", Chain()),
        ("bounded", Bounded()),
        ({}, Bounded()),
        ({"mode": "bounded", "max_divergence": 0.5}, Bounded(max_divergence=0.5)),
        ({"max_divergence": "0.5"}, Bounded(max_divergence=0.5)),
        ({"max_divergence": "4updates"}, Bounded(max_divergence=4, unit="updates")),
        ({"max_divergence": "4u", "unit": "updates"}, Bounded(max_divergence=4, unit="updates")),
        ({"mode": "chain", "replicas": "2"}, Chain(replicas=2)),
    ],
)
def test_words_and_mappings_describe_a_specification(plain: Any, spec: Replication) -> None:
    assert Replication.from_plain(plain) == spec


def test_without_a_word_a_replica_may_lack_eight_updates() -> None:
    assert (Bounded().bound, Bounded().unit) == (USUAL_UPDATES, "updates") == (8, "updates")


def test_a_bound_alone_is_a_norm() -> None:
    assert (Bounded(max_divergence=2).bound, Bounded(max_divergence=2).unit) == (2.0, "norm")


def test_a_chain_allows_nothing_to_be_lacking_and_no_replication_promises_nothing() -> None:
    assert (Chain().bound, Chain().unit) == (0.0, "updates")
    assert (NoReplication().bound, NoReplication().unit) == (None, None)


def test_a_norm_is_shared_among_shards_so_that_squares_add_up() -> None:
    """||w||² is the sum of the shards' squares: each of S may use up X / sqrt(S)."""
    bounds = [Bounded(max_divergence=0.6).shard_bound(shards) for shards in (1, 4, 9)]
    assert bounds == pytest.approx([0.6, 0.3, 0.2])
    assert math.sqrt(9 * bounds[-1] ** 2) == pytest.approx(0.6)  # type: ignore[operator]  # it is bounded


@pytest.mark.parametrize(("spec", "bound"), [(Bounded(), 8), (Chain(), 0), (NoReplication(), None)])
def test_a_bound_in_updates_is_every_shards_own(spec: Replication, bound: int | None) -> None:
    assert spec.shard_bound(4) == bound


@pytest.mark.parametrize(
    ("text", "found"),
    [("0.5", (0.5, "norm")), ("1e-3", (1e-3, "norm")), ("8updates", (8, "updates")), ("8 u", (8, "updates"))],
)
def test_a_bound_is_written_as_a_norm_or_with_its_unit(text: str, found: tuple[float, str]) -> None:
    assert parse_divergence(text) == found


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        (3, "replication must be such as ps.Bounded(), not 3"),
        ("cain", 'replication has no mode "cain"; did you mean "chain"?'),
        ({"mode": "hot"}, "choose from none, chain, bounded"),
        ({"mode": []}, "replication has no mode"),
        ({"max_divergence": 0}, "max_divergence must be a finite number above 0, not 0; write the mode chain"),
        ({"max_divergence": "0updates"}, "above 0, not 0; write the mode chain to lose nothing"),
        ({"max_divergence": math.nan}, "must be a finite number above 0"),
        ({"max_divergence": math.inf}, "must be a finite number above 0"),
        ({"max_divergence": True}, "must be a finite number above 0"),
        ({"max_divergence": [1]}, "must be a finite number above 0"),
        ({"max_divergence": "much"}, 'max_divergence="much" is no bound; write a norm such as 0.5'),
        ({"max_divergence": "1.5updates"}, "write a norm such as 0.5, or updates such as 8updates"),
        ({"max_divergence": 1.5, "unit": "updates"}, "1.5 updates are no whole number"),
        ({"max_divergence": "8u", "unit": "norm"}, "speaks of updates, the unit of norm; give one"),
        ({"unit": "norm"}, "needs a bound; give max_divergence"),
        ({"unit": "metres"}, "unit must be 'norm' or 'updates', not 'metres'"),
        ({"replicas": 0}, "replicas must be an int from 1 to 64, not 0; write the mode none for no copy"),
        ({"replicas": True}, "replicas must be an int from 1 to 64, not True"),
        ({"replicas": 1.0}, "replicas must be an int from 1 to 64, not 1.0"),
        ({"replicas": "two"}, "replicas must be an int from 1 to 64, not 'two'"),
        ({"source": "worker"}, "source must be 'server' or 'workers', not 'worker'"),
        ({"target": "disk"}, "target must be 'replica' or 'store', not 'disk'"),
        ({"on_isolation": "stop"}, "on_isolation must be 'wait' or 'continue', not 'stop'"),
        ({"on_replica_loss": "stop"}, "on_replica_loss must be 'continue' or 'pause', not 'stop'"),
        ({"target": "store", "replicas": 2}, "the store holds one copy, not 2"),
        ({"target": "store", "source": "workers"}, "workers cannot send to the store"),
        ({"mode": "chain", "max_divergence": 1}, 'chain has no "max_divergence"; take the mode bounded'),
        ({"mode": "none", "replicas": 1}, 'none has no "replicas"; take the mode chain or bounded'),
        ({"mode": "none", "hosts": 1}, 'none has no "hosts"; it has none'),
        ({"replica": 1}, 'bounded has no "replica"; did you mean "replicas"?'),
        ({3: 1}, 'bounded has no "3"'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(plain: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Replication.from_plain(plain)
    assert sentence in str(caught.value)
    assert caught.value.field == "replication"
