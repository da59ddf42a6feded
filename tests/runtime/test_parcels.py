"""What is pickled for every update: a transfer, and the answer to a pull."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.wire import encode
from psplatform.runtime.comms.frames import pickled, unpickled
from psplatform.runtime.dataplane.pulls.content import Answer
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.segments import Place, SegmentName

TICKET, BUNDLE = msg.BatchAssignment(1, 7), msg.Bundle("w1", 1, 7)
GRADIENTS = (msg.Contribution("w0", 0, 9, TICKET), msg.Contribution("w1", 1, 8, None, BUNDLE))
PAST = msg.Past(msg.Commit(1, 2, 3, 4, GRADIENTS, 0.5, True, False), (0.5,))
PLAIN = msg.Transfer("server-0", 0, 3, 5, msg.UPDATE, 7, 8, 0.5, ())
FULL = msg.Transfer(*("server-0", 0, 3, 5, msg.GRADIENTS, 7, 8, 0.5, ((0, 4),), 100001, (PAST,), GRADIENTS, 0.25))
ROOM, SLAB = SegmentName("/memory/room", 1 << 61), SegmentName("/memory/slab", 3)


def sent(one: Any) -> Any:
    """Return what arrives of what is sent to another process."""
    return unpickled(pickled(one) or b"")


@pytest.mark.parametrize(
    "parcel",
    [
        Parcel(PLAIN, 2, ("weight", "bias"), ROOM, (), {"w0": SLAB, "w1": ROOM}),
        Parcel(PLAIN, 2, ("weight", "bias"), ROOM, (), {"w0": SLAB}, Place(SLAB, 4096), 2.5),
        Parcel(FULL, 0, (), None, (), {}),
    ],
    ids=["where it lies", "in place", "named gradients"],
)
def test_a_parcel_arrives_as_it_was_sent(parcel: Parcel) -> None:
    assert sent(parcel) == parcel


def test_the_arrays_of_a_parcel_travel_with_it() -> None:
    arrays = np.arange(3.0), np.arange(4)
    found = sent(Parcel(PLAIN, 2, ("weight", "seen"), None, arrays, {}))
    assert found.keys == ("weight", "seen")
    assert [array.tolist() for array in found.arrays] == [array.tolist() for array in arrays]


def test_a_transfer_is_pickled_as_the_protocol_has_it() -> None:
    """Far quicker than field by field, message in message."""
    assert encode(FULL) in (pickled(Parcel(FULL, 0, (), None, (), {})) or b"")


@pytest.mark.parametrize("one", [Parcel(PLAIN, 2, (), ROOM, (), {"w0": SLAB}, Place(SLAB, 1)), Answer(b"pulled", 1)])
def test_nothing_that_is_sent_for_every_update_is_pickled_field_by_field(
    one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (Parcel, Answer, Place, SegmentName, msg.Transfer):
        monkeypatch.setattr(kind, "__getstate__", lambda self: pytest.fail("slow"))
        monkeypatch.setattr(kind, "__setstate__", lambda self, state: pytest.fail("slow"), raising=False)
    assert sent(one) == one


def test_an_answer_arrives_as_it_was_sent() -> None:
    content = np.arange(3.0)
    found = sent(Answer(b"pulled", 1, (content,)))
    assert (found.pulled, found.copy) == (b"pulled", 1)
    assert [array.tolist() for array in found.arrays] == [content.tolist()]
    assert sent(Answer(None)) == Answer(None)
