"""``python -m psplatform.bench.rivals NAME WORKERS WHAT SECONDS [DEVICE]``: WHAT is a number, or a task."""

from __future__ import annotations

import json
import sys
from importlib import import_module

if __name__ == "__main__":
    name, workers, what, seconds, *device = sys.argv[1:]
    measure = import_module(f"psplatform.bench.rivals.{name.replace('-', '_')}").measure
    ms, cpu_ms = measure(int(workers), int(what) if what.isdecimal() else what, float(seconds), *device)
    sys.stdout.write(json.dumps({"ms": ms, "cpu_ms": cpu_ms}) + "\n")
