"""The figures of gradients that are not computed."""

from __future__ import annotations

import pytest

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.messages import Contribution
from psplatform.simulation.synthetic import SyntheticGradients


def made(shards: int = 2) -> SyntheticGradients:
    return SyntheticGradients(shards, 8, signal=lambda version: 10.0 - version, noise=lambda version: 6.0 + version)


def test_a_gradient_has_the_norm_of_signal_and_noise_at_the_version_its_worker_loaded() -> None:
    one = made()
    one.publish(0, 2)
    one.publish(1, 2)
    for shard in range(2):
        one.load("w0", shard, one.snapshot(shard))
    one.publish(0, 3)
    computed = one.compute("w0", Compute(0, 7, None), 0.5)
    assert (computed.sequence, computed.samples, computed.seconds) == (7, 8, 0.5)
    assert computed.squared_norm == (10 - 2) + (6 + 2)
    assert one.compute("w1", Compute(1, 1, None), 0.5).squared_norm == 10 + 6


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("gradients", [1, 4])
def test_the_mean_of_several_has_less_noise_and_shards_report_their_parts(shards: int, gradients: int) -> None:
    one = made(shards)
    contributions = tuple(Contribution(f"w{slot}", slot, 1) for slot in range(gradients))
    parts = [one.gather(shard, contributions, norms=True) for shard in range(shards)]
    assert sum(sum(part) for part in parts) == pytest.approx(10 + 6 / gradients)
    assert one.gather(0, contributions, norms=False) == ()


def test_who_joins_again_under_a_name_has_loaded_nothing() -> None:
    one = made()
    one.load("w0", 0, 5)
    one.forget("w0")
    one.forget("w0")
    assert one.compute("w0", Compute(0, 1, None), 0.5).squared_norm == 16
