"""Eight hosts on this machine behind slow interfaces: what it is worth there to plan transfers and to sum on the way.

Needs Linux, root's rights, `ip` and `tc`: `sudo python examples/slow_network.py`.  Each host is made of namespaces and
has an interface of 400 Mbit/s, one of 50, and that of the server 100; a model of 2.5 million parameters takes 0.8 s
through it.  Each policy trains with `network: {fabric: {aggregators: 6}}` and without, in turns, each time for so many
seconds from its first commit on.  In the middle of two more runs an interface drops to 50 Mbit/s: that of a host that
sums, which carries something now and then, and that of the server, which training waits for.

A line for each run says what came of it, `loss.svg` in the folder shows the losses over time, and the last line is one
JSON object with everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import psplatform as ps
from psplatform.bench.clusters.host_cluster import HostCluster
from psplatform.bench.clusters.namespaces import Host, why_not
from psplatform.telemetry.log.reader import LogReader

SERVER = "server"
WORKERS = tuple(f"worker-{number}" for number in range(1, 8))
USUAL_MBIT, SERVER_MBIT, SLOW_MBIT = 400.0, 100.0, 50.0
SLOW, CHANGED = WORKERS[-1], (WORKERS[0], SERVER)
MBIT = {**dict.fromkeys(WORKERS, USUAL_MBIT), SERVER: SERVER_MBIT, SLOW: SLOW_MBIT}
POLICIES: dict[str, dict[str, Any]] = {"delay-bounded": {"max_delay": 14}, "bsp": {}}
FEATURES, HIDDEN, CLASSES, SAMPLES = 64, 1536, 10, 4000
START_S, POLL_S = 300.0, 0.25
USED_BYTES = 1 << 20
COLOURS = {"planned": "#1f77b4", "as they come": "#ff7f0e"}


def model() -> nn.Module:
    """Return a network of 2.5 million parameters."""
    wide = nn.Linear(HIDDEN, HIDDEN)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), wide, nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def data() -> tuple[Tensor, Tensor]:
    """Return ten clouds of points: ``float32[4000, 64]`` and ``int64[4000]``."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return centres[labels] + 1.5 * torch.randn(SAMPLES, FEATURES, generator=generator), labels


def job(policy: str, planned: bool, store: Path) -> ps.Job:
    """Return a training that goes on until it is stopped."""
    return ps.Job(
        model=model,
        loss=nn.functional.cross_entropy,
        data=data,
        batch_size=32,
        optimizer=ps.SGD(lr=0.02),
        policy=policy,
        policy_options=POLICIES[policy],
        workers=len(WORKERS),
        network=ps.Network(ps.Fabric(aggregators=len(WORKERS) - 1)) if planned else ps.Network(),
        resources={"worker": {"WORKER": 1}, "server": {"SERVER": 1}},
        replication=ps.NoReplication(),
        checkpoints=ps.Checkpoints.never(),
        evaluate_every=None,
        stop=ps.Stop(updates=10**9),
        torch_threads=1,
        store=str(store),
    )


@contextlib.contextmanager
def hosts(folder: Path) -> Iterator[HostCluster]:
    """Start the hosts, with one Dask worker on each."""
    roles = {**dict.fromkeys(WORKERS, "WORKER=1"), SERVER: "SERVER=1"}
    known = {"OMP_NUM_THREADS": "1"}
    with HostCluster(folder, 1, names=tuple(MBIT), mbit=MBIT, resources=roles, environment=known) as cluster:
        until(cluster.is_whole, START_S, "every Dask worker is there")
        yield cluster


def until(holds: Callable[[], bool], limit_s: float, what: str) -> None:
    """Wait until something holds."""
    give_up_at = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > give_up_at:
            sys.exit(f"after {limit_s:g} s it is not so that {what}")
        time.sleep(POLL_S)


