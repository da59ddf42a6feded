"""Whether gradients are compressed: what a worker computes is rounded, or most of it kept back, before it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psplatform.core.limits import nearest
from psplatform.core.parameters import parameter, settle
from psplatform.errors import ConfigurationError

NONE: Final = "none"
KINDS: Final = (NONE, "bf16", "fp16", "topk")

USUAL_FRACTION: Final = 0.01
"""Of the elements that `topk` sends where nothing is said; its papers use from 0.1 % to some per cent."""


@dataclass(frozen=True, slots=True)
class Compression:
    """How gradients are compressed: `psplatform.tensors.compression.Compressor` does it.

    ``bf16`` and ``fp16`` round each element to half precision.  ``topk`` sends about a fraction of the elements, the
    largest, and adds the others to the worker's next gradient.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.
    """

    kind: str = parameter(NONE, help="how gradients are compressed", choices=KINDS)
    fraction: float | None = parameter(
        None,
        above=0,
        below=0.5,
        help=f"of the elements, those that topk sends; none: {USUAL_FRACTION}",
        remedy="half of them, with their places, would be as many bytes as all",
    )

    def __post_init__(self) -> None:
        settle(self, "compression: ", field="compression")
        if self.kind == "topk" and self.fraction is None:
            object.__setattr__(self, "fraction", USUAL_FRACTION)
        if self.kind != "topk" and self.fraction is not None:
            raise _refused(f"compression: {self.kind} has no fraction; leave it out, or take topk")

    def __str__(self) -> str:
        return self.kind if self.fraction is None else f"{self.kind}:{self.fraction!r}"

    @classmethod
    def from_plain(cls, plain: Compression | str | None) -> Compression:
        """Return what a word describes: ``bf16``, ``topk``, ``topk:0.01``."""
        if isinstance(plain, Compression):
            return plain
        if plain is None:
            return cls()
        if not isinstance(plain, str):
            raise _refused(f"compression must be a word such as bf16 or topk:0.01, not {plain!r}")
        return cls(**_parsed(plain))


def _parsed(words: str) -> dict[str, Any]:
    kind, colon, fraction = words.replace(" ", "").partition(":")
    if kind not in KINDS:
        raise _refused(f'compression: "{kind}" is not known; {nearest(kind, KINDS)}')
    if not colon:
        return {"kind": kind}
    try:
        return {"kind": kind, "fraction": float(fraction)}
    except ValueError:
        raise _refused(f'compression: "{fraction}" is no fraction; write it like topk:0.01') from None


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="compression")
