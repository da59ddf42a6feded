"""What a simulated cluster is like, in words: read, or refused in one sentence before anything is run."""

from __future__ import annotations

import math

import pytest

from psplatform.errors import ConfigurationError
from psplatform.jobs.distributions import Constant, Uniform
from psplatform.jobs.stragglers import Stragglers
from psplatform.simulation.conditions import Conditions, SimulatedNetwork, parse_network, parse_run_times
from psplatform.simulation.network import Links
from psplatform.simulation.regimes import Regime, Switching
from psplatform.simulation.run_times import Correlated, Independent, Nodes, RunTimes, Slowed, Traced

TRACE = "slot,sequence,seconds,pull_s,push_s\n0,0,0.1,0,0\n0,1,0.2,0,0\n1,0,0.3,0,0\n"
WRONG = "slot,sequence,seconds,pull_s,push_s\n0,0,1,0,0\n0,1,nan,0,0\n"
FILES = {"t.csv": TRACE, "bad.csv": WRONG, "words.csv": "a,b\n"}


def read(name: str) -> str:
    if name not in FILES:
        raise FileNotFoundError(f"no such file: {name}")
    return FILES[name]


def parsed(text: str, workers: int = 2) -> RunTimes:
    return parse_run_times(text, seed=7, workers=workers, field="compute", read=read)


def times_of(conditions: Conditions, stragglers: Stragglers | None = None, workers: int = 2) -> RunTimes:
    return conditions.run_times(seed=7, workers=workers, stragglers=stragglers, read=read)


def test_a_distribution_nodes_or_a_trace_says_how_long_gradients_take() -> None:
    assert parsed("uniform:low=0.1,high=0.2") == Independent(Uniform(0.1, 0.2), 7)
    nodes = "nodes:size=40,mean=1,sd=0.4,share=0.5,memory=0.9"
    assert parsed(nodes) == Correlated(Nodes(40, 1.0, 0.4, 0.5, 0.9), 7)
    assert parsed("trace:t.csv") == Traced(((0.1, 0.2), (0.3,)))


def test_slowness_and_regimes_come_on_top_in_any_order() -> None:
    times = parsed(
        "regime:first=0,last=1,factor=3,from=0,until=60; factors:1,2;constant:seconds=1;"
        "slow:chance=0.1,factor=4;regime:first=1,last=1,factor=2,from=9,until=10;"
    )
    slow = Stragglers(factors=(1.0, 2.0), slow_chance=0.1, slow_factor=4.0)
    regimes = (Regime(0, 1, 3.0, 0, 60), Regime(1, 1, 2.0, 9, 10))
    assert times == Switching(Slowed(Independent(Constant(1.0), 7), slow, 7), regimes)


def test_where_nothing_is_said_a_gradient_takes_a_tenth_of_a_second() -> None:
    assert times_of(Conditions()).seconds(0, 0) == 0.1


def test_the_jobs_own_stragglers_are_slow_in_the_simulation_as_well() -> None:
    """With a target it says all there is to say, unless an own time is longer; factors multiply what there is."""
    assert times_of(Conditions(), Stragglers(Constant(0.03))).seconds(0, 0) == 0.03
    assert times_of(Conditions(compute="constant:seconds=0.2"), Stragglers(Constant(0.03))).seconds(0, 0) == 0.2
    assert times_of(Conditions(round_trip="constant:seconds=1"), Stragglers(factors=(1, 3))).seconds(1, 0) == 3.0
    assert times_of(Conditions(), Stragglers(trace=((0.5,), (0.6,)))).seconds(1, 9) == 0.6


def test_a_network_is_its_interfaces_hosts_and_servers() -> None:
    assert parse_network("nic:gbps=10,latency=0.0001") == SimulatedNetwork(Links((10.0,), latency_s=0.0001))
    every = "server:update=0.01; hosts:workers=2,servers=3;change:every=5,gbps=5+10,chance=0.1+0.9;"
    links = Links((5.0, 10.0), (0.1, 0.9), 5.0, 0.001, 2, 3)
    assert parse_network(f"{every}nic:gbps=10,latency=0.001") == SimulatedNetwork(links, 0.01)
    assert parse_network("server:update=0.01") == SimulatedNetwork(None, 0.01)
    assert parse_network("nic:gbps=1,latency=0").links == Links((1.0,), every_s=math.inf)
    assert parse_network("nic:gbps=1,latency=0;model:mb=100").model_bytes == 100e6
    assert parse_network("nic:gbps=1,latency=0;report:lag=0.2").lag_s == 0.2
    assert parse_network("nic:gbps=1,latency=0").lag_s is None


