"""Fault simulation: the protocol under random faults, with everything checked that must hold.

A *trial* is data: a small training, how it is protected, the conditions it runs under, and a schedule of faults.  The
same seed gives the same trial, and the same trial the same run, event by event.  The roles, the policy and the
arithmetic are those of every run; here are only the faults, the checks and the search.

``schedules``    faults and trials as data, free of any driver: drawn from a seed, written down, made smaller
``checks``       the reference model that keeps the true history of every copy, and everything that must hold
``world``        the durations of everything, and what a partition or a bad network does to messages
``injection``    doing to a run what its schedule says, when it says so
``storage``      checkpoints in a storage that fails, tears and loses what is written
``execution``    one trial, to its end or its first violation
``fuzzing``      many trials

What a run may do depends on its *mode*.  ``safety``: faults come at any time, the run may fail with an error that says
why, and no invariant is ever violated.  ``liveness``: faults cease and leave enough alive; then the run ends as asked,
within bounded time.
"""
