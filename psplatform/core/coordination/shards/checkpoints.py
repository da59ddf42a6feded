"""Checkpoints: one cut over all shards, chosen here, written by the copies, complete when its manifest is.

A cut is a position in every order of commits: the commit there says so, and every copy that writes does it from
exactly that state.  The first commit of a run is one, and the last one: when a run ends in good order, nothing follows
it, and the servers are told of the cut by a message of its own.  At most one is under way.  Its numbers begin with the
term, so that a coordinator that was replaced and does not know it cannot write into another's.

What one that was given up left in the store is removed at once: on a full disk, nothing else makes room for the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psplatform.core.coordination.members.roster import Slots
from psplatform.core.coordination.order.commit_logs import CommitLog, Entry
from psplatform.core.coordination.order.epochs import BatchScheduler
from psplatform.core.coordination.state import State
from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, Discard, Seal, Send
from psplatform.core.protocol.events import CheckpointFailed, CheckpointSealed
from psplatform.core.protocol.names import Role
from psplatform.core.quality import Progress, Watch

NUMBERS_PER_TERM: Final = 100_000
"""Checkpoints that a term can number: a billion updates at one every ten thousand."""

DUE: Final = "checkpoint due"
OVERDUE: Final = "checkpoint overdue"


@dataclass(slots=True)
class _Cut:
    number: int
    begun_at: float
    positions: dict[int, int] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    parts: dict[int, dict[str, Any]] = field(default_factory=dict)
    version: int = 0
    state: dict[str, Any] | None = None


class Checkpoints:
    """Decides where cuts are, and follows each until it is sealed.

    Parameters
    ----------
    capture
        Returns the coordinator's part of a checkpoint.
    """

    def __init__(self, state: State, capture: Callable[[], Captured]) -> None:
        self._state = state
        self._capture = capture
        self._count = 0
        self._last_version = 0
        self._due = False
        self._cut: _Cut | None = None
        self._complete = 0
        self._last: Captured | None = None

    @property
    def under_way(self) -> bool:
        """Whether one has been cut that is neither sealed nor given up."""
        return self._cut is not None

    def begin(self) -> None:
        """Cut at a run's first commit, and set the clock for the next one."""
        self._last_version = self._complete = self._state.version
        self._rest()
        cuts = self._state.plan.cuts
        self._due = cuts is not None and cuts.ends and not self._state.version

    def on_timer(self, tag: str) -> None:
        """Cut at the next commit, or give up one that takes too long."""
        if tag == DUE:
            self._due = True
        elif self._cut is not None and self._state.plan.cuts is not None:
            limit = self._state.plan.cuts.limit_s
            self._abandon(f"not complete after {limit:g} s; shards {self._missing()} have not written their part")

    def _missing(self) -> list[int]:
        parts = self._cut.parts if self._cut is not None else {}
        return [shard for shard in range(self._state.plan.shards) if shard not in parts]

    def cut(self, commit_log: CommitLog, updates: int = 1) -> int:
        """Return the number of the checkpoint that ends at the commit log's next commit, of so many updates, or 0."""
        state = self._state
        if self._cut is None and self._is_due(updates):
            self._due = False
            if state.version:  # the first one is beside those that are asked for
                self._last_version = state.version + updates
            self._begin_cut()
        if self._cut is None or commit_log.shards[0] in self._cut.positions:
            return 0
        for shard in commit_log.shards:
            self._cut.positions[shard] = commit_log.position + 1
            self._cut.versions[shard] = commit_log.version + updates
        return self._cut.number

    def _begin_cut(self) -> _Cut:
        self._count += 1
        self._cut = _Cut(self._state.term * NUMBERS_PER_TERM + self._count, self._state.now)
        cuts = self._state.plan.cuts
        self._state.limit(OVERDUE, cuts.limit_s if cuts is not None else 0.0)
        return self._cut

    def close(self) -> None:
        """Cut after the last commit of a run that ends, unless that commit is a cut itself, or nothing is known of it.

        What belongs to it is what was known right after that commit: not what was begun since, and given up.
        """
        state, cuts = self._state, self._state.plan.cuts
        captured = self._last
        if cuts is None or not cuts.ends or captured is None:
            return
        if state.version in (self._complete, self._version_under_way):
            return
        if self._cut is not None:
            self._abandon("the run ended before it was complete")
        cut, last = self._begin_cut(), captured.to_plain()
        cut.positions = dict(enumerate(last["positions"]))
        cut.versions = dict(enumerate(last["versions"]))
        cut.version, cut.state = last["version"], last
        for one in state.shards:
            order = msg.Cut(state.term, one.epoch, cut.number, cut.positions[one.shard])
            state.effects.append(Send(Role.copy(one.server), order))

    @property
    def _version_under_way(self) -> int:
        return self._cut.version if self._cut is not None and self._cut.state is not None else -1

    def _is_due(self, updates: int) -> bool:
        cuts = self._state.plan.cuts
        if cuts is None:
            return False
        every = cuts.every_updates
        return self._due or (every is not None and self._state.version + updates - self._last_version >= every)

    def decided(self, entry: Entry) -> None:
        """Count a commit as accounted for; with the last of a cut, what the coordinator knows belongs to it."""
        cut, cuts = self._cut, self._state.plan.cuts
        is_last_of_cut = cut is not None and entry.cut == cut.number and len(cut.positions) == self._state.plan.shards
        if cuts is None or not (cuts.ends or is_last_of_cut):
            return
        self._last = self._capture()
        if cut is not None and is_last_of_cut:
            # Where blocks have orders of their own, those that were cut first have moved on.
            shards = sorted(cut.positions)
            cut.version = min(cut.versions.values())
            cut.state = self._last.to_plain() | {
                "version": cut.version,
                "positions": [cut.positions[shard] for shard in shards],
                "versions": [cut.versions[shard] for shard in shards],
            }

    def on_written(self, message: msg.Written) -> None:
        """Take a shard's part; with the last one, the manifest is written."""
        cut = self._cut
        if cut is None or message.number != cut.number:
            self._discard(message.number)
            return
        if cut.positions.get(message.shard) != message.position:
            return
        complete = len(cut.parts) == self._state.plan.shards
        cut.parts[message.shard] = message.part
        if cut.state is not None and not complete and len(cut.parts) == self._state.plan.shards:
            parts = tuple(cut.parts[shard] for shard in sorted(cut.parts))
            self._state.effects.append(Seal(cut.number, cut.version, parts, cut.state))

    def on_not_written(self, message: msg.NotWritten) -> None:
        """Give the checkpoint up: the one before stays."""
        self._fail(message.number, message.text)

    def awaits(self, shard: int) -> bool:
        """Whether a copy of the shard has yet to write its part of a checkpoint."""
        return self._cut is not None and shard not in self._cut.parts

    def on_copy_lost(self, shard: int) -> None:
        """Give up a checkpoint that lacks the part of a shard whose copy is lost."""
        if self.awaits(shard):
            self._abandon(f"a copy of shard {shard} was lost")

    def on_taken_over(self) -> None:
        """Give up what is under way: copies may have said that they have written to a coordinator that is gone."""
        if self._cut is not None:
            self._abandon("its coordinator was lost")

    def give_up(self, reason: str) -> None:
        """Give up what is under way: the run does not wait for it any longer."""
        if self._cut is not None:
            self._abandon(reason)

    def on_sealed(self, event: CheckpointSealed) -> None:
        """Count a checkpoint as complete."""
        if self._cut is not None and event.number == self._cut.number:
            self._log("complete", "", event.size_bytes)
            self._complete = self._cut.version
            self._rest()

    def on_failed(self, event: CheckpointFailed) -> None:
        """Give up a checkpoint whose manifest could not be written."""
        self._fail(event.number, event.text)

    def _fail(self, number: int, reason: str) -> None:
        if self._cut is not None and number == self._cut.number:
            self._abandon(reason, "failed")
        else:
            self._discard(number)

    def _abandon(self, reason: str, event: str = "abandoned") -> None:
        self._log(event, reason, 0)
        if self._cut is not None:
            self._discard(self._cut.number)
        self._rest()

    def _discard(self, number: int) -> None:
        # What a lost coordinator cut may still be sealed by it: that is removed with the next one that is sealed.
        if number // NUMBERS_PER_TERM == self._state.term:
            self._state.effects.append(Discard(number))

    def _rest(self) -> None:
        cuts = self._state.plan.cuts
        self._cut = None
        self._state.effects.append(CancelTimer(OVERDUE))
        if cuts is not None and cuts.every_seconds is not None:
            self._state.limit(DUE, cuts.every_seconds)

    def _log(self, event: str, reason: str, size_bytes: int) -> None:
        cut, state = self._cut, self._state
        if cut is not None:
            state.log(
                "checkpoint",
                number=cut.number,
                version=cut.version,
                event=event,
                seconds=state.now - cut.begun_at,
                bytes=size_bytes,
                reason=reason,
            )