@dataclass(frozen=True)
class Result:
    """What came of one run."""

    policy: str
    planned: bool
    records: list[dict[str, Any]]
    bytes_in: int
    bytes_out: int
    span: tuple[float, float]
    half_at: float
    watched: str
    used_s: dict[str, float | None]

    @property
    def commits(self) -> list[dict[str, Any]]:
        """The commits while bytes were counted."""
        first, last = self.span
        return [one for one in self.of("commit") if first < one["at"] <= last]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind."""
        return [one for one in self.records if one["kind"] == kind]

    def row(self) -> dict[str, Any]:
        """Return the figures."""
        commits, (first, last) = self.commits, self.span
        if not commits:
            sys.exit(f"nothing was committed within {last - first:.0f} s; give --seconds more")
        updates = sum(len(one["slots"]) for one in commits)
        vectors = sum(_vectors(one) for one in commits)
        return {
            "policy": self.policy,
            "planned": self.planned,
            "updates_per_s": updates / (last - first),
            "mb_in_per_update": self.bytes_in / updates / 1e6,
            "mb_out_per_update": self.bytes_out / updates / 1e6,
            "aggregation": updates / vectors,
            "dropped": len(self.of("dropped")) / (updates + len(self.of("dropped"))),
        }

    def losses(self) -> list[tuple[float, float]]:
        """Return the loss over time, the mean of as many gradients as there are workers."""
        found, some = [], list[float]()
        for one in self.of("commit"):
            some += [one["loss"]] * len(one["slots"])
            if len(some) >= len(WORKERS):
                found.append((one["at"], fmean(some)))
                some = []
        return found


def followed_s(result: Result) -> dict[str, float | None]:
    """Return how long after its rate has changed what is believed of a host was right, out of it and into it.

    By half more or less; ``None`` if it never was.
    """
    right = SLOW_MBIT * 1e6 / 8
    known = [one for one in result.of("rates") if one["host"] == result.watched]
    found: dict[str, float | None] = {}
    for way in ("out", "into"):
        until = [*(one["at"] for one in known[1:]), math.inf]
        begun = [
            max(0.0, one["at"] - result.half_at)
            for one, end in zip(known, until, strict=True)
            if end > result.half_at and right / 1.5 < one[way] < right * 1.5
        ]
        found[way] = min(begun, default=None)
    return found


def first_used_s(host: Host, since: tuple[int, int], seconds: float) -> dict[str, float | None]:
    """Watch a host for so long; return when it has sent, and was sent, so much that something can be known of that."""
    began, found = time.monotonic(), dict[str, float | None](out=None, into=None)
    while (passed := time.monotonic() - began) < seconds:
        into, out = (now - before for now, before in zip(host.traffic, since, strict=True))
        for way, moved in (("out", out), ("into", into)):
            if found[way] is None and moved >= USED_BYTES:
                found[way] = passed
        time.sleep(POLL_S)
    return found


def _vectors(commit: dict[str, Any]) -> int:
    """Return how many vectors came to the server for a commit: a sum is one."""
    bundles = commit.get("bundles") or [0] * len(commit["slots"])
    return bundles.count(0) + len(set(bundles) - {0})


def log_time_s(last_at: Callable[[], float], seconds: float) -> float:
    """Return what a log's times have more than this program's clock, after so many seconds of looking at the log.

    Its last record is written a while after it was made: the shortest while is taken for none.
    """
    began, ahead_s = time.monotonic(), -math.inf
    while (now := time.monotonic()) < began + seconds:
        ahead_s = max(ahead_s, last_at() - now)
        time.sleep(min(1.0, began + seconds - now))
    return ahead_s


def train(cluster: HostCluster, wanted: ps.Job, seconds: float, slowed: str = "") -> Result:
    """Train for so long from the first commit on; if asked, slow a host down halfway, until the end."""

    def records() -> list[dict[str, Any]]:
        return [one for some, _ in LogReader(str(wanted.store)).iter_from() for one in some]

    run = ps.train(wanted, cluster.client)
    until(lambda: any(one["kind"] == "commit" for one in records()), START_S, "anything is committed")
    before, began = cluster.hosts[SERVER].traffic, time.monotonic()
    to_log_s = log_time_s(lambda: records()[-1]["at"], seconds / 2)
    watched, half = cluster.hosts[slowed or SERVER], time.monotonic()
    if slowed:
        watched.limit(SLOW_MBIT)
    used_s = first_used_s(watched, watched.traffic, seconds / 2)
    after, ended = cluster.hosts[SERVER].traffic, time.monotonic()
    run.stop("seen enough")
    run.wait(START_S)
    run.close()
    if slowed:
        watched.limit(MBIT[slowed])
    moved = after[0] - before[0], after[1] - before[1]
    planned = wanted.network.fabric is not None
    span = began + to_log_s, ended + to_log_s
    return Result(str(wanted.policy), planned, records(), *moved, span, half + to_log_s, watched.address, used_s)


def picture(results: list[Result]) -> str:
    """Return the losses over time as an SVG image: a panel for each policy."""
    width, height, margin = 420, 260, 40
    policies = list(dict.fromkeys(one.policy for one in results))
    last_s = max(at for one in results for at, _ in one.losses())
    top = max(loss for one in results for _, loss in one.losses())
    drawn = []
    for panel, policy in enumerate(policies):
        left = panel * (width + margin) + margin
        drawn.append(f'<rect x="{left}" y="{margin}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        title = f"{policy}: loss over {last_s:.0f} s, from 0 to {top:.2f}"
        drawn.append(f'<text x="{left}" y="{margin - 12}">{title}</text>')
        for one in results:
            if one.policy != policy:
                continue
            spots = [(left + at / last_s * width, margin + (1 - loss / top) * height) for at, loss in one.losses()]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            colour = COLOURS["planned" if one.planned else "as they come"]
            drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    for place, (name, colour) in enumerate(COLOURS.items()):
        drawn.append(f'<text x="{margin + place * 140}" y="{height + 2 * margin - 8}" fill="{colour}">{name}</text>')
    size = f'width="{len(policies) * (width + margin) + margin}" height="{height + 2 * margin}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>"])


def line(row: dict[str, Any]) -> str:
    """Return the figures of a run in one line."""
    how = "planned" if row["planned"] else "as they come"
    moved = f"{row['mb_in_per_update']:.1f} MB into the server and {row['mb_out_per_update']:.1f} out for each"
    return (
        f"{row['policy']}, {how}: {row['updates_per_s']:.2f} updates/s, {moved}, {row['aggregation']:.2f} in a vector"
    )


def said(way: str, followed: float | None, used: float | None) -> str:
    """Return in words how long it took until it was known that a direction has become slow."""
    if used is None:
        return f"{way} not used since"
    if followed is None:
        return f"{way} not known, first used after {used:.1f} s"
    return f"{way} known after {followed:.1f} s, {max(0.0, followed - used):.1f} s after its first megabyte"


def ratios(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each policy how planned transfers compare: updates per second, and bytes into the server for each."""
    found = {}
    for policy in dict.fromkeys(row["policy"] for row in rows):
        means = {
            (name, planned): fmean(row[name] for row in rows if (row["policy"], row["planned"]) == (policy, planned))
            for name in ("updates_per_s", "mb_in_per_update")
            for planned in (True, False)
        }
        found[policy] = {name: means[name, True] / means[name, False] for name in ("updates_per_s", "mb_in_per_update")}
    return found


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    known = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    known.add_argument("--seconds", type=float, default=60.0, help="of each run, from its first commit on [60]")
    known.add_argument("--rounds", type=int, default=1, help="runs of each kind [1]")
    known.add_argument("--policies", default=",".join(POLICIES), help=f"some of {','.join(POLICIES)} [both]")
    known.add_argument("--folder", type=Path, help="keeps stores, output and the picture [a temporary one]")
    given = known.parse_args()
    wrong = [one for one in given.policies.split(",") if one not in POLICIES]
    if wrong:
        known.error(f"--policies knows {', '.join(POLICIES)}, not {wrong[0]!r}")
    return given


