"""Three hosts on this machine, in network namespaces: cut off from each other or killed, while a run trains on them.

Needs Linux, root's rights and `ip`: `sudo python examples/three_hosts.py --rounds 1 --load`.  Each host has a network,
a host name, process ids and shared memory of its own; a scheduler is on a fourth, and all see the same files.  A host
is cut off for so many seconds and nothing is told of it (5, 15, 40, 90), or all its processes are killed (kill), or
both, as when its power fails (off).  The first fault hits the coordinator's host; the others hit any, in random order.

A line for each fault says what was hit and what came of it; the last line is one JSON object with everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psplatform as ps
from psplatform.bench.clusters.host_cluster import HOSTS, Cut, HostCluster, Kill
from psplatform.bench.clusters.namespaces import why_not
from psplatform.bench.faults.aftermath import shown_in_vain
from psplatform.bench.faults.drill import Drill, Fault
from psplatform.errors import PsplatformError

KINDS = ("5", "15", "40", "90", "kill", "off")
USUAL = "5,15,40,90,kill"
SPREAD_S = 30.0
FIRST = "40"
"""The fault that the coordinator's host has, if it is among those asked for."""


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    known = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    known.add_argument("--rounds", type=int, default=10, help="faults of each kind [10]")
    known.add_argument("--seed", type=int, help="of the order of the faults and of their hosts [a new one]")
    known.add_argument("--only", default=USUAL, help=f"kinds of faults, of {','.join(KINDS)} [{USUAL}]")
    known.add_argument("--load", action="store_true", help="a busy loop for each core beside")
    known.add_argument("--policy", default="asp", help="[asp]")
    known.add_argument("--replication", default="bounded", choices=("bounded", "chain"), help="[bounded]")
    known.add_argument("--replicas", type=int, default=1, help="of each server [1]")
    known.add_argument("--shards", type=int, default=2, help="[2]")
    known.add_argument("--processes", type=int, default=3, help="Dask workers on each host [3]")
    known.add_argument("--settle", type=float, default=180.0, help="seconds to become whole after a fault [180]")
    known.add_argument("--mbit", type=float, help="rate of each host's network interface [no limit]")
    known.add_argument("--folder", type=Path, help="keeps stores and output [a temporary one, which is removed]")
    given = known.parse_args()
    wrong = [one for one in given.only.split(",") if one not in KINDS]
    if wrong:
        known.error(f"--only knows {', '.join(KINDS)}, not {wrong[0]!r}")
    return given


def job(given: argparse.Namespace) -> ps.Job:
    """Return a training that goes on until it is stopped."""
    copies: dict[str, Any] = {"replicas": given.replicas}
    return ps.Job(
        workload="digits",
        policy=given.policy,
        workers=len(HOSTS),
        shards=given.shards,
        replication=ps.Chain(**copies) if given.replication == "chain" else ps.Bounded(**copies),
        stragglers="constant:seconds=0.05",
        stop=ps.Stop(updates=10**9),
        torch_threads=1,
    )


def plan(kinds: Sequence[str], rounds: int, chance: random.Random) -> list[tuple[str, str]]:
    """Return the kind of each fault and the host that it hits; "" for the coordinator's."""
    order = [kind for kind in kinds for _ in range(rounds)]
    chance.shuffle(order)
    if FIRST in order:
        order.remove(FIRST)
        order.insert(0, FIRST)
    return [(kind, chance.choice(HOSTS) if place else "") for place, kind in enumerate(order)]


def fault_of(kind: str, host: str, cluster: HostCluster) -> Fault:
    """Return a fault of that kind on a host."""
    return Cut(cluster, host, float(kind)) if kind.isdigit() else Kill(cluster, host, silently=kind == "off")


def line(number: int, row: dict[str, Any]) -> str:
    """Return what came of a fault, in one line."""

    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f} s"

    parts = [
        f"{number}: {row['fault']} ({', '.join(row['hit']) or 'no role'})",
        f"next commit {seconds(row['next_commit_s'])}",
        f"longest pause {seconds(row['pause_s'])}",
        f"lost {row['lost']}" + "".join(f" ({one})" for one in row["beyond_bound"]),
    ]
    if not row["survived"]:
        return "; ".join([*parts, f"ENDED: {row['why']}"])
    safe, spread = seconds(row["safe_again_s"]), seconds(row["spread_again_s"])
    parts.append(f"can lose any process again after {safe}, any host after {spread}")
    return "; ".join([*parts, *row["weak_after"]])


def verdict(folder: Path) -> Any:
    """Return what the external checker says of the recorded history."""
    try:
        from psplatform.bench.history import check  # noqa: PLC0415  it may not be there
    except ImportError:
        return "no checker"
    report = check(folder)
    return {"violations": report.violations, "counts": report.counts}


@contextlib.contextmanager
def load(wanted: bool) -> Iterator[None]:
    """Keep every core busy."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)] if wanted else []  # noqa: S603  a loop of ours
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def trial(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Carry the plan out; return what came of it."""
    chance = random.Random(given.seed)  # noqa: S311  an order, not a secret
    history = folder / "history"
    history.mkdir()
    known = {"PSPLATFORM_HISTORY": str(history)}
    rows: list[dict[str, Any]] = []
    ended = ""
    with (
        load(given.load),
        HostCluster(folder, given.processes, mbit=given.mbit, environment=known) as cluster,
        Drill(cluster, job(given), folder, hosts=cluster.hosts.at, settle_s=given.settle, spread_s=SPREAD_S) as drill,
    ):
        drill.begin()
        print("the run trains, and can lose any one process", flush=True)
        try:
            for number, (kind, host) in enumerate(plan(given.only.split(","), given.rounds, chance), 1):
                rows.append(drill.hurt(fault_of(kind, host or drill.host_of("coordinator"), cluster)))
                print(line(number, rows[-1]), flush=True)
        except PsplatformError as error:
            ended = f"after {len(rows)} faults: {error}"
            print(ended, flush=True)
        runs = drill.finish()
    return {"seed": given.seed, "faults": rows, "ended": ended, "runs": runs, "history": verdict(history)}


def main() -> None:
    """Say what is tried, try it, and end with exit code 1 if the run did not hold what it promises."""
    given = options()
    if reason := why_not():
        sys.exit(reason)
    if given.seed is None:
        given.seed = random.randrange(10**6)  # noqa: S311  as above
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    print(f"seed {given.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        found = trial(given, folder)
    broken = broken_promises(found, given.shards)
    print(json.dumps({**found, "broken": broken}))
    sys.exit(1 if broken else 0)


def broken_promises(found: dict[str, Any], shards: int) -> list[str]:
    """Return in words what must not be."""
    rows, runs = found["faults"], found["runs"]
    broken = [found["ended"]] if found["ended"] else []
    broken += [f"{row['fault']}: the run ended" for row in rows if not row["survived"]]
    broken += [f"{row['fault']}: {text}" for row in rows for text in row["beyond_bound"]]
    for run in runs:
        broken += run["back"]
        broken += shown_in_vain(run["forgotten"], [row["failovers"] for row in rows], shards)
    history = found["history"]
    return broken if isinstance(history, str) else [*broken, *history["violations"]]


if __name__ == "__main__":
    main()
