"""How rates are learned where nobody reports them."""

from __future__ import annotations

from psplatform.network.estimates import Estimates
from psplatform.network.sightings import UNLIMITED
from psplatform.network.steady import SteadyEstimates


def learned_rates(changes_s: float | None, fastest: float = UNLIMITED) -> Estimates | SteadyEstimates:
    """Return what learns the rates of interfaces from transfers.

    Parameters
    ----------
    changes_s
        Seconds after which a rate is likely to have changed; ``None`` where rates are expected to stay.
    fastest
        Bytes per second of an interface before anything is known.
    """
    return SteadyEstimates(fastest) if changes_s is None else Estimates(fastest, changes_s)