def main() -> None:
    """Train each way in turns, and say what came of it."""
    given = options()
    if reason := why_not():
        sys.exit(reason)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="slow-network-"))
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [(policy, planned) for policy in given.policies.split(",") for planned in (False, True)] * given.rounds
    results: list[Result] = []
    with hosts(folder) as cluster:
        for number, (policy, planned) in enumerate(kinds):
            wanted = job(policy, planned, folder / f"run-{number}.zarr")
            results.append(train(cluster, wanted, given.seconds))
            print(line(results[-1].row()), flush=True)
        followed, used = {}, {}
        for name in CHANGED:
            wanted = job("delay-bounded", planned=True, store=folder / f"{name}-changed.zarr")
            changed = train(cluster, wanted, given.seconds, slowed=name)
            followed[name], used[name] = followed_s(changed), changed.used_s
            words = [said(way, known, used[name][way]) for way, known in followed[name].items()]
            print(f"{name} became slow: {'; '.join(words)}", flush=True)
    (folder / "loss.svg").write_text(picture(results))
    rows = [one.row() for one in results]
    print(f"losses over time: {folder / 'loss.svg'}", flush=True)
    print(json.dumps({"results": rows, "ratios": ratios(rows), "followed_s": followed, "first_used_s": used}))


if __name__ == "__main__":
    main()
