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

from psplatform.errors import ConfigurationError

Resources = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Process:
    """A Dask worker."""

    address: str
    host: str
    resources: Resources

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
    workers
        One address per gradient worker.
    """

    coordinator: str
    evaluator: str
    servers: tuple[str, ...]
    workers: tuple[str, ...]


def place(
    processes: Sequence[Process],
    *,
    workers: int | None,
    shards: int,
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
    taken = {one.address for one in chosen} | set(servers)
    idle = [one.address for one in processes if one.address not in taken]
    return Placement(
        coordinator=servers[0],
        evaluator=idle[0] if idle else servers[0],
        servers=servers,
        workers=tuple(one.address for one in chosen),
    )


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