class Captured(NamedTuple):
    """What the coordinator knows right after a commit: values, and copies of what changes.

    A run may end after any commit, so it is captured after each; plain values are made of few.

    Attributes
    ----------
    version
        That every commit log has decided.
    places
        Position and version of each shard's commit log.
    newest
        Of each commit log.
    learner
        Who has learned what `policy` says: the policy's name, and its parameters by name.
    """

    version: int
    places: list[tuple[int, int]]
    seconds: float
    samples_applied: int
    bad_batches: tuple[int, int]
    progress: Progress
    watch: Watch
    slots: Slots
    deck: BatchScheduler | None
    newest: list[dict[int, int]]
    learner: tuple[str, list[tuple[str, Any]]]
    policy: dict[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, from which `restore` goes on."""
        return {
            "version": self.version,
            "positions": [position for position, _ in self.places],
            "versions": [version for _, version in self.places],
            "seconds": self.seconds,
            "samples_applied": self.samples_applied,
            "bad_batches": list(self.bad_batches),
            "progress": self.progress.to_plain(self.watch),
            "roster": self.slots.to_plain(),
            "deck": self.deck.to_plain() if self.deck is not None else None,
            "newest": [sorted(newest.items()) for newest in self.newest],
            "learner": _described(*self.learner),
            "policy": self.policy,
        }


def capture(state: State) -> Captured:
    """Return what the coordinator knows after the commit at hand."""
    scheduler, policy, known = state.batch_scheduler, state.policy, state.progress
    logs = state.commit_logs if state.per_block else state.commit_logs * state.plan.shards
    return Captured(
        version=state.version,
        places=[(log.position, log.version) for log in logs],
        seconds=state.seconds,
        samples_applied=state.samples_applied,
        bad_batches=(state.bad_batches, state.samples_given_up),
        progress=Progress(known.best, known.version, known.goal, known.waited),
        watch=state.plan.watch,
        slots=state.roster.slots,
        deck=scheduler.copy() if scheduler is not None else None,
        newest=[dict(log.newest) for log in state.commit_logs],
        learner=_learner(policy),
        policy=policy.state(),
    )


def place_after(plain: dict[str, Any], shard: int, commit_logs: int) -> tuple[int, int]:
    """Return position and version at which a shard goes on from the plain form of what was captured.

    Parameters
    ----------
    commit_logs
        In how many orders commits are decided from now on: one, or one for each shard.
    """
    if 1 < commit_logs == len(plain["newest"]):
        return plain["positions"][shard], plain["versions"][shard]
    return max(plain["positions"]), plain["version"]


def restore(state: State, plain: dict[str, Any]) -> None:
    """Let a coordinator that has not begun go on from the plain form of what was captured.

    Shards may be divided otherwise.

    Unless there are as many orders of commits as before, all shards go on from the oldest one's version.  What was
    learned by another policy, or by the same one with other parameters, is forgotten.
    """
    for commit_log in state.commit_logs:
        commit_log.position, commit_log.version = place_after(plain, commit_log.shards[0], len(state.commit_logs))
        commit_log.newest = (
            dict(plain["newest"][commit_log.block]) if len(plain["newest"]) == len(state.commit_logs) else {}
        )
    state.seconds_before = plain["seconds"]
    state.samples_applied = plain["samples_applied"]
    state.bad_batches, state.samples_given_up = plain.get("bad_batches", (0, 0))  # older checkpoints have none
    state.progress = Progress.from_plain(plain.get("progress"), state.plan.watch)  # nor of evaluations
    state.roster.restore(plain["roster"])
    if state.batch_scheduler is not None and plain["deck"] is not None:
        state.batch_scheduler.restore(plain["deck"])
    if plain.get("learner") == _described(*_learner(state.policy)):
        state.policy.restore(plain["policy"])
    for one in state.shards:
        one.visible = state.commit_log_of(one.shard).position


def _learner(policy: Policy) -> tuple[str, list[tuple[str, Any]]]:
    return type(policy).__qualname__, [(one.name, getattr(policy, one.name)) for one in parameters_of(type(policy))]


def _described(name: str, parameters: list[tuple[str, Any]]) -> str:
    return f"{name}({', '.join([f'{one}={value!r}' for one, value in parameters])})"
