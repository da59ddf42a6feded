"""Whether a store is sound: every byte of its log, its models and its checkpoints is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psplatform.replication.stores.models import VerifiedModel, verified_model
from psplatform.replication.stores.places import place_of
from psplatform.replication.stores.store import describe_run
from psplatform.replication.verification import DAMAGED, UNREADABLE, Verified, verified_checkpoints
from psplatform.telemetry.log.verification import VerifiedLog, verified_log


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
        """Whether all that is there is as it was written; what was never finished is no damage."""
        states = {self.log.state, self.model.state, self.best.state, *(one.state for one in self.checkpoints)}
        return states.isdisjoint({DAMAGED, UNREADABLE})

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
    run = describe_run(store)["run"]
    report("reading the log")
    log = verified_log(store)
    report("reading the model")
    model, best = verified_model(store), verified_model(store, best=True)
    found = []
    report("reading the checkpoints")
    for one in verified_checkpoints(store):
        found.append(one)
        report(f"read checkpoint {one.number}")
    return Verdict(run, store, log, model, best, tuple(found))
