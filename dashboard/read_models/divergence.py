"""How far replicas lag behind their servers, over time: of the whole model and of each shard."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.envelopes import Curve, Envelope
from psplatform.telemetry.log.segments import Record

MOST_SHARDS: Final = 64
"""Shards that are followed one by one; of more, the first."""

_SHARD_POINTS: Final = 256


@dataclass(frozen=True, slots=True)
class ShardRow:
    """What a shard's replicas lack now.

    Attributes
    ----------
    divergence, lag
        An upper bound of the distance to the worst replica in sync, and the updates that it lacks.
    bytes_per_second
        Sent to replicas, between the last two records; ``None`` before there are two.
    """

    shard: int
    divergence: float
    lag: int
    bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class DivergenceRows:
    """How far replicas lagged at visible versions.

    Attributes
    ----------
    distance, lag
        Of the whole model: an upper bound of the distance, and the updates that the worst replica lacked.
    distance_by_shard, lag_by_shard
        The same of each shard, sampled about once a second.
    shards
        The newest sample.
    """

    distance: Curve
    lag: Curve
    distance_by_shard: dict[int, Curve]
    lag_by_shard: dict[int, Curve]
    shards: tuple[ShardRow, ...]


class Divergence:
    """Folds ``applied`` records."""

    def __init__(self) -> None:
        self._distance, self._lag = Envelope(), Envelope()
        self._by_shard: dict[int, tuple[Envelope, Envelope]] = {}
        self._newest: tuple[float, list[list[float]]] | None = None
        self._before: tuple[float, list[list[float]]] | None = None

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        if batch.of("run"):
            self._newest = self._before = None
        at, version, records = batch.times("applied"), batch.column("applied", "version"), batch.of("applied")
        for curve, name in ((self._distance, "divergence"), (self._lag, "lag")):
            curve.extend(*_told(at, version, records, name))
        self._take_shards(list(zip(*_told(at, version, records, "by_shard"), strict=True)))

    def _take_shards(self, samples: list[tuple[float, int, list[list[float]]]]) -> None:
        for at, _, shards in samples[-2:]:
            self._before, self._newest = self._newest, (at, shards)
        most = max((len(shards) for _, _, shards in samples), default=0)
        for shard in range(min(most, MOST_SHARDS)):
            told = [(at, version, shards[shard]) for at, version, shards in samples if shard < len(shards)]
            times, versions = [at for at, _, _ in told], [version for _, version, _ in told]
            if shard not in self._by_shard:
                self._by_shard[shard] = Envelope(_SHARD_POINTS), Envelope(_SHARD_POINTS)
            distances, lags = self._by_shard[shard]
            distances.extend(times, versions, [one[0] for _, _, one in told])
            lags.extend(times, versions, [one[1] for _, _, one in told])

    @property
    def rows(self) -> DivergenceRows:
        """What is known so far."""
        by_shard = sorted(self._by_shard.items())
        return DivergenceRows(
            self._distance.curve,
            self._lag.curve,
            {shard: distances.curve for shard, (distances, _) in by_shard},
            {shard: lags.curve for shard, (_, lags) in by_shard},
            self._shards(),
        )

    def _shards(self) -> tuple[ShardRow, ...]:
        if self._newest is None:
            return ()
        at, newest = self._newest
        rates: list[float | None] = [None] * len(newest)
        if self._before is not None and at > self._before[0] and len(self._before[1]) == len(newest):
            pairs = zip(newest, self._before[1], strict=True)
            rates = [max(0.0, now[2] - then[2]) / (at - self._before[0]) for now, then in pairs]
        return tuple(
            ShardRow(shard, one[0], int(one[1]), rate)
            for shard, (one, rate) in enumerate(zip(newest, rates, strict=True))
        )


def _told(
    at: list[float], version: list[int], records: list[Record], name: str
) -> tuple[list[float], list[int], list[Any]]:
    """Return the times, versions and values of the records that have a field."""
    has = [name in record for record in records]
    if not all(has):
        at, version, records = list(compress(at, has)), list(compress(version, has)), list(compress(records, has))
    return at, version, [record[name] for record in records]
