"""Faults as data: what happens to whom, and when.

A schedule names roles, never processes or objects, so that the run finds out who plays them then: ``server 0``
(the server of shard 0 at that moment), ``replica 0`` (the first of its replicas, those in sync before the others),
``worker 1``, ``aggregator`` (the worker that sums the oldest of the bundles under way), ``coordinator``, ``standby``,
``client``, and on hosts ``evaluator``.  A fault of the aggregator waits until there is one; any other role that nobody
plays at that moment is spared.  The client, which has started the run and looks at it, is played in a run of real
processes only: in memory there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.untrusted.checks import is_count, is_number

KINDS: Final[dict[str, str]] = {
    "kill": "the process ends at once, as under SIGKILL",
    "retire": "the process ends in good order: when nobody needs what lives in it, after `seconds` at the latest",
    "pause": "the process stands still for `seconds`, as between SIGSTOP and SIGCONT",
    "slow": "for `seconds`, everything the process does takes `factor` times longer",
    "partition": "for `seconds`, messages between `who` and `others` are held back; no connection is seen to close",
    "delay": "for `seconds`, messages to and from the process take up to `factor` seconds longer, in order",
    "reorder": "for `seconds`, each message to and from the process takes up to `factor` seconds longer, by chance",
    "duplicate": "for `seconds`, messages to and from the process arrive twice",
    "claim": "for `seconds`, claims of the next term by the process are not heard (`way`: out) or not answered (in)",
    "host": "every process on the host of `who` ends at once",
    "cut": "for `seconds`, nothing passes between the host of `who` and others, nor the one that grants the next term",
    "storage": "the next `write`-th writing of a `what` (part, manifest) fails, is torn or lost (`how`)",
}
WAYS: Final = ("both", "out", "in")
WRITES: Final = ("part", "manifest")
FLAWS: Final = ("fail", "torn", "lost")
BREAK: Final = "break"
"""What becomes of the writing of a manifest beside those: it raises what nobody expects of a storage."""

_LATEST_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes
    ----------
    kind
        One of `KINDS`.
    who
        The role it happens to; empty for a fault of the storage.
    at
        Seconds after the start of the run, or ``None``.
    event
        Instead of a time: after so many events of the run.  In a run of real processes, which counts none, time tells.
    seconds
        How long it lasts.
    factor
        How strong it is (see `KINDS`).
    others
        Roles on the other side of a partition; empty for everybody else.
    way
        Which messages a partition, or who grants claims, holds back: ``both`` ways, those ``out`` of `who`'s side or
        ``in`` to it.
    what, how, write
        Of a fault of the storage: which writing, counted from the fault on, and what becomes of it.
    """

    kind: str
    who: str = ""
    at: float | None = None
    event: int | None = None
    seconds: float = 0.0
    factor: float = 1.0
    others: tuple[str, ...] = ()
    way: str = "both"
    what: str = "part"
    how: str = "fail"
    write: int = 1

    def __post_init__(self) -> None:
        """Refuse what no run could carry out.

        Raises
        ------
        ConfigurationError
            Naming the field.
        """
        texts = isinstance(self.others, tuple) and all(isinstance(one, str) for one in (self.who, *self.others))
        _require(texts, "who", "roles are texts")
        _require(isinstance(self.kind, str) and self.kind in KINDS, "kind", f"it is none of {', '.join(KINDS)}")
        for name, value in (("at", self.at), ("seconds", self.seconds), ("factor", self.factor)):
            _require(value is None or (is_number(value) and 0 <= value <= _LATEST_S), name, "it is no time or strength")
        for name, count in (("event", self.event), ("write", self.write)):
            _require(count is None or is_count(count), name, "it is no count")
        _require((self.at is None) != (self.event is None), "at", "give either `at` (seconds) or `event` (a count)")
        _require(self.way in WAYS, "way", f"it is none of {', '.join(WAYS)}")
        breaks = self.what == "manifest" and self.how == BREAK
        _require(self.what in WRITES and (self.how in FLAWS or breaks), "what", "no storage does that")
        _require((self.kind == "storage") == (not self.who), "who", "every fault but the storage's needs a role")

    @property
    def until(self) -> float:
        """Time at which it is over, where its begin is given as a time; 0 where it is not."""
        return self.at + self.seconds if self.at is not None else 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return the fields that are not as usual, as plain values."""
        usual = {one.name: one.default for one in fields(self)}
        plain = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return {**plain, "others": list(self.others)} if self.others else plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Fault:
        """Return the fault that `to_plain` described.

        Raises
        ------
        ConfigurationError
            If a field is unknown or makes no sense.
        """
        known = {one.name for one in fields(cls)}
        for name in plain:
            _require(name in known, str(name), "a fault has no such field")
        _require("kind" in plain, "kind", "a fault needs one")
        others = plain.get("others", ())
        _require(isinstance(others, list | tuple), "others", "it is no list of roles")
        return cls(**{**plain, "others": tuple(others)})


@dataclass(frozen=True, slots=True)
class Selector:
    """A role, taken apart: its kind, and the shard or the worker's number where it has one."""

    role: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Return what ``server 0`` or ``coordinator`` means.

        Raises
        ------
        ConfigurationError
            If it means nothing.
        """
        role, _, number = text.partition(" ")
        numbered = role in ("server", "replica", "worker")
        single = role in ("aggregator", "coordinator", "standby", "evaluator", "client")
        _require((numbered and number.isdigit()) or (single and not number), "who", f"{text!r} names no role")
        return cls(role, int(number) if numbered else 0)


def _require(holds: bool, field: str, reason: str) -> None:
    if not holds:
        raise ConfigurationError(f"a fault's {field} makes no sense: {reason}", field=f"faults.{field}")
