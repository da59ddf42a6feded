"""What is true of each copy of a shard, and the error that says what is not."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Contribution
from psplatform.errors import InvariantViolation

Identity = tuple[int, int]
"""Slot and sequence of a gradient."""

Lineage = dict[Identity, int]
"""The gradients that a state is made of, each with the position at which it was applied."""

Batches = dict[tuple[int, int], Identity]
"""By epoch and number, the gradient that was computed on a batch."""

Record = Mapping[str, Any]
Records = Sequence[Record]
"""A run's log."""


def violated(name: str, found: str) -> InvariantViolation:
    """Return the error that says which invariant is violated, and by what."""
    return InvariantViolation(f"{name} is violated: {found}")


class Content(dict[str, torch.Tensor]):
    """What a server answered, with where it comes from."""

    shard: int
    version: int
    epoch: int
    digest: int
    takeovers: int


@dataclass
class History:
    """What is true of one copy.

    Attributes
    ----------
    epoch
        Under which it serves, or that of the server it copies.
    position, visible
        Positions of the newest and of the visible state.
    lineage, batches
        Of the newest state: the gradients it is made of, and the batches those were computed on.
    applied, applied_visible
        Positions at which something was applied to reach them.
    newest, front
        Parameters of the newest and of the visible state, ``float64[p]``.
    digest
        Of the newest state, optimiser included.
    """

    shard: int
    epoch: int
    newest: NDArray[np.float64]
    front: NDArray[np.float64]
    digest: int
    position: int = 0
    visible: int = 0
    version: int = 0
    lineage: Lineage = field(default_factory=dict)
    batches: Batches = field(default_factory=dict)
    applied: int = 0
    applied_visible: int = 0
    staging: deque[int] = field(default_factory=deque)
    publishing: deque[int] = field(default_factory=deque)
    skipping: deque[int] = field(default_factory=deque)
    gathered: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """The state with which a promoted copy began."""

    parameters: NDArray[np.float64]
    applied: int
    position: int


def by_position(lineage: Lineage) -> dict[int, frozenset[Identity]]:
    """Return the gradients applied at each position."""
    found: dict[int, set[Identity]] = defaultdict(set)
    for identity, position in lineage.items():
        found[position].add(identity)
    return {position: frozenset(identities) for position, identities in found.items()}
