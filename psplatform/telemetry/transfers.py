"""What has gone to the servers and from them, where transfers are planned, and through whose interfaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.telemetry.log.grouped import Grouped
from psplatform.telemetry.measures import OTHER, Tally
from psplatform.telemetry.words import shortened

MOST_HOSTS: Final = 64
"""Hosts that are counted by name: a log may have been written by anybody."""

SERVERS: Final = "servers"
"""Stands for the hosts of all servers where a log does not tell them."""

MOVES: Final = frozenset({"transfer", "pull"})
"""Kinds of records that tell of vectors on their way."""

_SERVERS: Final = ""
"""The servers at one end of a way."""


@dataclass(slots=True)
class Interfaces:
    """What has crossed the interfaces of hosts: what stays on one host crosses none.

    Whole vectors are counted, and become bytes when they are asked for, or when other hosts begin to serve: so no sum
    depends on how many records are folded at once.

    Attributes
    ----------
    parts
        By the host of servers, the bytes of a vector for them; ``None`` where the log has not told it.
    names
        By host, what it is shown as; others are shown as `OTHER`.
    gradients, parameters
        Vectors by sender and receiver, since `parts` are what they are.
    bytes_in, bytes_out
        Of vectors before that, by host.
    """

    parts: dict[str, float] | None = None
    names: dict[str, str] = field(default_factory=dict)
    gradients: Counter[tuple[str, str]] = field(default_factory=Counter)
    parameters: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)

    def take(self, grouped: Grouped) -> None:
        """Count records of kinds ``transfer`` and ``pull``."""
        senders = [tuple(one.get("hosts") or ()) for one in grouped.of("transfer")]  # older logs have none
        transfers = Counter(zip(grouped.column("transfer", "host"), senders, strict=True))
        pulls = Counter(zip(*(grouped.column("pull", name) for name in ("host", "relay", "sent")), strict=True))
        if len(self.names) < MOST_HOSTS:  # which of them find room depends on their order
            named = {name for host, hosts in transfers for name in (host, *hosts)}
            named |= {name for host, relay, _ in pulls for name in (host, relay)}
            if named - self.names.keys() - {None, ""}:
                for record in grouped.among(MOVES):
                    self._know((record["host"], record.get("relay"), *(record.get("hosts") or ())))
        for (host, hosts), count in transfers.items():
            self.gradients[self._name(host), _SERVERS] += count
            self._hand(self.gradients, [(one, host) for one in hosts], count)
        for (host, relay, sent), count in pulls.items():
            if sent:
                self.parameters[_SERVERS, self._name(relay or host)] += count
            self._hand(self.parameters, [(relay, host)] if relay else [], count)

    def serve(self, hosts: Sequence[str], sizes: Sequence[float], vector_bytes: float | None) -> None:
        """Count from now on for servers on these hosts, each with the bytes of a vector for it."""
        self.bytes_in, self.bytes_out = self._bytes(vector_bytes)
        self.gradients.clear()
        self.parameters.clear()
        self._know(hosts)
        self.parts = {}
        for host, size_bytes in zip(hosts, sizes, strict=False):
            name = self._name(host)
            self.parts[name] = self.parts.get(name, 0.0) + size_bytes

    def to_plain(self, vector_bytes: float | None) -> dict[str, dict[str, float]]:
        """Return the bytes into and out of each host, in order of hosts."""
        into, out = self._bytes(vector_bytes)
        return {host: {"bytes_in": into[host], "bytes_out": out[host]} for host in sorted(into.keys() | out.keys())}

    def _bytes(self, vector_bytes: float | None) -> tuple[Counter[str], Counter[str]]:
        into, out = self.bytes_in.copy(), self.bytes_out.copy()
        for (sender, receiver), count in sorted([*self.gradients.items(), *self.parameters.items()]):
            for source, to, size_bytes in self._legs(sender, receiver, vector_bytes):
                out[source] += count * size_bytes
                into[to] += count * size_bytes
        return into, out

    def _legs(self, sender: str, receiver: str, vector_bytes: float | None) -> Iterator[tuple[str, str, Any]]:
        """Yield what a vector crosses on a way: sender, receiver and bytes."""
        parts = {SERVERS: vector_bytes or 0} if self.parts is None else self.parts
        if _SERVERS not in (sender, receiver):
            yield sender, receiver, sum(parts.values())
            return
        for server, size_bytes in parts.items():
            source, to = sender or server, receiver or server
            if source != to or source == OTHER:
                yield source, to, size_bytes

    def _hand(self, counts: Counter[tuple[str, str]], ways: Sequence[tuple[str, str]], count: int) -> None:
        for sender, receiver in ways:
            if sender != receiver:
                counts[self._name(sender), self._name(receiver)] += count

    def _know(self, hosts: Sequence[str | None]) -> None:
        for host in hosts:
            if host and host not in self.names and len(self.names) < MOST_HOSTS:
                self.names[host] = shortened(host)

    def _name(self, host: str) -> str:
        return self.names.get(host, OTHER)


@dataclass(slots=True)
class Transfers:
    """What has come to the servers, and what they have sent to workers, where transfers are planned.

    Attributes
    ----------
    vectors, gradients
        Vectors that came, and the gradients that they are made of: a sum is one vector.
    took_s, planned_s
        Seconds from when it was to begin until it was there, and what the planner expected, of those that it expected
        at all.
    pulls, sent
        How often workers got the parameters, and how often the servers sent them for that: to a relay once for all.
    interfaces
        What of it went from one host to another.
    """

    vectors: int = 0
    gradients: int = 0
    took_s: Tally = field(default_factory=Tally)
    planned_s: Tally = field(default_factory=Tally)
    pulls: int = 0
    sent: int = 0
    interfaces: Interfaces = field(default_factory=Interfaces)

    def take(self, grouped: Grouped) -> None:
        """Take the records of kinds ``transfer`` and ``pull``."""
        if grouped.kinds.isdisjoint(MOVES):
            return
        slots = grouped.column("transfer", "slots")
        self.vectors += len(slots)
        self.gradients += sum(map(len, slots))
        seconds = zip(grouped.column("transfer", "took_s"), grouped.column("transfer", "planned_s"), strict=True)
        planned = [(took_s, planned_s) for took_s, planned_s in seconds if planned_s is not None]
        self.took_s.extend([took_s for took_s, _ in planned])
        self.planned_s.extend([planned_s for _, planned_s in planned])
        sent = grouped.column("pull", "sent")
        self.pulls += len(sent)
        self.sent += sum(sent)
        self.interfaces.take(grouped)

    def serve(self, record: Mapping[str, Any], vector_bytes: float | None) -> None:
        """Take a record of kind ``servers``."""
        self.interfaces.serve(record["hosts"], record["bytes"], vector_bytes)

    def to_plain(self, vector_bytes: float | None) -> dict[str, Any]:
        """Return bytes into the servers, out of them and by host, if a vector's are known; gradients each, seconds.

        What went out is not known either of a log that does not tell of pulls.
        """
        moved: dict[str, Any] = dict.fromkeys(("bytes_in", "bytes_out", "interfaces"))
        if vector_bytes is not None:
            told = self.pulls or self.interfaces.parts is not None
            moved["bytes_in"] = self.vectors * vector_bytes
            moved["bytes_out"] = self.sent * vector_bytes if told else None
            moved["interfaces"] = self.interfaces.to_plain(vector_bytes)
        return {
            **moved,
            "aggregation": self.gradients / self.vectors if self.vectors else None,
            "took_s": self.took_s.to_plain(),
            "planned_s": self.planned_s.to_plain(),
        }
