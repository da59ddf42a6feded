"""How long the Dask driver waits for what: all of it in one place, because the values depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines and pauses, in seconds.

    Attributes
    ----------
    probe_s
        A process that is there accepts a connection at once, even a stopped one: its kernel does.
    doubt_s
        After so long without an answer, a caller that does not watch the peer's process looks whether it is there.
    approach_s
        To connect ahead to a peer that may have to be called soon.
    waking_s
        A process that was stopped for longer counts as gone.
    delivery_s
        For one delivery: it only hands over, so even a process busy with something else answers within this.
    first_retry_s
        Before a delivery is tried again; twice as long each time.
    longest_retry_s
        The longest such pause.
    beat_waits_s
        How long a beat may wait for something that it can travel with: a call takes as much time from server
        and workers for one message as for many. Leases are far longer.
    not_yet_s
        How long a pull or a push waits before it is answered "not yet"; well below `pull_s` and `push_s`.
    held_s
        How long the answer to a worker that has announced a gradient waits for its release; then it says only that the
        worker was heard. Meanwhile, nothing else that it has to say is delivered.
    card_s
        For a scheduler to keep, or to forget, where a run is.
    thread_s
        How long the threads of a process are watched before it counts as going on.
    identify_s
        For a process to say which one of its host it is, so that its kernel tells of its end.
    watch_s
        How long the call that watches a process is under way before it is answered, and made again.
    shortest_lease_s
        The shortest lease. Under full load, beats of four in a second have been seen 0.8 s apart.
    beat_s
        Between the beats of who holds a lease: a small part of the shortest one.
    denied_s
        For a coordinator to hear that a standby is denied its number.
    together_s
        Events that nothing waits for are told together, with a beat: the standby may lag, and calls take time
        from server and workers.
    decided_s
        What led to a commit is told sooner: a successor that has not heard of it lets workers compute
        again.
    assembly_s
        How long those who are ready wait for a gradient worker that is not; it joins later then.
    create_s
        For Dask to make an actor; a busy worker may have to end a task first.
    open_s
        For an actor to import what the task needs and to read its data.
    open_silent_s
        For a process to answer while an actor in it opens, or is attached to: an import may keep its event loop
        waiting.
    replace_after_s
        What is lost is made again a little later: first the run must go on, on whatever cores there are.
    create_look_s
        Between two looks at the cluster while an actor is made.
    open_look_s
        Between two questions whether the process of an actor that opens, or is attached to, still answers.
    meet_s
        For the process of an actor to say which one of its host it is.
    warm_s
        For a process to import all of that, on a busy machine; an actor is made there then all
        the same.
    warm_ask_s
        For one question whether a process is warm.
    snapshot_s
        For a process to take the state that its standby begins with.
    late_import_s
        For a process that came later, or is used later, to import what the program refers to.
    import_s
        For a process to import what it is asked for: a large library on a busy machine takes half a minute.
    ask_all_s
        For all processes of a cluster to say whether they can run this psplatform.
    ask_one_s
        For one of those that have not answered, asked alone.
    pull_s
        For one pull: the server's own waiting time, and the transfer of a large shard.
    attach_s
        Servers may still be reading what their shard begins with.
    pull_retry_s
        Before a pull is tried again.
    push_s
        For one push: a large shard over a slow network.
    push_retry_s
        Before a push is tried again.
    feed_s
        For one gradient pushed to a replica.
    transfer_s
        For one transfer: a large shard over a slow network.
    transfer_retry_s
        Before a transfer is tried again.
    awaited_push_s
        How long a copy waits for gradients that are pushed: for what has not come by then, a replica asks its
        server, and a server gives the step up. Not for longer, because a worker may have gone on without
        knowing that its last gradient is wanted again.
    cold_retry_s
        Before a transfer into the store is tried again.
    forget_s
        After becoming the server, it gives up the memory of the one before: not at once, because that takes
        time.
    death_s
        For a nanny to see that its process has ended, and for the kernel to end one that is about to.
    death_ask_s
        For a nanny to answer of what its process has died.
    death_look_s
        Between two looks whether a process has ended.
    claim_retry_s
        Before a scheduler that has not answered is asked again.
    claim_s
        For a scheduler to answer at all; then it is asked again.
    scheduler_silent_s
        After which a scheduler that does not answer is said to be silent.
    seating_look_s
        Between two looks at where the roles are.
    settled_s
        Nothing is moved, and no process warmed, before the roles have stayed where they are for so long: first
        the run must be protected at all.
    move_s
        After which another move is tried, whatever has become of the last one.
    release_s
        For a copy to let go of what a member exposed.
    cluster_look_s
        Between two looks at the processes of the cluster.
    cluster_s
        For a scheduler to say which processes there are.
    deserted_s, share_after_s
        After so long without any gradient worker, and with fewer than there shall be, one may share a process with a
        copy: nannies had time to start others.
    retirement_s
        How long a process that ends in good order waits until its copies are not needed any more; Dask allows
        four.
    hand_over_s
        For the standby to hear the rest, and as much for it to be asked to take over: it must be in charge
        before servers of the same process can be handed over, and Dask gives all of that four seconds.
    leave_look_s
        Between two looks whether all workers have left.
    leaving_s
        How long the end of a run waits for its workers to say good-bye.
    flush_s
        Between two writings of the log.
    open_log_retry_s
        Before a store that could not be opened is tried again.
    store_retry_s
        A store that was removed is made anew within a second; so often and so far apart it is looked for.
    store_look_s
        For a store to show whose it is, before a standby counts it as not to be seen from its host.
    stand_aside_s
        How long a standby that does not see the store lets another take over, which may see it: that notices the
        loss later, because its lease may be longer, looks at the store as well, and claims its own number first.
    report_s
        For the coordinator to take what a copy says of a trouble.
    reply_s
        The answer leaves the event loop before the process is stopped: both wait for the same
        loop.
    """

    # calls between processes
    probe_s: float = 1.0
    doubt_s: float = 0.5
    approach_s: float = 20.0
    waking_s: float = 3600.0
    delivery_s: float = 10.0
    first_retry_s: float = 0.05
    longest_retry_s: float = 1.0
    beat_waits_s: float = 0.1
    not_yet_s: float = 5.0
    held_s: float = 0.05
    card_s: float = 5.0
    thread_s: float = 1.0
    identify_s: float = 20.0
    watch_s: float = 20.0

    # leases
    shortest_lease_s: float = 2.0
    beat_s: float = 0.25
    denied_s: float = 2.0
    together_s: float = 0.25
    decided_s: float = 0.02

    # starting roles
    assembly_s: float = 60.0
    create_s: float = 60.0
    open_s: float = 600.0
    open_silent_s: float = 60.0
    replace_after_s: float = 0.5
    create_look_s: float = 0.5
    open_look_s: float = 2.0
    meet_s: float = 10.0
    warm_s: float = 60.0
    warm_ask_s: float = 5.0
    snapshot_s: float = 60.0
    late_import_s: float = 60.0
    import_s: float = 120.0
    ask_all_s: float = 10.0
    ask_one_s: float = 5.0

    # parameters, gradients, transfers
    pull_s: float = 35.0
    attach_s: float = 600.0
    pull_retry_s: float = 0.05
    push_s: float = 60.0
    push_retry_s: float = 0.1
    feed_s: float = 60.0
    transfer_s: float = 60.0
    transfer_retry_s: float = 0.05
    awaited_push_s: float = 0.5
    cold_retry_s: float = 0.5
    forget_s: float = 1.0

    # losses and moves
    death_s: float = 5.0
    death_ask_s: float = 2.0
    death_look_s: float = 0.1
    claim_retry_s: float = 0.2
    claim_s: float = 5.0
    scheduler_silent_s: float = 2.0
    seating_look_s: float = 0.25
    settled_s: float = 2.0
    move_s: float = 120.0
    release_s: float = 10.0
    cluster_look_s: float = 0.5
    cluster_s: float = 10.0
    deserted_s: float = 10.0
    share_after_s: float = 60.0

    # ending
    retirement_s: float = 3.0
    hand_over_s: float = 1.0
    leave_look_s: float = 0.02
    leaving_s: float = 5.0

    # the store and what is told
    flush_s: float = 0.5
    open_log_retry_s: float = 1.0
    store_retry_s: float = 0.5
    store_look_s: float = 2.0
    stand_aside_s: float = 4.0
    report_s: float = 10.0
    reply_s: float = 0.05

    def __post_init__(self) -> None:
        """Refuse values that contradict each other.

        Raises
        ------
        ValueError
            Naming both.
        """
        for shorter, longer, why in _ORDER:
            if getattr(self, shorter) >= getattr(self, longer):
                raise ValueError(f"{shorter} must be below {longer}: {why}")
        if 2 * self.hand_over_s >= self.retirement_s:
            raise ValueError("2 * hand_over_s must be below retirement_s: the standby hears the rest, then takes over")


_ORDER: Final = (
    ("beat_s", "shortest_lease_s", "a lease is renewed by beats, several of which may be late"),
    ("beat_waits_s", "beat_s", "a beat that waits for company must not meet the next one"),
    ("decided_s", "together_s", "what led to a commit is urgent, the rest is not"),
    ("held_s", "beat_s", "a sign of life that waits behind a held answer is hardly late"),
    ("held_s", "delivery_s", "a held answer comes before its call runs out"),
    ("probe_s", "delivery_s", "a peer that does not answer is looked for before its delivery is given up"),
    ("first_retry_s", "longest_retry_s", "pauses grow"),
    ("not_yet_s", "push_s", "a push that waits for room is answered before its call runs out"),
    ("not_yet_s", "pull_s", "a pull that waits is answered before its call runs out"),
    ("scheduler_silent_s", "claim_s", "a scheduler is missed before a claim of it is given up"),
    ("store_look_s", "stand_aside_s", "another standby has looked by then"),
    ("open_silent_s", "attach_s", "a server that is attached to is asked more than once"),
    ("open_silent_s", "open_s", "an actor that opens is asked more than once"),
)

TIMEOUTS: Final = Timeouts()
"""Those in force."""
