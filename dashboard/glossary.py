"""The words of the pages, as tooltips explain them."""

from __future__ import annotations

from typing import Final

GLOSSARY: Final[dict[str, str]] = {
    "state": "live: it goes on · finished: it reached an end, or was stopped · failed: it ended by an error and "
    "nothing can be recovered · recoverable: it failed or was lost, and a complete checkpoint is held · foreign: not "
    "readable as a run",
    "version": "Updates so far: one round of a synchronous policy, or one gradient of an asynchronous one.",
    "updates per second": "Updates since the first worker joined, or since the run was recovered, per second.",
    "loss": "Mean training loss of the gradients in the newest commit.",
    "held-out loss": "Loss of the newest evaluated version.",
    "metrics": "What the job measures of evaluated versions beside loss and accuracy, over all held-out samples.",
    "accuracy": "Share of held-out samples that the newest evaluated version gets right.",
    "workers": "Computing: on a gradient now · waiting: for a release by the policy · slow: its newest gradients take "
    "more than 1.5 times the usual · lost: its process is gone.",
    "divergence": "How far replicas may have been behind the server at a visible version: the largest seen, and the "
    "bound that is enforced before a version becomes visible.",
    "checkpoint": "Age of the newest complete checkpoint in the store: what the loss of the whole cluster would cost.",
    "incidents": "Processes that were lost or joined again, and other things that a person may want to know.",
    "staleness": "Version before the commit minus the version that the gradient was computed on.",
    "straggler score": "Median time of a worker's newest 32 gradients over the usual one: 2 is twice as slow.",
    "wait": "Waiting for the policy's release.",
    "pull": "Fetching parameters from the servers.",
    "compute": "Computing the gradient.",
    "push": "Making the gradient reachable for the servers.",
    "dropped": "Gradients that were computed and not applied.",
    "into the servers": "Bytes of gradients, and of sums of them, that came to the servers.",
    "out of the servers": "Bytes of parameters that workers got from the servers: once where a relay handed them on.",
    "interface": "What went from one host to another: gradients to the servers and to aggregators, parameters from the "
    "servers and from relays. What stays on a host is not counted.",
    "gradients per vector": "A vector that comes to the servers is a gradient, or an aggregator's sum of several.",
    "planned seconds": "Actual: from when it was to begin until it was there · planned: what the planner expected.",
    "dropped at the source": "Gradients that would have come too late to be applied, and were not sent.",
    "lag": "Updates that the worst replica in sync lacks.",
    "epoch": "Fencing number of a shard's server: grows at each promotion.",
    "term": "Fencing number of the coordinator: grows at each takeover.",
    "protection": "in sync: every shard has a replica that may take over · unprotected: the loss of the server of one "
    "of these shards would end the run · none: no replicas were asked for",
    "factor on the learning rate": "What the policy and the schedule multiply the job's learning rate by.",
    "progress": "Share of the way to the nearest of the run's ends.",
    "unprotected seconds": "Seconds in which some shard had no replica in sync.",
}


def meaning(word: str) -> str:
    """Return what a word on a page means."""
    return GLOSSARY[word]
