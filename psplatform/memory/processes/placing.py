"""The Dask workers of an in-memory run as the pool of gradient workers sees them, and who watches how it uses them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from psplatform.core.supervision.placement import Process
from psplatform.core.supervision.unavailable import UnavailableProcesses


class PlacingPool(Protocol):
    """The pool of one coordinator's gradient workers.

    Attributes
    ----------
    unavailable
        The processes in which no role is placed.
    sighted
        The processes that there were at the last look at the cluster.
    """

    unavailable: UnavailableProcesses
    sighted: list[str]

    @property
    def lead(self) -> str:
        """The name of the coordinator."""

    @property
    def addresses(self) -> Collection[str]:
        """Where there are gradient workers, those that are only being made included."""

    @property
    def copies(self) -> Collection[str]:
        """Where there are copies of shards."""


class OnPlacing:
    """Is told how one coordinator after the other looks for gradient workers; by itself, it does nothing about it."""

    def on_asked(self, pool: PlacingPool, address: str) -> None:
        """Hear that a process is about to be asked whether it can take a gradient worker."""

    def on_answered(self, pool: PlacingPool, address: str, *, fits: bool) -> None:
        """Hear what it answered, or that it did not answer in time."""

    def on_starting(self, pool: PlacingPool, address: str) -> None:
        """Hear that a gradient worker is about to be started there."""

    def on_not_started(self, pool: PlacingPool, address: str) -> None:
        """Hear that a gradient worker could not be started there."""

    def on_left(self, pool: PlacingPool, address: str, reason: str) -> None:
        """Hear that the gradient worker there has left by itself."""


class Cluster(Protocol):
    """The Dask workers that there are.

    Attributes
    ----------
    on_placing
        Told of how gradient workers are placed.
    """

    there: list[Process]
    on_placing: OnPlacing

    def refuses(self, name: str, address: str, /) -> bool:
        """Whether a gradient worker of that name cannot be started in the process at that address."""

    def has_nanny(self, address: str) -> bool:
        """Whether the nanny of a process that has ended lives, and can tell of what that died."""
