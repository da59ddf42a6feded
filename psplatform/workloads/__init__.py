"""Ready-made workloads: `registry` names them without loading torch; each module builds one."""
