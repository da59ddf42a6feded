"""Whether a store is sound: every byte of its log, its models and its checkpoints is read.

What is missing as a whole is told by what is left: the description by the run's outcome, and the log by the checkpoints
and the best model that it says were saved.  The following is not told by anything:

* The end of the log of a run that has no outcome yet: it goes on, or it died, and then its last records were never
  written.  Only where there is no log at all is one missing, if a checkpoint was sealed a minute after the start.
* The end of the log, or the model, of a run that failed before its coordinator could write how.
* Checkpoints, and the best model, where the segments of the log that name them are missing or damaged as well.
* A store that has lost everything but its description, which has no outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from psplatform.replication.checkpoints.retention import held_checkpoints
from psplatform.replication.stores.models import VerifiedModel, verified_model
from psplatform.replication.stores.places import place_of
from psplatform.replication.stores.store import describe_run
from psplatform.replication.verification import (
    COMPLETE,
    DAMAGED,
    INCOMPLETE,
    MISSING,
    UNREADABLE,
    Verified,
    sealed_numbers,
    verified_checkpoints,
)
from psplatform.telemetry.log.segments import START
from psplatform.telemetry.log.verification import VerifiedLog, verified_log

_LOGGED_WITHIN_S: Final = 60.0
"""A run brings its records out every half second: after so long it has a log, whatever it died of."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in a store.

    Attributes
    ----------
    model, best
        The saved model of the last version, and of the best one.
    """

    run: str
    store: str
    log: VerifiedLog
    model: VerifiedModel
    best: VerifiedModel
    checkpoints: tuple[Verified, ...]

    @property
    def sound(self) -> bool:
        """Whether all is there as it was written, as far as the store tells; what was never finished is no damage."""
        states = {self.log.state, self.model.state, self.best.state, *(one.state for one in self.checkpoints)}
        return states.isdisjoint({DAMAGED, UNREADABLE, MISSING})

    def to_plain(self) -> dict[str, Any]:
        """Return everything as plain values."""
        parts: dict[str, Any] = {"log": self.log, "model": self.model, "best": self.best}
        return {
            "run": self.run,
            "store": self.store,
            "sound": self.sound,
            **{name: part.to_plain() for name, part in parts.items()},
            "checkpoints": [one.to_plain() for one in self.checkpoints],
        }


def verify(store: str, *, report: Callable[[str], None] = lambda text: None) -> Verdict:
    """Read a store from end to end, in the memory of little more than its largest object; nothing is changed.

    A run that goes on may be verified as well.

    Parameters
    ----------
    report
        Called with a few words at each step.

    Raises
    ------
    StoreError
        If there is no run, or what is there cannot be listed.
    """
    store = place_of(store)
    description = describe_run(store)
    report("reading the log")
    log = verified_log(store)
    report("reading the model")
    model, best = verified_model(store), verified_model(store, best=True)
    found = []
    report("reading the checkpoints")
    for one in verified_checkpoints(store):
        found.append(one)
        report(f"read checkpoint {one.number}")
    now = describe_run(store)
    if any(now.get(name) != description.get(name) for name in ("run", "term", "outcome")):
        description = {**now, "outcome": None}  # it has ended or gone on meanwhile, and what was read is from before
    flaw = _lacking_log(store, description, log)
    if flaw:
        log.add(flaw, log.newest[0].term)
    ended_well = description.get("outcome") not in (None, "failed")
    if ended_well:
        model = _required(model, f"the run has ended ({description['outcome']}), and its model was saved")
    if log.evidence.kept_best:
        best = _required(best, "the log says that the model of a best version was saved")
    return Verdict(now["run"], store, log, model, best, _with_missing(store, log, found))


def _lacking_log(store: str, description: Mapping[str, Any], log: VerifiedLog) -> str:
    """Return in words that the log, or its end, is missing although it must have been written, or ``""``."""
    outcome, (newest, readable) = description.get("outcome"), log.newest
    # A run that could not be started has failed without a coordinator, which alone writes `failure`, after the log.
    if outcome is None or (outcome == "failed" and "failure" not in description):
        return _lacking_whole_log(store, description) if newest == START else ""
    if newest == START:
        return f"the log is missing: the run has ended ({outcome})"
    ended = max(log.evidence.ended, default=0)
    if readable and (ended < newest.term or newest.term < description.get("term", 1)):
        return f"the end of the log is missing after {newest.name}: the run has ended ({outcome})"
    return ""


def _lacking_whole_log(store: str, description: Mapping[str, Any]) -> str:
    started = description.get("started")
    late = [
        one.number
        for one in held_checkpoints(store)
        if started is not None and one.summary is not None and one.summary.time_s - started > _LOGGED_WITHIN_S
    ]
    return f"the log is missing: checkpoint {late[-1]} was written after the run had logged" if late else ""


def _required(model: VerifiedModel, why: str) -> VerifiedModel:
    """Return a model that must have been saved, as missing or damaged where it was not."""
    if model.state == "none":
        return VerifiedModel(MISSING, f"it is missing: {why}")
    if model.state == INCOMPLETE:
        return replace(model, state=DAMAGED, flaw=f"its zarr.json does not say its version: {why}")
    return model


def _with_missing(store: str, log: VerifiedLog, found: list[Verified]) -> tuple[Verified, ...]:
    """Return checkpoints with those that the log says were sealed, that were not removed since, and are not there."""
    lacking = _lacking_checkpoints(store, log)
    if lacking:  # one that goes on may have removed one for another, which the first look has missed
        lacking &= _lacking_checkpoints(store, log)
    known = {one.number: one for one in found if one.state != COMPLETE or one.number not in lacking}
    for number in lacking:
        there = number in known
        text = "manifest.jsonl: it is missing" if there else "it is missing"
        told = Verified(number, DAMAGED if there else MISSING, f"{text}, and the log says that it was sealed")
        known[number] = told
    for number, one in known.items():
        if one.state == INCOMPLETE and number in log.evidence.known_sealed:
            text = "it has no manifest: it was sealed, and newer ones have taken its place since"
            known[number] = replace(one, flaw=text)
    return tuple(known[number] for number in sorted(known))


def _lacking_checkpoints(store: str, log: VerifiedLog) -> set[int]:
    present = sealed_numbers(store)
    return set(log.evidence.required(present)) - set(present)
