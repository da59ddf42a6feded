"""What the address of a process tells."""

from __future__ import annotations


def host_of(process: str) -> str:
    """Return the host in an address of Dask's, or in what the log calls a process: ``tcp://10.0.0.1:4000 pid 7``.

    The processes of a machine have the same one under any scheme: ``tcp``, ``tls`` or ``inproc``.
    """
    scheme, _, place = process.partition(" ")[0].rpartition("://")
    if scheme == "inproc":  # inproc://10.0.0.1/7/1
        return place.partition("/")[0]
    return (place.rpartition(":")[0] or place).strip("[]")
