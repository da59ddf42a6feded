"""Fault simulation: the protocol under random faults, with everything checked that must hold.

A *trial* is data: a small training, how it is protected, the conditions it runs under, and a schedule of faults.  The
same seed gives the same trial, and the same trial the same run, event by event.  The roles, the policy and the
arithmetic are those of every run; here are only the faults, the checks and the search.

===============  ==================================================================================
``schedule``     faults as data, free of any driver: the same schedule can drive real processes
``trial``        everything that distinguishes one trial from another, as data
``drawing``      drawing a trial from a seed
``amending``     what is drawn from streams of its own: processes that end in good order, claims that are held back
``scenarios``    losses that come together, which chance alone would draw too rarely
``hosts``        hosts that are lost or cut off, with all that is on them
``world``        the durations of everything, and what a partition or a bad network does to messages
``injection``    doing to a run what its schedule says, when it says so
``storage``      checkpoints in a storage that fails, tears and loses what is written
``truth``        arithmetic that keeps the true history of every copy beside it
``observation``  what every role may answer and obey, from what it does
``distance``     how far replicas really are from what is visible
``promises``     what each policy promises by itself
``crowd``        promises about how many of those who live take part
``serial``       the serial loop that a run of exact versions must equal
``coverage``     how often faults met which phase of the protocol
``execution``    one trial, to its end or its first violation
``shrinking``    the least trial that still fails
``fuzzing``      many trials
``ablations``    the safeguards, each taken away from outside, and whether the checks notice
===============  ==================================================================================

What a run may do depends on its *mode*.  ``safety``: faults come at any time, the run may fail with an error that says
why, and no invariant is ever violated.  ``liveness``: faults cease and leave enough alive; then the run ends as asked,
within bounded time.
"""
