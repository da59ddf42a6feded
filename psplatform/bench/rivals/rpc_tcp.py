"""``rpc``, over TCP alone."""

from __future__ import annotations

from functools import partial

from psplatform.bench.rivals import rpc

measure = partial(rpc.measure, options={"_transports": ["uv"], "_channels": ["mpt_uv", "basic"]})
