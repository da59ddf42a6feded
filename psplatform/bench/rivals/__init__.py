"""What else exchanges gradients on one machine, each in processes of its own and timed as ours is.

`RIVALS` names those of `bench.exchange`; ``ddp``, of `bench.scaling`, trains models.  ``python -m
psplatform.bench.rivals NAME WORKERS WHAT SECONDS [DEVICE]`` prints one JSON object: ``ms`` of one iteration and
``cpu_ms``, the time of all cores that it takes.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

RIVALS: Final[dict[str, str]] = {
    "gloo": "torch",
    "rpc": "torch",
    "rpc-tcp": "torch",
    "actor": "distributed",
    "ray": "ray",
}
"""By name, with the package that each needs."""

ON_DEVICES: Final = frozenset({"gloo", "ddp"})
"""Those whose gradients may lie on another device than the CPU."""


def is_installed(name: str) -> bool:
    """Whether a rival can be measured here."""
    return find_spec(RIVALS[name]) is not None
