"""How a run uses the network between its hosts: whether transfers of gradients are planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from psplatform.core.parameters import built, parameter, settle
from psplatform.errors import ConfigurationError

LONGEST_TICK_S: Final = 60.0
"""A gradient may wait for so long before anybody looks at it: more is a mistake."""

LONGEST_CHANGE_S: Final = 86400.0
"""A day: what changes more seldom is expected to stay."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Plans when each gradient is sent, and drops where it was computed what would come too late.

    With aggregators, which are the first workers' hosts but those of servers, some are summed on their way.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.
    """

    tick_s: float = parameter(
        0.1, above=0, maximum=LONGEST_TICK_S, help="seconds from one plan to the next, while gradients wait"
    )

    aggregators: int = parameter(
        0,
        minimum=0,
        help="hosts whose workers' processes sum gradients on their way and hand parameters on",
    )

    changes_s: float | None = parameter(
        None,
        above=0,
        maximum=LONGEST_CHANGE_S,
        help="seconds after which rates of interfaces are likely to have changed; by default they are expected to stay",
    )

    def __post_init__(self) -> None:
        settle(self, "network: fabric: ", field="network")

    def require_workers(self, workers: int) -> None:
        """Raise `ConfigurationError` if there are fewer workers than aggregators."""
        if self.aggregators > workers:
            raise _refused(f"{self.aggregators} aggregators need as many workers, there are {workers}; ask for less")


@dataclass(frozen=True, slots=True)
class Network:
    """How gradients go to the servers: as soon as they are computed, or as a fabric plans.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.
    """

    fabric: Fabric | None = parameter(
        None, help="plan when gradients are sent, and drop what would be late before it is sent"
    )

    def __post_init__(self) -> None:
        if not isinstance(self.fabric, Fabric | None):
            raise _refused(f"network: fabric must be such as ps.Fabric(), not {self.fabric!r}; leave it out for none")

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as numbers."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Network | Mapping[str, Any] | None) -> Network:
        """Return what a mapping of fields, or `to_plain`, describes: ``{"fabric": {"tick_s": 0.1}}``."""
        if isinstance(plain, Network):
            return plain
        if plain is None:
            return cls()
        if not isinstance(plain, Mapping):
            text = f"network must be such as ps.Network(fabric=ps.Fabric()), not {plain!r}; write fabric and its fields"
            raise _refused(text)
        fields = dict(plain)
        if isinstance(fields.get("fabric"), Mapping):
            fields["fabric"] = built(Fabric, fields["fabric"], "network: fabric has no", field="network")
        return built(cls, fields, "network has no", field="network")


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="network")
