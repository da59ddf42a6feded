"""What the fork server of embedded clusters loads: what its processes need, and what forking them takes."""

from __future__ import annotations

import atexit
import os

import numpy as np

import psplatform.preload  # noqa: F401

# A forked process would draw the same numbers as its siblings, where a spawned one starts with numbers of its own.
os.register_at_fork(after_in_child=lambda: np.random.seed())  # noqa: NPY002, PLW0108  code of users draws from it

# It ends with the program, and has nothing to put in order: a reader of what the program prints waits for it, too.
atexit.register(os._exit, 0)
