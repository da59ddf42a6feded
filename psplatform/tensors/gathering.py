"""The contributions to one commit of a shard, and what is merged of them.

They are merged where and when that is needed: while a step is made, tile by tile (`sources`, `merging`, `Tiles`), or
into vectors of their own (`merged`, `scale`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from psplatform.tensors.shares import Share, shares, together
from psplatform.tensors.sums import add_up
from psplatform.tensors.vectors import part_of, split, tile

Merge = Callable[[Sequence[Tensor], Tensor], None]
"""Writes what several vectors become into one."""


class Gathering:
    """What a shard has gathered for the commit at hand; nothing between commits.

    Parameters
    ----------
    like
        A vector of the dtype and length of each of the shard's pieces.
    parameters
        The pieces that are parameters, of which gradients are merged; the others are buffers.
    sums
        Whether gradients get the sum, not the mean.
    adds_up
        Whether gradients that are updates by themselves get the sum.
    """

    def __init__(self, like: Mapping[str, Tensor], parameters: Sequence[str], *, sums: bool, adds_up: bool) -> None:
        self._like, self._parameters = like, parameters
        self._sums, self._adds_up = sums, adds_up
        self._scratch: dict[str, Tensor] = {}
        # By piece: the contributions, what was merged of them, and where that is to lie.
        self._parts: dict[str, list[Tensor]] = {}
        self._merged: dict[str, Tensor] = {}
        self._room: Mapping[str, Tensor] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def touch(self) -> None:
        """Write to all memory that contributions may be merged into."""
        for key in self._parameters:
            self._private(key).zero_()

    def take(
        self,
        contributions: Sequence[Mapping[str, Tensor]],
        room: Mapping[str, Tensor],
        *,
        gradients: int,
        added: bool,
        copied: bool,
    ) -> None:
        """Take the contributions to a commit, as `Shard.gather` says; `room` is empty or has a place for each piece."""
        self._parts = {key: [vectors[key] for vectors in contributions] for key in self._like}
        self._merged = {}
        self._room = room
        if added or gradients not in (0, len(contributions)):
            self._merged = {
                key: self._add_up(key, parts, gradients or len(parts), added=added)
                for key, parts in self._parts.items()
            }
        elif copied:
            self._merged = {key: self._merge(key, parts, copied=True) for key, parts in self._parts.items()}

    def forget(self) -> None:
        """Let go of the contributions, and of what was merged of them."""
        self._parts, self._merged, self._room = {}, {}, {}

    @property
    def merged(self) -> Mapping[str, Tensor]:
        """What is merged of every piece, in vectors that stay until the next commit's are taken."""
        for key in self._parts.keys() - self._merged.keys():
            self._merged[key] = self._merge(key, self._parts[key], copied=bool(self._room))
        return self._merged

    def scale(self, factor: float) -> None:
        """Multiply what is merged of the parameters."""
        merged = self.merged
        for key in self._parameters:
            self._merged[key] = torch.mul(merged[key], factor, out=self._private(key))

    def of(self, key: str) -> Tensor:
        """Return what is merged of one piece, perhaps a contribution itself."""
        return self._merged[key] if key in self._merged else self._merge(key, self._parts[key])

    def sources(self, key: str) -> tuple[Sequence[Tensor], Tensor | None]:
        """Return what a step merges of a piece, and the vector that it writes the result to as well, if any."""
        found = self._merged.get(key)
        return (self._parts[key], self._room.get(key)) if found is None else ([found], None)

    def merging(self, key: str, count: int) -> Merge:
        """Return what merges so many vectors of a piece."""
        if count == 1:
            return _copy
        if key in self._parameters:
            return _sum if self._sums else _mean
        return _mean if self._like[key].is_floating_point() else _maximum

    def filled(self) -> None:
        """Count what the step was told to write the parameters' contributions to as merged."""
        for key in self._parameters if self._room else ():
            self._merged.setdefault(key, self._room[key])

    def _merge(self, key: str, parts: Sequence[Tensor], *, copied: bool = False) -> Tensor:
        if len(parts) == 1 and not copied:
            return parts[0]
        merge = self.merging(key, len(parts))
        out, tiled = self._private(key), tile()

        def work(share: Share) -> None:
            for _, piece in share:
                pieces = [part_of(vector, piece) for vector in (out, *parts)]
                for target, *tiles in zip(*[split(one, tiled) for one in pieces], strict=True):
                    merge(tiles, target)

        together(work, shares([out.numel()]))
        return out

    def _add_up(self, key: str, parts: Sequence[Tensor], gradients: int, *, added: bool) -> Tensor:
        """Return what is merged of parts that may be sums, in one pass after the other."""
        out = self._private(key)
        add_up([{key: part} for part in parts], {key: out})
        is_sum = key in self._parameters and (self._sums or (added and self._adds_up))
        return out if is_sum or not out.is_floating_point() else out.div_(gradients)

    def _private(self, key: str) -> Tensor:
        if key in self._room:
            return self._room[key]
        if key not in self._scratch:
            self._scratch[key] = torch.empty_like(self._like[key])
        return self._scratch[key]


class Tiles:
    """What one thread merges, a tile at a time, in memory that it writes over with the next."""

    def __init__(self) -> None:
        self._memory: dict[torch.dtype, Tensor] = {}

    def of(self, tiles: Sequence[Tensor], merge: Merge, *, into_first: bool) -> Tensor:
        """Return what a merge makes of tiles, all of one length; the first is the room for that, if `into_first`."""
        if into_first:
            merge(tiles[1:], tiles[0])
            return tiles[0]
        dtype, length = tiles[0].dtype, tiles[0].numel()
        memory = self._memory.get(dtype)
        if memory is None or memory.numel() < length:
            memory = self._memory[dtype] = torch.empty_like(tiles[0])
        out = memory if memory.numel() == length else memory[:length]
        merge(tiles, out)
        return out


def _copy(parts: Sequence[Tensor], out: Tensor) -> None:
    out.copy_(parts[0])


def _sum(parts: Sequence[Tensor], out: Tensor) -> None:
    torch.add(parts[0], parts[1], out=out)
    for part in parts[2:]:
        out.add_(part)


def _mean(parts: Sequence[Tensor], out: Tensor) -> None:
    _sum(parts, out)
    out.div_(len(parts))


def _maximum(parts: Sequence[Tensor], out: Tensor) -> None:
    torch.maximum(parts[0], parts[1], out=out)
    for part in parts[2:]:
        torch.maximum(out, part, out=out)
