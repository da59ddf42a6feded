"""What programs call: the command line, the dashboard and users' own programs all come in by this door.

================  ==================================================================================
``launch``        `train`: start a job, checked first on what it will run on
``recovery``      `recover`: continue a run from its store
``run``           `Run`: wait for a run, look at it, stop it, take its model
``attaching``     `attach`, `runs_on`: runs that other programs have started
``finding``       what a cluster's processes hold of a run
``listing``       `list_runs`, `look_at`: which runs there are, and what can be done with each
``cluster_view``  `look_at_cluster`: the processes of a cluster and the runs on them
``chaos``         `targets`, `kill`, `pause`: hurt one run on purpose
``programs``      `start`, `programs`: commands as programs that outlive who starts them
``what_if``       `simulate`, and `compare`: one job under several policies on a modelled cluster
``job_files``     what a job file may say beyond the fields of a job
``connecting``    clients of a scheduler, and questions to one, within seconds or not at all
``records``       what this user's programs have noted of the runs they started: where each one's scheduler is
``embedded``      a cluster on this machine, for one run, and its ``credentials``
``forking``       its processes, forked from one that has imported what they need
``prepared``      from a job to the ``program`` that every process of the run receives
``preflight``     what must hold before anything is started; ``importable``, the modules of the job's objects;
                  ``open_files``, how many a process may have
================  ==================================================================================

Nothing here decides anything about training: that is `psplatform.core`, which `psplatform.runtime` runs on Dask and
`psplatform.simulation` on a clock that jumps.
"""
