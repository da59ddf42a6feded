"""What became of each gradient whose blocks are decided about one by one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Parts:
    open: int
    applied: bool = False


@dataclass
class Fates:
    """Counts the blocks of every gradient until all are applied or dropped.

    Parameters
    ----------
    blocks
        Blocks that a gradient consists of.
    """

    blocks: int
    _parts: dict[tuple[int, int], _Parts] = field(default_factory=dict)

    @property
    def open(self) -> set[tuple[int, int]]:
        """The gradients of which a part is decided, and another is not."""
        return set(self._parts)

    def apply(self, slot: int, sequence: int) -> bool:
        """Note that a block of the gradient was applied; return whether it was the first."""
        if self.blocks == 1:
            return True
        parts = self._settle(slot, sequence)
        first, parts.applied = not parts.applied, True
        return first

    def drop(self, slot: int, sequence: int) -> bool:
        """Note that a block of the gradient was dropped; return whether it was the last, and none was applied."""
        if self.blocks == 1:
            return True
        parts = self._settle(slot, sequence)
        return not parts.open and not parts.applied

    def miss(self, slot: int, sequence: int, blocks: int) -> bool:
        """Note that so many blocks of the gradient will never come; return whether all of it is lost."""
        if blocks == self.blocks:
            return True
        parts = self._settle(slot, sequence, blocks)
        return not parts.open and not parts.applied

    def _settle(self, slot: int, sequence: int, blocks: int = 1) -> _Parts:
        parts = self._parts.setdefault((slot, sequence), _Parts(self.blocks))
        parts.open -= blocks
        if not parts.open:
            del self._parts[slot, sequence]
        return parts
