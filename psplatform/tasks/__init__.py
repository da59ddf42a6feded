"""What a worker computes: tasks, their data and the process-local workspaces that run them.

``seam`` declares the interfaces and imports no torch, so that a job can be described without loading it; ``supervised``
and ``functional`` are the two workspaces behind it, and ``opening`` makes the one that fits.  Nothing is re-exported
here for the same reason.
"""
