"""``python -m psplatform.bench.rivals NAME WORKERS PARAMETERS SECONDS``."""

from __future__ import annotations

import json
import sys
from importlib import import_module

if __name__ == "__main__":
    name, *sizes = sys.argv[1:]
    workers, parameters, seconds = int(sizes[0]), int(sizes[1]), float(sizes[2])
    ms, cpu_ms = import_module(f"psplatform.bench.rivals.{name}").measure(workers, parameters, seconds)
    sys.stdout.write(json.dumps({"ms": ms, "cpu_ms": cpu_ms}) + "\n")
