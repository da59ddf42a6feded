"""Everything that distinguishes one trial from another, as data that can be written down and run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from psplatform.errors import ConfigurationError
from psplatform.simulation.faults.schedule import Fault

SAFETY: Final = "safety"
LIVENESS: Final = "liveness"


@dataclass(frozen=True, slots=True)
class Noise:
    """What the network does to every message: seconds on the way, some longer by chance, some twice."""

    latency_s: float = 0.01
    jitter_s: float = 0.0
    twice: float = 0.0


@dataclass(frozen=True, slots=True)
class Copying:
    """How servers are protected.

    Attributes
    ----------
    bound, unit
        Of the whole model: 0 ``updates`` for a chain, else updates, or a distance (``norm``).
    source
        Whether replicas take gradients from the ``workers`` instead of from their ``server``.
    """

    replicas: int = 1
    bound: float = 0.0
    unit: str = "updates"
    pause: bool = False
    source: str = "server"


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

    Attributes
    ----------
    seed
        Of everything that chance decides within it.
    mode
        ``safety`` or ``liveness``.
    workload, options
        What is trained.
    policy, parameters
        Under which policy.
    copying
        How servers are protected, or ``None``.
    standby, shared, spares
        Whether there are standbys, as many as replicas, whether the coordinator lives in the process of server 0, and
        how many copies can be made anew.
    hosts, processes
        How many hosts there are, with how many Dask workers on all of them; 0 where each role has a process of its own.
    leases
        Whether silence is noticed; else only the end of a process is.
    rates
        How much faster or slower, by copy, a process's own clock runs.
    cut_every
        Updates between checkpoints; 0 for none.
    faults
        The schedule.
    """

    seed: int
    mode: str = SAFETY
    workload: str = "digits"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "bsp"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 2
    shards: int = 1
    updates: int = 12
    batch_size: int = 4
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"name": "sgd", "lr": 0.1})
    clip: float | None = None
    epochs: bool = False
    copying: Copying | None = None
    standby: bool = False
    shared: bool = False
    spares: int = 0
    hosts: int = 0
    processes: int = 0
    leases: bool = False
    cut_every: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)
    noise: Noise = field(default_factory=Noise)
    late: tuple[float, ...] = ()
    faults: tuple[Fault, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        faults = [one.to_plain() for one in self.faults]
        return {**asdict(replace(self, faults=())), "late": list(self.late), "faults": faults}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Trial:
        """Return the trial that `to_plain` described; what is left out is as usual.

        Raises
        ------
        ConfigurationError
            If a field is unknown or makes no sense.
        """
        values = dict(plain)
        known = {one.name for one in fields(cls)}
        for name in values:
            if name not in known:
                raise ConfigurationError(f"a trial has no field {name!r}", field=f"faults.{name}")
        if values.get("copying") is not None:
            values["copying"] = _made(Copying, values["copying"])
        if "noise" in values:
            values["noise"] = _made(Noise, values["noise"])
        values["faults"] = tuple(Fault.from_plain(one) for one in values.get("faults", ()))
        values["late"] = tuple(values.get("late", ()))
        return cls(**{"seed": 0, **values})


def _made(kind: type[Any], plain: Mapping[str, Any]) -> Any:
    try:
        return kind(**plain)
    except TypeError as error:
        raise ConfigurationError(f"a trial's {kind.__name__.lower()} makes no sense: {error}", field="faults") from None
