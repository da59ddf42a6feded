"""What a member keeps of servers: the memory of those that were killed is free when it gives it up."""

from __future__ import annotations

from typing import Any

from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.dataplane.content import Content
from psplatform.runtime.dataplane.fetching import Fetcher
from psplatform.runtime.dataplane.transports import SharedMemory
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate


def test_the_memory_of_a_server_that_was_swept_is_given_up(
    layout: Layout, run_id: str, network: Any, jump: Any, peer: Peer
) -> None:
    """Mapped by a worker that lives on, it would stay in use after every failover."""
    contents = {name: Content.create(layout, 0, run_id, 1) for name in ("lost", "kept", "new")}
    asked = iter(["lost", "kept", "new"])

    async def attach_all() -> list[str]:
        connect = network(lambda *_arguments: (True, contents[next(asked)].name))
        peers = dict.fromkeys(contents, peer)
        places = connect, layout, "w", None, peers, allocate(layout)
        fetcher = Fetcher(*places, bool, bool, SharedMemory(), Background())
        await fetcher.attach("lost", 0)
        await fetcher.attach("kept", 0)
        contents["lost"].remove()
        await fetcher.attach("new", 0)
        assert not fetcher.sees("lost")
        return sorted(fetcher._contents)

    assert jump(attach_all()) == ["kept", "new"]
