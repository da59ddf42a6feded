"""What programs call: the command line, the dashboard and users' own programs all come in by this door.

================  ==================================================================================
``launch``        `train`: start a job, checked first on what it will run on
``run``           `Run`: wait for a run, look at it, stop it, take its model
``runs``          runs as programs find them: the way to a coordinator (``coordinator_link``), what a store tells
                  (``stored``), `attach` and `runs_on` (``attaching``), `list_runs` and
                  `look_at` (``listing``), `recover` (``recovery``), `start` and `programs` (commands that outlive
                  who starts them), and ``records`` of where each one's scheduler is
``starting``      from a job to the ``program`` that every process of the run receives (``prepared``), and what
                  must hold before (``preflight``, ``importable``, ``first_gradient``); ``job_files``
``clusters``      a cluster on this machine for one run (``embedded``, its ``credentials``, its processes by
                  ``forking``), ``connecting`` to others, `look_at_cluster` (``cluster_view``), and free ``ports``
``chaos``         `targets`, `kill`, `pause`: hurt one run on purpose
``what_if``       `simulate`, and `compare`: one job under several policies on a modelled cluster
================  ==================================================================================

Nothing here decides anything about training: that is `psplatform.core`, which `psplatform.runtime` runs on Dask and
`psplatform.simulation` on a clock that jumps.
"""
