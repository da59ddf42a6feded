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

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import effects, events, messages, place_messages
from psplatform.core.protocol.wire import decode, encode
from psplatform.errors import (
    ClusterError,
    ConfigurationError,
    DivergedError,
    ProcessDied,
    ProtocolError,
    PsplatformError,
    UserCodeError,
    to_plain,
)
from psplatform.jobs.schedules import Constant
from psplatform.policies.bsp import BulkSynchronous

LABEL = messages.Label((3, 4), (1, 2))
TICKET = messages.BatchAssignment(1, 7)
FLAW = messages.Flaw("the loss", (3, 5), 9, alone=False)
BUNDLE = messages.Bundle("m", 1, 7)
CONTRIBUTION = messages.Contribution("m", 2, 9, TICKET)
COMMIT = messages.Commit(1, 2, 3, 4, (CONTRIBUTION,), 0.5, True, False)
PAST = messages.Past(COMMIT, (0.5,))
FAILURE = ClusterError("gone", peer="p")
DEATH = ProcessDied("gone", kind="k", peer="p", pid=5, code=-9)
STANDING = messages.ServerState(0, "c", 2, 3, True, 7, (COMMIT,))

# One of each type with its bytes.  They are part of the format: a change here breaks runs of mixed versions.
GOLDEN: list[tuple[Any, str]] = [
    (LABEL, "c7070092920304920102"),
    (TICKET, "c70301920107"),
    (messages.Join("m", "p", "h"), "c7070293a16da170a168"),
    (messages.Welcome(1, 2, 3), "d60393010203"),
    (messages.Release(1, 9, 4, None, "m", 0.5, True), "c7110497010904c0a16dcb3fe0000000000000c3"),
    (messages.Abort(1, 9), "c70305920109"),
    (messages.Stop(1, "r"), "d6069201a172"),
    (
        messages.Announce("m", 9, LABEL, 4, 0.5, 2.0, 1.0, 0.0, 0.25, math.inf, (), 4),
        "c749079ea16d09c707009292030492010204cb3fe0000000000000cb4000000000000000cb3ff0000000000000cb \
        0000000000000000cb3fd0000000000000cb7ff00000000000009004c0c0",
    ),
    (messages.Aborted("m", 9, 0.5), "c70d0893a16d09cb3fe0000000000000"),
    (messages.Failed("m", 9, "k", "t", "b"), "c70a0995a16d09a16ba174a162"),
    (messages.Leave("m", "r"), "c7050a92a16da172"),
    (CONTRIBUTION, "c70c0b95a16d0209c70301920107c0"),
    (COMMIT, "c7230c9b0102030491c70c0b95a16d0209c70301920107c0cb3fe0000000000000c3c200c201"),
    (messages.Proceed(1, 3, 0.5), "c70c0d930103cb3fe0000000000000"),
    (messages.Gathered(0, 1, 3, (0.5,)), "c70e0e9400010391cb3fe0000000000000"),
    (messages.Applied(0, 1, 3, 4, ()), "c71a0f990001030490cb0000000000000000cb00000000000000000000"),
    (messages.Refused(0, 1, 2), "d61093000102"),
    (messages.Pull("m", 0, 5, 4), "c7071195a16d00050400"),
    (messages.Pulled(0, 5, 4, 1, 2), "c70612950005040102"),
    (effects.Evaluate(4, True), "d6139304c3c0"),
    (effects.SaveModel(4), "d5149104"),
    (events.Evaluated(4, None, 0.5), "c70f159604c0cb3fe000000000000080c2a0"),
    (events.EvaluationFailed("k", "t", "b"), "c7071693a16ba174a162"),
    (events.ModelSaved(4), "d5179104"),
    (events.SaveFailed("t", "s"), "c7051892a174a173"),
    (messages.Promote(2, 3, 7, "c", ("d",), settled=False), "c70a1996020307a16391a164c2"),
    (
        messages.Promoted(0, "c", 3, 7, 8, 2, (COMMIT,)),
        "c72f1a9700a1630307080291c7230c9b0102030491c70c0b95a16d0209c70301920107c0cb3fe0000000000000c \
        3c200c201",
    ),
    (messages.Include(2, 3, "r"), "c7051b930203a172"),
    (messages.Exclude(2, 3, "r"), "c7051c930203a172"),
    (messages.InSync(0, 3, "r", 7), "c7061d940003a17207"),
    (
        messages.Transfer(
            *("c", 0, 3, 5, messages.GRADIENTS, 7, 8, 0.5, ((0, 4), (2, 9)), 100001, (PAST,)),
            *((messages.Contribution("m", 2, 9),), 0.25),
        ),
        "c7711e9ea163000305a96772616469656e74730708cb3fe000000000000092920004920209ce000186a191c7313 \
        c92c7230c9b0102030491c70c0b95a16d0209c70301920107c0cb3fe0000000000000c3c200c20191cb3fe00000 \
        0000000091c7070b95a16d0209c0c0cb3fd000000000000001",
    ),
    (messages.Replicated(0, "r", 3, 5, 7), "c7071f9500a172030507"),
    (messages.Outdated(0, 4), "c70320920004"),
    (messages.Unreachable(0, 3, 7), "d62193000307"),
    (messages.Moved(2, 0, 3, "c"), "c7062294020003a163"),
    (messages.Written(0, 100001, 7, {"parts": (1, 2)}), "c712239400ce000186a10781a57061727473920102"),
    (messages.NotWritten(0, 100001, "t"), "c709249300ce000186a1a174"),
    (messages.Beat("c", 0.5, 2.0), "c7152593a163cb3fe0000000000000cb4000000000000000"),
    (messages.Lease(2, 0.5, 1.0), "c714269302cb3fe0000000000000cb3ff0000000000000"),
    (messages.StateRequest(2, 7), "c70327920207"),
    (
        STANDING,
        "c730289800a1630203c30791c7230c9b0102030491c70c0b95a16d0209c70301920107c0cb3fe0000000000000c \
        3c200c20190",
    ),
    (messages.WorkerState(2, "m", 9, 4, TICKET), "c70e299702a16d0904c7030192010790c2"),
    (messages.LogEntry(1, 6, 0.5, messages.Abort(1, 9)), "c7122a940106cb3fe0000000000000c70305920109"),
    (messages.Acknowledged(2, 6), "c7032b920206"),
    (messages.Retiring("c"), "c7032c91a163"),
    (messages.HandOver(2, 3), "c7032d920203"),
    (messages.HandedOver(0, 3, "r"), "c7052e930003a172"),
    (events.Begin(), "d42f90"),
    (events.TimerFired("t"), "c7033091a174"),
    (events.MemberLost("m", "r"), "c7053192a16da172"),
    (events.CopyLost("c", "p", "r", 0.5), "d83294a163a170a172cb3fe0000000000000"),
    (events.CopyReady(0, "c", "p"), "c706339300a163a170"),
    (events.ProcessesChanged(), "d43490"),
    (events.NoCopy(0, "r"), "d6359200a172"),
    (
        events.RunFailed(FAILURE),
        "c7383691c7347f83a5636c617373ac436c75737465724572726f72a76d657373616765a4676f6e65aa61747472 \
        69627574657381a470656572a170",
    ),
    (
        events.RunBroken(FAILURE),
        "c7383791c7347f83a5636c617373ac436c75737465724572726f72a76d657373616765a4676f6e65aa61747472 \
        69627574657381a470656572a170",
    ),
    (events.StopRequested("r"), "c7033891a172"),
    (events.EvaluationLost("r"), "c7033991a172"),
    (events.CheckpointSealed(100001, 80), "c7073a92ce000186a150"),
    (events.CheckpointFailed(100001, "t"), "d73b92ce000186a1a174"),
    (
        PAST,
        "c7313c92c7230c9b0102030491c70c0b95a16d0209c70301920107c0cb3fe0000000000000c3c200c20191cb3fe \
        0000000000000",
    ),
    (events.CopyAwake(0, "c", "p"), "c7063d9300a163a170"),
    (FLAW, "d83e95a8746865206c6f737392030509c2c2"),
    (messages.Cut(1, 2, 3, 4), "c7053f9401020304"),
    (
        events.MemberDied("m", DEATH),
        "c75b4092a16dc7557f83a5636c617373ab50726f6365737344696564a76d657373616765a4676f6e65aa61747472 \
        69627574657385a46b696e64a16bae757365725f74726163656261636ba0a470656572a170a370696405a4636f6465f7",
    ),
    (
        events.EvaluatorDied(DEATH),
        "c75a4192c7557f83a5636c617373ab50726f6365737344696564a76d657373616765a4676f6e65aa61747472 \
        69627574657385a46b696e64a16bae757365725f74726163656261636ba0a470656572a170a370696405a4636f6465f7c3",
    ),
    (events.CopyMisplaced("c", "r"), "c7054292a163a172"),
    (
        place_messages.ActorAt("c", "tcp://10.0.0.1:1", "k", 0, "copy"),
        "c71c4395a163b07463703a2f2f31302e302e302e313a31a16b00a4636f7079",
    ),
    (place_messages.CoordinatorAt(2, "tcp://10.0.0.1:1", "k"), "c715449302b07463703a2f2f31302e302e302e313a31a16b"),
    (place_messages.ActorReleased("c"), "c7034591a163"),
    (place_messages.Logged({"kind": "note", "at": 0.5}), "c718469182a46b696e64a46e6f7465a26174cb3fe0000000000000"),
    (place_messages.LogWritten(1, 2, 3), "d64793010203"),
    (
        messages.Offer(messages.Announce("m", 9, LABEL, 4, 0.5, 2.0, 1.0, 0.0, 0.0, 0.5), "h"),
        "c74f4892c749079ea16d09c707009292030492010204cb3fe0000000000000cb4000000000000000cb3ff0000000000000cb \
        0000000000000000cb0000000000000000cb3fe000000000000090ffc0c0a168",
    ),
    (messages.Route(1, 9, 7, "m"), "c7064994010907a16d"),
    (messages.Drop(1, 9), "c7034a920109"),
    (BUNDLE, "c7054b93a16d0107"),
    (
        messages.Assemble(1, 7, (messages.Contribution("m", 2, 9, None, BUNDLE),), 6, 1),
        "c7174c95010791c70e0b95a16d0209c0c7054b93a16d01070601",
    ),
    (messages.Bundled(BUNDLE, 0.5, (0.5,)), "c71c4d93c7054b93a16d0107cb3fe000000000000091cb3fe0000000000000"),
    (messages.Fetched("m", 9, 0.5), "c70d4e93a16d09cb3fe0000000000000"),
    (
        messages.Carried("m", "h", (0.125, 0.5), (1000, 0), (7, 70000)),
        "c7254f96a16da16892cb3fc0000000000000cb3fe000000000000092cd03e8009207ce0001117090",
    ),
    (
        messages.Carried("m", "h", (0.5,), (1000,), (7,), (70000,)),
        "c71b4f96a16da16891cb3fe000000000000091cd03e8910791ce00011170",
    ),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda one: type(one).__name__)