BAD_TIMES = [
    ("", "give one distribution, or nodes, or a trace"),
    ("slow:chance=0.1,factor=2", "give one distribution, or nodes, or a trace"),
    ("constant:seconds=1;trace:t.csv", "give only one of them"),
    ("constant:seconds=1;nodes:size=1,mean=1,sd=0,share=0,memory=0", "give one distribution, or nodes, or a trace"),
    ("nodes:size=1,mean=1,sd=0,share=0,memory=0;nodes:size=2,mean=1,sd=0,share=0,memory=0", "give one distribution"),
    ("uniform:low=1,high=2;constant:seconds=1", "is a second distribution; keep one of them"),
    ("unform:low=1,high=2", '"unform" says nothing about run times; did you mean "uniform"?'),
    ("5", '"5" says nothing about run times; choose from constant'),
    ("uniform:low=1", "uniform lacks high; write low=...,high=..."),
    ("uniform:low=1,hihg=2", 'uniform has no "hihg"; did you mean "high"?'),
    ("uniform:low=2,high=1", "low=2.0 is above high=1.0; exchange them"),
    ("constant:seconds=fast", 'constant: seconds="fast" is not a number; write it like 0.05'),
    ("constant:seconds=-1", "constant: seconds must be a finite number of at least 0, not -1.0"),
    ("constant:seconds=nan", "constant: seconds must be a finite number of at least 0, not nan"),
    ("constant:seconds=inf", "constant: seconds must be a finite number of at least 0, not inf"),
    ("nodes:size=1,mean=-1,sd=0,share=0,memory=0", "nodes: mean must be a finite number above 0, not -1.0"),
    ("nodes:size=1.5,mean=1,sd=0,share=0,memory=0", 'nodes: size="1.5" is not a count'),
    ("nodes:size=1,mean=1", "nodes lacks sd and share and memory"),
    ("trace:nowhere.csv", "trace nowhere.csv cannot be read (no such file: nowhere.csv); name a CSV file"),
    ("trace:bad.csv", "trace bad.csv, line 3: row: seconds must be a finite number of at least 0, not nan"),
    ("trace:words.csv", "trace words.csv, line 1: no column slot or sequence or seconds"),
    ("constant:seconds=1;slow:chance=2,factor=2", "slow_chance must be a float from 0 to 1, not 2.0"),
    ("constant:seconds=1;factors:1,0", "factors must be finite numbers above 0, not (1.0, 0.0)"),
    ("constant:seconds=1;regime:first=0,last=1,factor=3", "regime lacks from and until"),
    ("constant:seconds=1;regime:first=1,last=0,factor=3,from=0,until=1", "no range of slots"),
    ("constant:seconds=1;regime:first=0,last=1,factor=3,from=-1,until=1", 'regime: from="-1" is not a count'),
    (
        "constant:seconds=1;regime:first=2,last=3,factor=3,from=0,until=1",
        "first=2 is no slot of a job with 2 workers; they are 0 to 1",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_TIMES)
@pytest.mark.parametrize("field", ["compute", "round_trip"])
def test_run_times_that_make_no_sense_are_refused(field: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        times_of(Conditions(**{field: text}))
    assert str(caught.value).startswith(f"{field}: ")
    assert sentence in str(caught.value)
    assert caught.value.field == field


def test_a_trace_of_another_number_of_workers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="compute: the trace is of 2 workers and the job has 3; give the job"):
        times_of(Conditions(compute="trace:t.csv"), workers=3)
    with pytest.raises(ConfigurationError, match="stragglers: the trace is of 1 workers and the job has 2"):
        times_of(Conditions(), Stragglers(trace=((1.0,),)))


BAD_NETWORKS = [
    ("nic:gbps=10", "nic lacks latency; write gbps=...,latency=..."),
    ("nic:gbps=-10,latency=0", "nic: gbps must be a finite number above 0, not -10.0"),
    ("nic:gbps=nan,latency=0", "nic: gbps must be a finite number above 0, not nan"),
    ("nic:gbps=10,latency=-1", "nic: latency must be a finite number of at least 0, not -1.0"),
    ("nic:gbps=10,latency=0;nic:gbps=1,latency=0", "is a second nic; keep one of them"),
    ("nci:gbps=10,latency=0", '"nci" is no part of a network; did you mean "nic"?'),
    ("hosts:workers=2,servers=1", "a network needs its interfaces; write nic:gbps=10,latency=0.0001"),
    ("nic:gbps=10,latency=0;hosts:workers=0,servers=1", "hosts: workers must be an int of at least 1, not 0"),
    ("nic:gbps=10,latency=0;hosts:workers=x,servers=1", 'hosts: workers="x" is not a count'),
    ("nic:gbps=10,latency=0;change:every=5,gbps=5+10,chance=0.5+0.4", "one chance for each rate of gbps, adding up"),
    ("nic:gbps=10,latency=0;change:every=5,gbps=5,chance=0.5+0.5", "one chance for each rate of gbps"),
    (
        "nic:gbps=10,latency=0;change:every=0,gbps=5,chance=1",
        "change: every must be a float of at least 0.001, not 0.0",
    ),
    ("nic:gbps=10,latency=0;change:every=5,gbps=5+,chance=1", 'change: gbps="" is not a number'),
    ("nic:gbps=-1,latency=0;change:every=5,gbps=5,chance=1", "nic: gbps must be a finite number above 0, not -1.0"),
    ("nic:gbps=1,latency=0;model:mb=0", "model: mb must be a finite number above 0, not 0.0"),
    ("nic:gbps=1,latency=0;report:lag=-1", "report: lag must be a finite number of at least 0, not -1.0"),
    ("report:lag=1", "a network needs its interfaces"),
    ("model:mb=100", "a network needs its interfaces; write nic:gbps=10,latency=0.0001"),
    ("server:update=-1", "server: update must be a finite number of at least 0, not -1.0"),
    ("server:update=nan", "server: update must be a finite number of at least 0, not nan"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_NETWORKS)
def test_networks_that_make_no_sense_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_network(text)
    assert str(caught.value).startswith("network: ")
    assert sentence in str(caught.value)
    assert caught.value.field == "network"


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [({"compute": "constant:seconds=1"}, "compute"), ({"network": "nic:gbps=1,latency=0"}, "network")],
)
def test_a_round_trip_includes_what_it_would_be_given_beside(fields: dict[str, str], blamed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Conditions(round_trip="constant:seconds=1", **fields)
    assert caught.value.field == blamed
    assert "round_trip" in str(caught.value)
    assert "give" in str(caught.value)
