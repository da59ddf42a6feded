"""Which role goes into which process: a pure function of what the scheduler knows and what the job asks for.

Every gradient worker has a process of its own, so a job needs at least as many Dask workers as gradient workers.
Servers get processes that have no gradient worker where there are enough, on as many hosts as there are; otherwise
they share.  The coordinator shares a process with the first server; the evaluator gets an idle process, or shares the
coordinator's.

The copies of a shard, and coordinator and standby, are kept as far apart as the processes that there are allow: in
different zones if these are named, else on different hosts, else in different processes.  Of processes equally far
apart, those come first that need not import anything before they can take a role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Final, Self

from psplatform.core.addresses import host_of
from psplatform.errors import ConfigurationError

Resources = Mapping[str, float]

_ZONE: Final = ("zone-", "zone:")
"""What the name of the resource begins with by which a Dask worker says in which zone it is."""


@dataclass(frozen=True, slots=True)
class Process:
    """A Dask worker.

    Attributes
    ----------
    nanny
        Address of the Dask nanny that started it and starts it again, "" where it has none.
    """

    address: str
    host: str
    resources: Resources
    nanny: str = ""

    @classmethod
    def at(cls, address: str) -> Self:
        """Return what is known of a process of which the scheduler says nothing now: its host, from its address."""
        return cls(address, host_of(address), {})

    @property
    def zone(self) -> str:
        """The zone it was started in, as ``dask worker --resources zone-east=1`` says; empty where nothing says so."""
        named = sorted(name for name in self.resources if name.lower().startswith(_ZONE))
        return named[0][len(_ZONE[0]) :] if named else ""

    def offers(self, wanted: Resources) -> bool:
        """Whether it has the wanted resources."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in wanted.items())


class Apart(IntEnum):
    """The largest part of a cluster whose loss takes only one of two processes away."""

    NOT = 0
    PROCESS = 1
    HOST = 2
    ZONE = 3


def apart(one: Process, other: Process) -> Apart:
    """Return how far apart two processes are."""
    if one.address == other.address:
        return Apart.NOT
    if one.host == other.host:
        return Apart.PROCESS
    return Apart.ZONE if one.zone and other.zone and one.zone != other.zone else Apart.HOST


def apart_from_all(one: Process, others: Iterable[Process]) -> Apart:
    """Return how far a process is apart from the nearest of the others."""
    return min((apart(one, other) for other in others), default=Apart.ZONE)


@dataclass(frozen=True, slots=True)
class Placement:
    """The processes of each role.

    Attributes
    ----------
    servers
        Address by shard.
    replicas
        Addresses by shard.
    workers
        One address per gradient worker.
    """

    coordinator: str
    evaluator: str
    servers: tuple[str, ...]
    workers: tuple[str, ...]
    replicas: tuple[tuple[str, ...], ...] = ()

    @property
    def addresses(self) -> frozenset[str]:
        """Every process with a role."""
        copies = (*self.servers, *chain(*self.replicas))
        return frozenset({self.coordinator, self.evaluator, *copies, *self.workers})


def place(
    processes: Sequence[Process],
    *,
    workers: int | None,
    shards: int,
    replicas: int = 0,
    for_worker: Resources | None = None,
    for_server: Resources | None = None,
) -> Placement:
    """Return where every role goes; the same processes always give the same placement.

    Parameters
    ----------
    workers
        Number of gradient workers; ``None`` for every process that no server needs.
    for_worker, for_server
        Dask resources these roles need.

    Raises
    ------
    ConfigurationError
        If there are too few processes, saying how many are needed.
    """
    able = [one for one in processes if one.offers(for_worker or {})]
    serving = [one for one in processes if one.offers(for_server or {})]
    wanted = _all_but_servers(able, serving, shards) if workers is None else workers
    if len(able) < wanted or not able:
        raise ConfigurationError(_too_few(max(wanted, 1), len(able), len(processes), for_worker), field="workers")
    if not serving:
        wanted_by_server = dict(for_server or {})
        raise ConfigurationError(
            f"a server needs the resources {wanted_by_server}, but no Dask worker has them; start one that does",
            field="resources",
        )
    # Of two ways to choose the workers' processes, the one that leaves the better ones to servers and replicas.
    ways = [_for_workers(able, serving, wanted), _evenly(able, serving, wanted)]
    drawn = [_with_workers(processes, serving, chosen, shards, replicas) for chosen in ways]
    return max(drawn, key=lambda one: _quality(one, processes))


def _with_workers(
    processes: Sequence[Process], serving: Sequence[Process], chosen: Sequence[Process], shards: int, replicas: int
) -> Placement:
    busy = {one.address for one in chosen}
    servers = _for_servers(serving, busy, shards)
    copies = _for_replicas(serving, busy, servers, replicas)
    taken = busy | set(servers) | {address for group in copies for address in group}
    idle = [one.address for one in processes if one.address not in taken]
    return Placement(
        coordinator=servers[0],
        evaluator=idle[0] if idle else servers[0],
        servers=servers,
        workers=tuple(one.address for one in chosen),
        replicas=copies,
    )


def _quality(placement: Placement, processes: Sequence[Process]) -> tuple[int, int]:
    """Return how far copies of a shard are apart, and, negative, how many copies share a process with a worker."""
    known = {one.address: one for one in processes}
    groups = list(zip(placement.servers, placement.replicas, strict=True)) if placement.replicas else []
    distances = [apart_from_all(known[server], [known[one] for one in group]) for server, group in groups]
    copies = chain(placement.servers, *placement.replicas)
    return sum(distances), -sum(address in placement.workers for address in copies)


