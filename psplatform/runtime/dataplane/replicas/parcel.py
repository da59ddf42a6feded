"""What a transfer from a shard's server to a replica carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from psplatform.core.protocol.messages import Transfer
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.dataplane.segments import Place, SegmentName


@dataclass(frozen=True, slots=True)
class Parcel:
    """A transfer with what it carries.

    Attributes
    ----------
    commits, reach
        Steps of the optimiser that a whole state has seen, and a norm that its parameters do not exceed; ``None``
        where none is known.
    outbox
        Where the arrays lie, or ``None`` where they are in `arrays`.
    keys
        Names of the vectors, in the order of `arrays`.
    slabs
        The slabs of the workers of this host, by member; with gradients, of those that are named.
    in_place
        Where the server shows the parameters, if they are to be read there; ``None`` if they lie in the outbox.
    """

    transfer: Transfer
    commits: int
    keys: tuple[str, ...]
    outbox: SegmentName | None
    arrays: tuple[NDArray[Any], ...]
    slabs: Mapping[str, SegmentName]
    in_place: Place | None = None
    reach: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the transfer as the protocol has it, and names as what is in them: far quicker than field by field."""
        slabs = {member: (name.path, name.mark) for member, name in self.slabs.items()}
        outbox = (self.outbox.path, self.outbox.mark) if self.outbox is not None else None
        place = self.in_place
        in_place = (place.segment.path, place.segment.mark, place.at) if place is not None else None
        state = self.commits, self.reach
        return _parcel_of, (encode(self.transfer), state, self.keys, self.arrays, outbox, in_place, slabs)


def _parcel_of(
    transfer: bytes,
    state: tuple[int, float | None],
    keys: tuple[str, ...],
    arrays: tuple[NDArray[Any], ...],
    outbox: tuple[str, int] | None,
    in_place: tuple[str, int, int] | None,
    slabs: dict[str, tuple[str, int]],
) -> Parcel:
    commits, reach = state
    lies_in = SegmentName(*outbox) if outbox else None
    names = {member: SegmentName(*name) for member, name in slabs.items()}
    place = Place(SegmentName(*in_place[:2]), in_place[2]) if in_place else None
    return Parcel(decode(transfer), commits, keys, lies_in, arrays, names, place, reach)