def test_codes_and_bytes_are_stable(message: Any, golden: str) -> None:
    assert encode(message).hex() == "".join(golden.split())


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda one: type(one).__name__)
def test_every_message_survives_the_round_trip(message: Any) -> None:
    found = decode(encode(message))
    assert type(found) is type(message)
    if isinstance(message, events.RunFailed | events.RunBroken | events.MemberDied | events.EvaluatorDied):
        assert to_plain(found.error) == to_plain(message.error)
    else:
        assert found == message


def test_every_message_that_travels_is_tested() -> None:
    described = {type(message) for message, _ in GOLDEN}
    every = [*vars(messages).values(), *vars(place_messages).values()]
    declared = {one for one in every if dataclasses.is_dataclass(one)}
    assert declared <= described


def test_a_standby_can_be_told_of_every_event_that_a_coordinator_handles() -> None:
    plan = Plan("r", workers=1, shards=1, samples=1, batch_size=1, stop=Stop(updates=1), schedule=Constant())
    assert set(Coordinator(plan, BulkSynchronous())._handlers) <= {type(message) for message, _ in GOLDEN}


@pytest.mark.parametrize(
    "event",
    [
        dataclasses.replace(STANDING, commits=(COMMIT, COMMIT)),
        messages.Announce("m", 9, LABEL, 4, 0.5, 2.0, 1.0, 0.0, 0.25, 0.5),
        messages.WorkerState(2, "m", 9, 4, TICKET),
        messages.Offer(
            messages.Announce("m", 9, LABEL, 4, 0.5, 2.0, 1.0, 0.0, 0.0, 0.5, (), 4, FLAW, TICKET), "10.0.0.1"
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_a_coordinator_has_handled_travels_with_all_that_is_in_it(event: Any) -> None:
    observed = messages.LogEntry(2, 7, 0.5, event)
    assert decode(encode([observed])) == (observed,)


@pytest.mark.parametrize(
    "error",
    [
        FAILURE,
        ConfigurationError("wrong", field="stop"),
        UserCodeError("raised", kind="ValueError", user_traceback="Traceback ..."),
        DivergedError("diverged", slot=1, version=7, loss=math.inf),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_travels_as_its_class_its_text_and_its_attributes(error: PsplatformError) -> None:
    found = decode(encode(messages.LogEntry(1, 1, 0.5, events.RunFailed(error)))).event.error
    assert type(found) is type(error)
    assert to_plain(found) == to_plain(error)


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
        msgpack.packb(msgpack.ExtType(127, msgpack.packb({"class": "ClusterError"}))),
        msgpack.packb(msgpack.ExtType(127, msgpack.packb(5))),
        b"\xd5\xfe\x91\x04",
    ],
    ids=[
        "empty",
        "unused",
        "cut",
        "long",
        "unknown code",
        "few fields",
        "many fields",
        "no fields",
        "half an error",
        "no error",
        "negative code",
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="all processes must run the same psplatform"):
        decode(data)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_no_bytes_make_anything_but_a_value_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(data)


def test_nesting_without_end_is_refused() -> None:
    data = msgpack.packb(1)
    for _ in range(3000):
        data = msgpack.packb(msgpack.ExtType(0, data))
    with pytest.raises(ProtocolError):
        decode(data)
