"""Checkpoints in a storage that may fail, tear or lose what is written to it.

It follows the rules of `psplatform.replication.checkpoints.sealing`: the manifest is written last, names every part
with its digest, is written only when every part is found as named, and is read again before the checkpoint counts as
complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from psplatform.errors import StoreError
from psplatform.simulation.faults.schedules.schedule import BREAK

_STORE: Final = "the trial's storage"


@dataclass
class _Armed:
    what: str
    how: str
    left: int


@dataclass
class Storage:
    """What is stored, torn or not.

    Attributes
    ----------
    parts
        By checkpoint and shard, the digest of what is there; ``None`` for a torn one.
    manifests
        By checkpoint, the digests that its manifest names, by shard; ``None`` for a torn one.
    broke
        Whether writing has raised what nobody expects of a storage.
    """

    parts: dict[tuple[int, int], int | None] = field(default_factory=dict)
    manifests: dict[int, dict[int, int] | None] = field(default_factory=dict)
    broke: bool = False
    _armed: list[_Armed] = field(default_factory=list)

    def arm(self, what: str, how: str, write: int) -> None:
        """Spoil the `write`-th writing of a `what` from now on."""
        self._armed.append(_Armed(what, how, write))

    def write_part(self, number: int, shard: int, digest: int) -> None:
        """Write a part.

        Raises
        ------
        StoreError
            If the storage says that it failed; torn and lost ones look written.
        """
        how = self._fate("part")
        if how == "fail":
            raise StoreError("the storage refuses to write", store=_STORE)
        if how != "lost":
            self.parts[number, shard] = None if how == "torn" else digest

    def seal(self, number: int, named: dict[int, int]) -> None:
        """Write the manifest of a checkpoint.

        Raises
        ------
        StoreError
            If a part is not there as named, or the manifest cannot be written or read again.
        """
        self.require_parts(number, named)
        self.write_manifest(number, named)
        self.read_again(number, named)

    def require_parts(self, number: int, named: dict[int, int]) -> None:
        """See that every part is there as the manifest will say."""
        flawed = [shard for shard, digest in named.items() if self.parts.get((number, shard)) != digest]
        if flawed:
            raise StoreError(f"parts of shards {flawed} are not as they were written", store=_STORE)

    def write_manifest(self, number: int, named: dict[int, int]) -> None:
        """Write it, as well as the storage does."""
        how = self._fate("manifest")
        if how == BREAK:
            self.broke = True
            raise OSError("what speaks to the storage breaks")
        if how == "fail":
            raise StoreError("the storage refuses to write", store=_STORE)
        if how != "lost":
            self.manifests[number] = None if how == "torn" else dict(named)

    def read_again(self, number: int, named: dict[int, int]) -> None:
        """See that it reads as it was written."""
        if self.manifests.get(number) != named:
            raise StoreError("the manifest does not read as it was written", store=_STORE)

    def discard(self, number: int) -> None:
        """Remove the parts of a checkpoint that has no manifest."""
        if number not in self.manifests:
            self.parts = {key: digest for key, digest in self.parts.items() if key[0] != number}

    def is_whole(self, number: int) -> bool:
        """Whether a recovery of the run would take that checkpoint."""
        named = self.manifests.get(number)
        return named is not None and all(self.parts.get((number, shard)) == digest for shard, digest in named.items())

    def _fate(self, what: str) -> str:
        for one in self._armed:
            if one.what == what and one.left > 0:
                one.left -= 1
                if not one.left:
                    return one.how
        return "well"
