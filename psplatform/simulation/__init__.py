"""The simulator: a job's own coordinator, servers, sessions and policy in a modelled world, on a clock that jumps.

Roles and driver are those of the in-memory driver (`psplatform.memory`); this package says how long everything takes,
and tells what came of it.  Two simulations of the same job under the same conditions and seed give the same log, byte
for byte.

===============  ==================================================================================
``conditions``   what a simulated cluster is like, in words and as values
``run_times``    how long each gradient takes: distributions, nodes that share their pace, traces
``round_trips``  traces of whole round trips
``regimes``      slots that are slower for a while
``network``      network interfaces with rates that change, and what is sent through them
``collectives``  how long ring and tree all-reduce take
``world``        the durations of everything, made of these
``synthetic``    the figures of gradients that are not computed
``event_trace``    the event log as its digest and its picture
``driver``       a run in such a world, to its end
``threads``      one thread for all arithmetic
``simulate``     simulating a job
``faults``       the protocol under random faults, with everything checked that must hold
===============  ==================================================================================
"""
