"""`python -m psplatform.bench.history FOLDER`: checks a recorded history, and prints what was found as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from psplatform.bench.history import check
from psplatform.bench.history.guarantees import GUARANTEES


def main() -> int:
    """Print the report; return 1 where a guarantee did not hold, 2 where nothing was recorded."""
    parser = argparse.ArgumentParser(prog="python -m psplatform.bench.history", description=__doc__)
    parser.add_argument("folder", help="what PSPLATFORM_HISTORY named")
    parser.add_argument("--bound", type=float, help="what a replica may lack; else what the run was asked for")
    parser.add_argument("--unit", choices=("updates", "norm"), default="updates", help="of the bound")
    parser.add_argument("--policy", default="", help="whose promises are checked; else the run's own")
    given = parser.parse_args()
    report = check(given.folder, bound=given.bound, unit=given.unit, policy=given.policy)
    names = {one.partition(":")[0] for one in report.violations}
    told = {name: GUARANTEES[name] for name in sorted(names)}
    sys.stdout.write(json.dumps({"violations": report.violations, "broken": told, "counts": report.counts}) + "\n")
    return 1 if report.violations else 0 if report.counts["lives"] else 2


if __name__ == "__main__":
    sys.exit(main())
