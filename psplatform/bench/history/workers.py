"""What is promised to workers: they pull what was shown, by no server that was replaced, and rounds are whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from psplatform.bench.history.guarantees import CONTENT, FENCING, NEVER_BACK, ROUND, TICKET
from psplatform.bench.history.reading import Actor, Epoch, Life, Record, applied


def violations(life: Life, policy: str) -> Iterator[str]:
    """Yield what of it did not hold."""
    for worker in life.workers:
        for one in worker.of("pulled"):
            yield from _content(life, worker, one)
        yield from _never_back(life, worker)
        yield from _took(life, worker)
    for shard, epochs in life.epochs.items():
        for epoch in epochs:
            yield from _silent(shard, epochs, epoch)
        if not life.per_block:
            yield from _tickets(life, shard)
        if (policy or life.description.get("policy")) == "bsp":
            yield from _rounds(life, shard)


def _content(life: Life, worker: Actor, pulled: Record) -> Iterator[str]:
    shard, number, version = int(pulled["shard"]), pulled["epoch"], pulled["version"]
    epochs = life.epochs.get(shard, [])
    shown = life.showings.get((shard, number, version), [])
    what = f"{worker.name} pulled version {version} of shard {shard}, epoch {number},"
    if not shown:
        yield f"{CONTENT}: {what} which was never shown"
    elif pulled["digest"] is not None and all(one["digest"] not in (None, pulled["digest"]) for _, one in shown):
        yield f"{CONTENT}: {what} with another content than its server showed"
    for epoch, one in shown:
        if _after_successor(epochs, epoch, float(one["at"])):
            yield f"{FENCING}: {what} which was shown after that server was replaced"


def _took(life: Life, worker: Actor) -> Iterator[str]:
    for one in worker.of("took"):
        shard = int(one["shard"])
        if _is_replaced(life.epochs.get(shard, []), one["epoch"], worker.clock, float(one["at"])):
            what = f"what shard {shard}'s server of epoch {one['epoch']} showed"
            yield f"{FENCING}: {worker.name} took {what} after that server was replaced"


def _after_successor(epochs: list[Epoch], epoch: Epoch, at: float) -> bool:
    return _is_replaced(epochs, epoch.number, epoch.copy.clock, at)


def _is_replaced(epochs: list[Epoch], number: int, clock: str, at: float) -> bool:
    return any(
        later.number > number and later.copy.clock == clock and float(later.began["at"]) < at for later in epochs
    )


def _silent(shard: int, epochs: list[Epoch], epoch: Epoch) -> Iterator[str]:
    for one in epoch.copy.of("answered"):
        if one["epoch"] == epoch.number and _after_successor(epochs, epoch, float(one["at"])):
            who = f"{epoch.copy.name}, which was shard {shard}'s server in epoch {epoch.number},"
            yield f"{FENCING}: {who} answered {one['member']} after it was replaced"


def _never_back(life: Life, worker: Actor) -> Iterator[str]:
    for shard in life.epochs:
        pulls = [one for one in worker.of("pulled") if one["shard"] == shard]
        for before, after in pairwise(pulls):
            back = int(after["version"]) < int(before["version"])
            if int(after["epoch"]) < int(before["epoch"]) or (back and not _is_lost(life, shard, before, after)):
                steps = " after ".join(f"version {one['version']} of epoch {one['epoch']}" for one in (after, before))
                yield f"{NEVER_BACK}: {worker.name} pulled {steps} of shard {shard}"


def _is_lost(life: Life, shard: int, before: Record, after: Record) -> bool:
    """Whether the coordinator has put down that a promotion between the two took versions with it."""
    return any(
        one["shard"] == shard and before["epoch"] < one["epoch"] <= after["epoch"] and one["updates_lost"] > 0
        for one in life.of_kind("promoted")
    )


def _tickets(life: Life, shard: int) -> Iterator[str]:
    at: dict[tuple[int, int], int] = {}
    for position, step in life.line(shard).items():
        for gradient in applied(step):
            ticket = life.computed.get(gradient, {}).get("ticket")
            if ticket is None:
                continue
            epoch, number = ticket
            if (epoch, number) in at:
                where = f"at positions {at[epoch, number]} and {position} of shard {shard}"
                yield f"{TICKET}: batch {number} of pass {epoch} was applied {where}"
            at[epoch, number] = position


def _rounds(life: Life, shard: int) -> Iterator[str]:
    wanted = _steady_workers(life)
    for epoch in life.epochs[shard]:
        state, decided = epoch.began, _decided_before(life, epoch)
        for position, step in epoch.staged.items():
            found, where = applied(step), f"{ROUND}: position {position} of shard {shard}"
            slots = {slot for slot, *_ in found}
            if len(slots) < len(found):
                yield f"{where} has two gradients of one worker"
            if wanted is not None and len(found) != wanted:
                yield f"{where} has {len(found)} gradients of {wanted} workers"
            for one in found if position > decided else ():
                on = life.computed.get(one, {"digests": {shard: None}})["digests"][shard]
                if None not in (on, state["digest"]) and on != state["digest"]:
                    what = f"gradient {one[1]} of slot {one[0]}, which was computed on another state"
                    yield f"{where} has {what}"
            state = step


def _steady_workers(life: Life) -> int | None:
    """Return the number of workers, where all were there before the first commit and none has gone."""
    said = life.said
    kinds = [one["kind"] for one in said]
    first = kinds.index("commit") if "commit" in kinds else len(kinds)
    joined = {one["slot"] for one in said if one["kind"] == "joined"}
    late = {one["slot"] for one in said[first:] if one["kind"] == "joined"}
    workers = life.description.get("workers")
    gone = {"left", "lost"} & set(kinds[: kinds.index("finished") if "finished" in kinds else None])
    return None if workers is None or gone or late or len(joined) != workers else int(workers)


def _decided_before(life: Life, epoch: Epoch) -> int:
    """Return up to which position commits may have been decided before a promotion; -1 for a shard's first server.

    They are applied whatever the shard has lost: their gradients were computed on what was visible.
    """
    if epoch.began["kind"] != "serves":
        return -1
    staged = [
        int(one["position"])
        for copy in life.copies
        for one in copy.of("staged")
        if float(one["wall"]) <= float(epoch.began["wall"])
    ]
    return max(staged, default=0) + 1  # one may have been decided that nobody had staged
