"""What programs call: the command line, the dashboard and users' own programs all come in by this door.

==============  ====================================================================================
``launch``      `train`: start a job, checked first on what it will run on
``recovery``    `recover`: continue a run from its store
``run``         `Run`, `attach`: wait for a run, look at it, stop it, take its model
``what_if``     `simulate`, and `compare`: one job under several policies on a modelled cluster
``connecting``  clients of a scheduler, within seconds or not at all
``embedded``    a cluster on this machine, for one run
``prepared``    from a job to the ``program`` that every process of the run receives
``preflight``   what must hold before anything is started
==============  ====================================================================================

Nothing here decides anything about training: that is `psplatform.core`, which `psplatform.runtime` runs on Dask and
`psplatform.simulation` on a clock that jumps.
"""
