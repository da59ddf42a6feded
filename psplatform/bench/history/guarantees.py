"""What is checked, in words: each guarantee with the sentence that states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ONE_SERVER: Final = "one server"
ONE_ORDER: Final = "one order"
ONCE: Final = "at most once"
EVERYWHERE: Final = "same on all shards"
COMPUTED: Final = "computed"
PREFIX: Final = "replica is a prefix"
PROMOTION: Final = "promotion"
BOUND: Final = "bound"
LOSS: Final = "loss"
CONTENT: Final = "content"
NEVER_BACK: Final = "never back"
FENCING: Final = "fencing"
CHECKPOINT: Final = "checkpoint"
RECOVERY: Final = "recovery"
ROUND: Final = "round"
TICKET: Final = "ticket"
ONE_COORDINATOR: Final = "one coordinator"
WHOLE: Final = "whole record"

GUARANTEES: Final[Mapping[str, str]] = {
    ONE_SERVER: "Exactly one server per shard and epoch shows versions.",
    ONE_ORDER: (
        "Every server applies positions in the coordinator's order, each once; versions grow; what it shows is what it "
        "staged."
    ),
    ONCE: "A gradient is applied at most once on every shard, whatever is repeated or retried.",
    EVERYWHERE: "Every commit applies the same gradients on all shards, or its position is recorded as lost on some.",
    COMPUTED: "What is applied was computed by a worker under that slot and sequence.",
    PREFIX: "A replica stands at an exact position of its server's order, always.",
    PROMOTION: "A promoted server begins with exactly the state that its copy had, which is one of the server before.",
    BOUND: "No version is visible from which a replica in sync is further away than the bound.",
    LOSS: "What is lost with a server is within the bound; under `chain`, nothing that was visible.",
    CONTENT: "What a worker pulls as a version of a shard and epoch is what its server showed as that.",
    NEVER_BACK: "Versions never go back, except that after a promotion those are gone that are recorded as lost.",
    FENCING: "A server that was replaced and wakes up answers nothing, and nobody pulls what it shows.",
    CHECKPOINT: "A checkpoint is one cut: the states of all shards at one position, never a mixture.",
    RECOVERY: "A run that goes on from its store goes on from the newest complete checkpoint.",
    ROUND: "`bsp` averages one gradient of every live worker per round, each computed on the state that it changes.",
    TICKET: "With `sampling: epoch` a batch enters at most one applied gradient.",
    ONE_COORDINATOR: "One coordinator per term decides.",
    WHOLE: "The files are the recorder's, and none ends in mid-record but where its process was killed.",
}
