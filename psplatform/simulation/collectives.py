"""How long an all-reduce takes: by a ring or by a tree of hosts, over interfaces with given rates.

Steps are synchronous: each one begins when the slowest transfer of the step before it has ended, so that the slowest
interface decides.  The transfers of a step share interfaces as in `psplatform.network.rates`: those that meet at one
bottleneck follow each other, in the order of the ranks.  A transfer within a host takes no time, and neither do sums
and latencies.  With rates that change in steps the result is exact, up to rounding.

Ring: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.  Both are
what R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020, compares
with (sections 2 and 7.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from psplatform.errors import ConfigurationError
from psplatform.network.state import NetworkState


def ring_all_reduce(network: NetworkState, hosts: Sequence[str], size_bytes: float, at: float) -> float:
    """Return when all ranks of a ring have the sum, seconds; infinite if some never get it.

    In each of 2 (n - 1) steps every one of n ranks sends a part of `size_bytes` / n to the next one.  At steady and
    equal rates, with c ranks per host that send to another host, this takes 2 (n - 1) / n * `size_bytes` / (rate / c).

    Parameters
    ----------
    hosts
        The host of each rank, in the order of the ring.  The order decides what passes the interfaces: with two ranks
        per host, ``[*names, *names]`` makes both of them send to another host, and ``sorted([*names, *names])`` only
        one.  Each name once is a ring of hosts that sum what is theirs first.
    size_bytes
        What each rank has, at least 0.
    at
        When the first step begins, seconds.

    Raises
    ------
    ConfigurationError
        If there are no hosts, or the size is not a finite number from 0.
    """
    _check(hosts, size_bytes)
    count, end = len(hosts), at
    pairs = list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
    for _ in range(2 * (count - 1)):
        end = _step(network, pairs, size_bytes / count, end)
    return end


def tree_all_reduce(
    network: NetworkState, hosts: Sequence[str], size_bytes: float, at: float, *, fan_in: int = 2
) -> float:
    """Return when all hosts of a tree have the sum, seconds; infinite if some never get it.

    Level by level, the deepest first, all hosts send the whole size to their parents, where the children of one share
    its incoming direction; then the sum goes back the same way.  At steady and equal rates and with all levels full,
    each level takes `fan_in` * `size_bytes` / rate up, and as long down.

    Parameters
    ----------
    hosts
        The root, then level by level: the parent of number i is number (i - 1) // `fan_in`.
    size_bytes
        What each host has, at least 0.
    at
        When the first step begins, seconds.
    fan_in
        The most children that a host has, at least 1; with 1, the tree is a chain.

    Raises
    ------
    ConfigurationError
        If there are no hosts, the size is not a finite number from 0, or the fan-in is below 1.
    """
    _check(hosts, size_bytes)
    if fan_in < 1:
        raise ConfigurationError(f"a tree cannot have a fan-in of {fan_in}; give 1 or more", field="fan_in")
    levels: list[list[tuple[str, str]]] = []
    first, width, end = 1, fan_in, at
    while first < len(hosts):
        numbers = range(first, min(first + width, len(hosts)))
        levels.append([(hosts[number], hosts[(number - 1) // fan_in]) for number in numbers])
        first, width = first + width, width * fan_in
    for level in reversed(levels):
        end = _step(network, level, size_bytes, end)
    for level in levels:
        end = _step(network, [(parent, child) for child, parent in level], size_bytes, end)
    return end


def _step(network: NetworkState, pairs: Iterable[tuple[str, str]], size_bytes: float, begin: float) -> float:
    """Return when the last of the transfers has arrived that begin together, one for each sender and receiver."""
    left, end = network.copy(), begin
    for sender, receiver in pairs:
        transfer = left.transfer(sender, [(receiver, size_bytes)], begin)
        left.reserve(transfer)
        end = max(end, transfer.end)
    return end


def _check(hosts: Sequence[str], size_bytes: float) -> None:
    if not hosts:
        raise ConfigurationError("an all-reduce needs hosts; name that of each rank", field="hosts")
    if not 0 <= size_bytes < math.inf:
        raise ConfigurationError(
            f"an all-reduce of {size_bytes} bytes is impossible; give a finite number from 0", field="size_bytes"
        )