def process_for_copy(
    processes: Sequence[Process],
    shard: int,
    copies: Sequence[tuple[int, str]],
    busy: Collection[str],
    cold: Collection[str] = (),
    but: Collection[str] = (),
) -> str | None:
    """Return where another copy of a shard goes, or ``None`` where every process has one.

    Parameters
    ----------
    copies
        Shard and address of each copy there is.
    busy
        Processes with a gradient worker: they come last.
    cold
        Processes that must import what a copy needs before they can take one: of those that are equally far apart from
        the shard's other copies, they come last.
    but
        Processes in which none can be made.
    """
    load = Counter(address for _, address in copies)
    others = seats_of([address for held, address in copies if held == shard], processes)
    taken = {one.address for one in others}.union(but)
    best = min(
        (one for one in processes if one.address not in taken),
        key=lambda one: (
            -apart_from_all(one, others),
            one.address in cold,
            one.address in busy,
            load[one.address],
            one.address,
        ),
        default=None,
    )
    return best.address if best is not None else None


def process_for_standby(
    processes: Sequence[Process],
    *,
    lead: str,
    standbys: Collection[str] = (),
    servers: Collection[str] = (),
    replicas: Collection[str] = (),
    busy: Collection[str] = (),
    cold: Collection[str] = (),
    but: Collection[str] = (),
) -> str | None:
    """Return where another standby goes, or ``None`` where there is no process but the coordinator's and standbys'.

    Parameters
    ----------
    lead, standbys
        The processes of the coordinator and of its other standbys.
    servers, replicas
        The processes with a server and those with a replica: beside a replica, a coordinator that has taken over is
        where a server will be; beside a server, more is lost at once.
    busy
        Processes with a gradient worker.
    cold
        Processes that must import what a coordinator needs before they can take one.
    but
        Processes in which none can be made.
    """
    others = seats_of([lead, *standbys], processes)
    taken = {one.address for one in others}.union(but)

    def rank(one: Process) -> tuple[int, bool, int, bool, str]:
        beside = 2 if one.address not in replicas else int(one.address in servers)
        return -apart_from_all(one, others), one.address in cold, beside, one.address in busy, one.address

    best = min((one for one in processes if one.address not in taken), key=rank, default=None)
    return best.address if best is not None else None


def seats_of(addresses: Iterable[str], processes: Iterable[Process]) -> list[Process]:
    """Return the processes at these addresses: as the scheduler knows them, else what an address tells."""
    known = {one.address: one for one in processes}
    return [known.get(address) or Process.at(address) for address in addresses]


def _for_replicas(
    serving: Sequence[Process], busy: set[str], servers: tuple[str, ...], replicas: int
) -> tuple[tuple[str, ...], ...]:
    placed = list(enumerate(servers))
    groups: list[tuple[str, ...]] = []
    for shard in range(len(servers)):
        group = []
        for _ in range(replicas):
            address = process_for_copy(serving, shard, placed, busy)
            if address is None:
                raise ConfigurationError(
                    f"a shard with {replicas} replicas needs {replicas + 1} processes for its copies, but only "
                    f"{len(serving)} can serve; start more Dask workers or ask for fewer replicas",
                    field="replication",
                )
            placed.append((shard, address))
            group.append(address)
        groups.append(tuple(group))
    return tuple(groups)


def _all_but_servers(able: Sequence[Process], serving: Sequence[Process], shards: int) -> int:
    # Servers take only processes that can do both, and of those as many as are missing among the others.
    both = sum(one in able for one in serving)
    return max(1, len(able) - min(both, max(0, shards - (len(serving) - both))))


def _for_workers(able: Sequence[Process], serving: Sequence[Process], wanted: int) -> list[Process]:
    # Those that cannot serve go first, so that the others stay free for servers.
    can_serve = {one.address for one in serving}
    return sorted(able, key=lambda one: one.address in can_serve)[:wanted]


def _evenly(able: Sequence[Process], serving: Sequence[Process], wanted: int) -> list[Process]:
    """Return what `_for_workers` does, but of those that can serve always one of the host with most of them left."""
    left, chosen = _for_workers(able, serving, len(able)), []
    can_serve = {one.address for one in serving}
    hosts = Counter(one.host for one in serving)
    for _ in range(wanted):
        best = max(left, key=lambda one: (one.address not in can_serve, hosts[one.host]))
        hosts[best.host] -= best.address in can_serve
        left.remove(best)
        chosen.append(best)
    return chosen


def _for_servers(serving: Sequence[Process], with_worker: set[str], shards: int) -> tuple[str, ...]:
    load: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    servers = []
    for _ in range(shards):
        # A process without a worker, then the one with fewest shards, then the host with fewest.
        best = min(
            serving,
            key=lambda one: (load[one.address] + 1000 * (one.address in with_worker), hosts[one.host], one.address),
        )
        load[best.address] += 1
        hosts[best.host] += 1
        servers.append(best.address)
    return tuple(servers)


def _too_few(wanted: int, able: int, all_of_them: int, resources: Resources | None) -> str:
    if all_of_them > able:
        return (
            f"the job needs {wanted} Dask workers with the resources {dict(resources or {})}, but only {able} of "
            f"{all_of_them} have them; start {wanted - able} more or ask for fewer workers"
        )
    return (
        f"the job needs {wanted} Dask workers for its gradient workers (servers can share them), but the scheduler has "
        f"{able}; start {wanted - able} more or ask for fewer workers"
    )
