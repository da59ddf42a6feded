"""``rpc``, over TCP alone."""

from __future__ import annotations

from psplatform.bench.rivals.rpc import measure_over_tcp as measure

__all__ = ["measure"]
