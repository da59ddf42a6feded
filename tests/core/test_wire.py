"""The wire format: every message survives it, its codes never change, and what is no message is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core import effects, events, messages
from psplatform.core.wire import decode, encode
from psplatform.errors import ProtocolError

LABEL = messages.Label((3, 4), (1, 2))
TICKET = messages.Ticket(1, 7)
CONTRIBUTION = messages.Contribution("m", 2, 9)

# One of each type with its bytes.  They are part of the format: a change here breaks runs of mixed versions.
GOLDEN: list[tuple[Any, str]] = [
    (LABEL, "c7070092920304920102"),
    (TICKET, "c70301920107"),
    (messages.Join("m", "p"), "c7050292a16da170"),
    (messages.Welcome(1, 2, 3), "d60393010203"),
    (messages.Release(1, 9, 4, None), "c7050494010904c0"),
    (messages.Abort(1, 9), "c70305920109"),
    (messages.Stop(1, "r"), "d6069201a172"),
    (
        messages.Announce("m", 9, LABEL, 4, 0.5, 2.0, 1.0, 0.0, 0.25, math.inf),
        "c746079ba16d09c707009292030492010204 cb3fe0000000000000cb4000000000000000cb3ff0000000000000cb0000000000000000\
        cb3fd0000000000000cb7ff000000000000090",
    ),
    (messages.Aborted("m", 9, 0.5), "c70d0893a16d09cb3fe0000000000000"),
    (messages.Failed("m", 9, "k", "t", "b"), "c70a0995a16d09a16ba174a162"),
    (messages.Leave("m", "r"), "c7050a92a16da172"),
    (CONTRIBUTION, "c7050b93a16d0209"),
    (
        messages.Commit(1, 2, 3, 4, (CONTRIBUTION,), 0.5, True, False),
        "c7190c98010203 0491c7050b93a16d0209cb3fe0000000000000c3c2",
    ),
    (messages.Proceed(1, 3, 0.5), "c70c0d930103cb3fe0000000000000"),
    (messages.Gathered(0, 1, 3, (0.5,)), "c70e0e9400010391cb3fe0000000000000"),
    (messages.Applied(0, 1, 3, 4, ()), "c7060f950001030490"),
    (messages.Refused(0, 1, 2), "d61093000102"),
    (messages.Pull("m", 0, 5, 4), "c7061194a16d000504"),
    (messages.Pulled(0, 5, 4, 1), "c705129400050401"),
    (effects.Evaluate(4, True), "c703139204c3"),
    (effects.SaveModel(4), "d5149104"),
    (events.Evaluated(4, None, 0.5), "c70c159304c0cb3fe0000000000000"),
    (events.EvaluationFailed("k", "t", "b"), "c7071693a16ba174a162"),
    (events.ModelSaved(4), "d5179104"),
    (events.SaveFailed("t", "s"), "c7051892a174a173"),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda one: type(one).__name__)
def test_codes_and_bytes_are_stable(message: Any, golden: str) -> None:
    assert encode(message).hex() == "".join(golden.split())


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda one: type(one).__name__)
def test_every_message_survives_the_round_trip(message: Any) -> None:
    assert decode(encode(message)) == message
    assert type(decode(encode(message))) is type(message)


def test_every_message_that_travels_is_tested() -> None:
    described = {type(message) for message, _ in GOLDEN}
    declared = {one for one in vars(messages).values() if dataclasses.is_dataclass(one)}
    assert declared <= described


def test_a_list_of_messages_comes_back_as_a_tuple() -> None:
    assert decode(encode([TICKET, LABEL])) == (TICKET, LABEL)


def test_figures_that_are_not_finite_travel() -> None:
    announce = dataclasses.replace(GOLDEN[7][0], loss=math.nan, squared_norm=-math.inf)
    found = decode(encode(announce))
    assert math.isnan(found.loss)
    assert found.squared_norm == -math.inf


@pytest.mark.parametrize("value", [object(), effects.Dismiss("m", "r"), {1, 2}])
def test_what_is_no_message_is_not_sent(value: Any) -> None:
    with pytest.raises(ProtocolError, match=f"{type(value).__name__} is not a message"):
        encode(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode(LABEL)[:-1],
        encode(LABEL) + b"\x00",
        msgpack.packb(msgpack.ExtType(100, msgpack.packb([1, 2]))),
        msgpack.packb(msgpack.ExtType(3, msgpack.packb([1, 2]))),
        msgpack.packb(msgpack.ExtType(3, msgpack.packb([1, 2, 3, 4]))),
        msgpack.packb(msgpack.ExtType(3, msgpack.packb(5))),
        b"\xd5\xfe\x91\x04",
    ],
    ids=["empty", "unused", "cut", "long", "unknown code", "few fields", "many fields", "no fields", "negative code"],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="all processes must run the same psplatform"):
        decode(data)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_bytes_make_anything_but_a_value_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(data)


def test_nesting_without_end_is_refused() -> None:
    data = msgpack.packb(1)
    for _ in range(3000):
        data = msgpack.packb(msgpack.ExtType(0, data))
    with pytest.raises(ProtocolError):
        decode(data)
