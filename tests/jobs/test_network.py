"""How a job uses the network: whether transfers are planned."""

from __future__ import annotations

import json
from typing import Any

import pytest

import psplatform as ps
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.network import Fabric, Network


def test_users_find_both_in_the_package() -> None:
    assert (ps.Network, ps.Fabric) == (Network, Fabric)


def test_nothing_is_planned_where_nothing_is_said() -> None:
    assert Job(workload="digits").network == Network(fabric=None)
    assert Network.from_plain(None) == Network.from_plain({}) == Network.from_plain({"fabric": None}) == Network()


@pytest.mark.parametrize(
    "network", [Network(), Network(Fabric()), Network(Fabric(tick_s=0.25, changes_s=5.0))], ids=str
)
def test_it_survives_its_plain_form(network: Network) -> None:
    assert Network.from_plain(json.loads(json.dumps(network.to_plain()))) == network
    assert Network.from_plain(network) is network


def test_a_mapping_describes_a_fabric() -> None:
    assert Job(workload="digits", network={"fabric": {}}).network == Network(Fabric(tick_s=0.1))
    assert Job(workload="digits", network={"fabric": {"tick_s": 1}}).network.fabric == Fabric(tick_s=1.0)
    assert Job(workload="digits", network={"fabric": Fabric(0.5)}).network.fabric == Fabric(0.5)


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ("fabric", "network must be such as ps.Network(fabric=ps.Fabric()), not 'fabric'; write fabric and its fields"),
        ([1], "network must be such as ps.Network(fabric=ps.Fabric()), not [1]"),
        ({"fabrics": {}}, 'network has no "fabrics"; did you mean "fabric"?'),
        ({"fabric": {"tick": 1}}, 'network: fabric has no "tick"; did you mean "tick_s"?'),
        ({"fabric": True}, "network: fabric must be such as ps.Fabric(), not True; leave it out for none"),
        ({"fabric": {"tick_s": 0}}, "network: fabric: tick_s must be a float above 0 and at most 60, not 0"),
        ({"fabric": {"tick_s": -0.1}}, "network: fabric: tick_s must be a float above 0 and at most 60, not -0.1"),
        ({"fabric": {"tick_s": 61}}, "network: fabric: tick_s must be a float above 0 and at most 60, not 61"),
        ({"fabric": {"tick_s": float("nan")}}, "tick_s must be a float above 0"),
        ({"fabric": {"tick_s": "0.1"}}, "tick_s must be a float above 0"),
        ({"fabric": {"tick_s": None}}, "tick_s must be a float above 0"),
        ({"fabric": {"changes_s": 0}}, "network: fabric: changes_s must be a float above 0 and at most 86400, not 0"),
        ({"fabric": {"aggregators": -1}}, "network: fabric: aggregators must be an int of at least 0, not -1"),
    ],
)
def test_anything_else_is_refused(plain: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Job(workload="digits", network=plain)
    assert sentence in str(caught.value)
    assert caught.value.field == "network"
