"""The coordinator, the one place where order is decided: components over one state, each with the events it handles.

===============  ===================================================================
``coordinator``  hands every event to its component
``state``        what the coordinator knows
``members``      who is in the run: the ``roster`` of slots and their members, who joins, leaves and dies
                 (``membership``), on which ``hosts`` they are, what they were released for before a takeover
                 (``reconciliation``)
``order``        how gradients become versions: the policy's hooks, with what they answer checked (``asking``);
                 what becomes of a gradient that is announced, or given up before (``admission``), and when what is not
                 finite means that the run has diverged (``divergence``); an order of commits, one per run or per
                 block, with what waits in its pool and which commits are not yet visible, and the `View` that policies
                 read (``commit_logs``); deciding commits, clipping, noting when they are visible (``commits``); who
                 goes on, and when the pool is committed (``releases``); the ``epochs`` and their batches
``shards``       what is known of them (``state``); servers and replicas: losses, promotions, hand-overs, new ones
                 (``copies``), of which some are being made (``recruits``); what is lost with a server, and that its
                 shard goes on (``failovers``); when ``checkpoints`` are due, what belongs to them, and the
                 coordinator's own part
``transfers``    which of the ``gradients`` that workers offer are sent, and when; the ``offers`` that are open; where
                 the ``servers`` are that they are sent to; who sums which on the way (``bundles``); when parameters
                 are sent, and by whom (``pulls``)
``takeover``     what is asked before a new coordinator decides anything
``ending``       stop conditions, the last evaluation, saving the model
``invariants``   what must hold after every event
===============  ===================================================================

Rules that hold whatever the policy says:

* A gradient is named (slot, sequence); the second announcement of one is ignored, one from a dismissed process is void.
* A gradient that is not finite is never applied, and its batch is given up after `Plan.tries` of them.
* When since the last commit as many were not finite as workers live, and as many as `Plan.tries`, although their
  samples were finite, and no worker that still computes might do better, the run stops.  Where there were fewer, or it
  was their samples, and nobody computes, all are released again, for other batches of the same version; when not a
  batch of an epoch was finite, the run stops, too.
* The run stops when everybody alive has brought a block nothing finite for its next version: nobody computes it again.
* Gradients enter a commit in the order of their slots, so sums do not depend on the order of arrival.
* A worker is released as soon as a commit is decided; its pull waits until the version is visible.
* A pooled gradient stays valid when its worker dies: every shard could reach it before it was announced.
  What is held, for a version to come, is dropped with its worker: the slot's next process begins before that version.
"""

from psplatform.core.coordination.coordinator import Coordinator

__all__ = ["Coordinator"]
