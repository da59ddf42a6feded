"""Which role goes into which process: a pure function of what the scheduler knows and what the job asks for.

Every gradient worker has a process of its own, so a job needs at least as many Dask workers as gradient workers.
Servers get processes that have no gradient worker where there are enough, on as many hosts as there are; otherwise
they share.  The coordinator shares a process with the first server; the evaluator gets an idle process, or shares the
coordinator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from psplatform.errors import ConfigurationError

Resources = Mapping[str, float]


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

    def offers(self, wanted: Resources) -> bool:
        """Whether it has the wanted resources."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in wanted.items())


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
    chosen = _for_workers(able, serving, wanted)
    servers = _for_servers(serving, {one.address for one in chosen}, shards)
    busy = {one.address for one in chosen}
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


def process_for_copy(
    processes: Sequence[Process], shard: int, copies: Sequence[tuple[int, str]], busy: set[str]
) -> str | None:
    """Return where another copy of a shard goes, or ``None`` where every process has one.

    Parameters
    ----------
    copies
        Shard and address of each copy there is.
    busy
        Processes with a gradient worker: they come last.
    """
    load = Counter(address for _, address in copies)
    hosts = {one.address: one.host for one in processes}
    near = {hosts.get(address) for held, address in copies if held == shard}
    able = [one for one in processes if (shard, one.address) not in set(copies)]
    best = min(
        able,
        key=lambda one: (
            one.host in near and len(set(hosts.values())) > 1,
            one.address in busy,
            load[one.address],
            one.address,
        ),
        default=None,
    )
    return best.address if best is not None else None


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
