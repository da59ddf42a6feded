"""What a training would do on a cluster that is only described: one job, or the same job under several policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psplatform.errors import ConfigurationError, PsplatformError
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import Prepared, prepare, simulate

if TYPE_CHECKING:
    from psplatform.jobs.job import Job
    from psplatform.simulation.driver import Simulated

__all__ = ["CURVE_POINTS", "Comparison", "compare", "curve_of", "simulate"]

CURVE_POINTS: Final = 500
"""Points of a curve: about as many as a picture on a page has columns."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of each of several simulations.

    Attributes
    ----------
    found
        The simulations that ended, by name, in the order of the jobs.
    failures
        Why the others could not be simulated.
    """

    found: Mapping[str, Simulated]
    failures: Mapping[str, PsplatformError]


def compare(
    jobs: Mapping[str, Job],
    conditions: Conditions,
    *,
    lenient: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Simulate each of the named jobs under the same conditions.

    Parameters
    ----------
    lenient
        Whether a job that does not fit the conditions is left out with its reason; else it raises.  One that fails
        while it is simulated is left out where there are others.
    report
        Called with a few words before each simulation.

    Raises
    ------
    ConfigurationError
        If a job does not fit (unless `lenient`), or the data is not what a policy expects.
    PsplatformError
        If no job could be simulated: why the first could not.
    """
    prepared, failures = _prepare_all(jobs, conditions, lenient=lenient)
    found: dict[str, Simulated] = {}
    for name, one in prepared.items():
        report(f"simulating {name}")
        try:
            found[name] = one.run()
        except ConfigurationError:
            raise
        except PsplatformError as error:
            if len(jobs) == 1:
                raise
            failures[name] = error
    if not found:
        raise next(iter(failures.values()))
    return Comparison(found, failures)


def curve_of(simulated: Simulated) -> list[list[float]]:
    """Return how the loss fell: ``[seconds, updates, loss]`` of each evaluation, or of the commits.

    The latter where there is one evaluation at most, that of the end: no line goes through it.  There are at most 500
    points, evenly thinned, the first and the last included; losses that are no number are left out.  What it returns
    of a simulation of times only means nothing.
    """
    view = simulated.view
    points = [(one.at, one.version, one.loss) for one in view.evaluations.items]
    if len(points) < 2:
        points = [(one.at, one.version, one.value) for one in view.losses.items]
    known = [[at, version, loss] for at, version, loss in points if loss is not None and math.isfinite(loss)]
    last, most = len(known) - 1, CURVE_POINTS - 1
    return known if last <= most else [known[round(number * last / most)] for number in range(CURVE_POINTS)]


def _prepare_all(
    jobs: Mapping[str, Job], conditions: Conditions, *, lenient: bool
) -> tuple[dict[str, Prepared], dict[str, PsplatformError]]:
    prepared: dict[str, Prepared] = {}
    failures: dict[str, PsplatformError] = {}
    for name, job in jobs.items():
        try:
            prepared[name] = prepare(job, conditions)
        except ConfigurationError as error:
            if not lenient:
                raise
            failures[name] = error
    if not prepared:
        raise next(iter(failures.values()))
    return prepared, failures
