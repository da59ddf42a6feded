"""The figures of gradients that are not computed: for policies that look at norms, in simulations of times only."""

from __future__ import annotations

from collections.abc import Callable

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import Computed
from psplatform.core.protocol.messages import Contribution
from psplatform.memory.arithmetic import Metadata


class SyntheticGradients(Metadata):
    """Gradients with the squared norms that an exact gradient and independent noise would have.

    A gradient has squared norm N + V, the mean of k gradients N + V / k, where N is the squared norm of the exact
    gradient and V the noise of one, summed over coordinates.

    Parameters
    ----------
    shards
        Number of shards; each reports its part of a norm.
    samples
        Samples in a batch.
    signal, noise
        N and V at a version.
    """

    def __init__(
        self,
        shards: int,
        samples: int,
        signal: Callable[[int], float] = lambda version: 100.0 / (1 + version),
        noise: Callable[[int], float] = lambda version: 1.0,
    ) -> None:
        super().__init__(samples=samples)
        self._shards = shards
        self._signal, self._noise = signal, noise
        self._versions: dict[str, int] = {}
        self._loaded: dict[str, int] = {}

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed:
        """Return the figures of a gradient of the version that `member` loaded last."""
        version = self._loaded.get(member, 0)
        squared = self._signal(version) + self._noise(version)
        return Computed(effect.sequence, self._samples, 1.0, squared, seconds)

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...]:
        """Return the shard's part of the mean gradient's squared norm."""
        if not norms:
            return ()
        version = self._versions.get(copy, 0)
        mean = self._signal(version) + self._noise(version) / max(len(contributions), 1)
        return (mean / self._shards,)

    def publish(self, copy: str, version: int) -> None:
        """Count what is visible."""
        self._versions[copy] = version

    def skip(self, copy: str, version: int) -> None:
        """Count what is visible."""
        self._versions[copy] = version

    def snapshot(self, copy: str) -> int:
        """Return the version: it is all the content there is."""
        return self._versions.get(copy, 0)

    def load(self, member: str, shard: int, content: int) -> None:
        """Take the version; that of the first shard stands for all."""
        if shard == 0:
            self._loaded[member] = content

    def forget(self, member: str) -> None:
        """Forget what it loaded."""
        self._loaded.pop(member, None)
