"""How far replicas lag, who serves and who stands by, and how the processes fare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from psplatform.dashboard.figures import divergence
from psplatform.dashboard.glossary import meaning
from psplatform.dashboard.pages.actions import cluster_of
from psplatform.dashboard.pages.frame import Shown, View, draw, metric, run_page
from psplatform.dashboard.pages.now import divergence_now
from psplatform.dashboard.read_models.divergence import ShardRow
from psplatform.dashboard.words import UNKNOWN, plain, size
from psplatform.telemetry.picture import Picture


def page() -> None:
    """Show the page."""
    run_page("Replication", _body)


def _body(view: View) -> None:
    run = view.run
    summary, rows = run.reading.read(lambda models: (models.view.to_summary(), models.divergence.rows))
    found = summary["divergence"]
    columns = st.columns(4)
    mode = (summary.get("replication") or {}).get("mode", UNKNOWN)
    metric(columns[0], "Replication", mode, meaning("protection"))
    metric(columns[1], "Divergence", divergence_now(summary), meaning("divergence"))
    metric(columns[2], "Sent to replicas", size(summary["to_replica_bytes"]))
    bare = ", ".join(str(shard) for shard in summary["unprotected"])
    metric(columns[3], "Unprotected shards", bare or "none", meaning("protection"))
    left, right = st.columns(2)
    bound, unit = found["bound"], found["unit"]
    with left:
        title = "Divergence of the model against its bound"
        draw(divergence.whole_model(rows, view.axis, bound, unit), "divergence", title, meaning("divergence"))
    with right:
        shards = summary.get("shards", 0)
        draw(divergence.by_shard(rows, view.axis, bound, unit, shards), "by shard", "Divergence by shard")
    roles, hosts = _roles(run), _hosts(run)
    st.markdown("**Shards**", help=f"{meaning('epoch')} {meaning('lag')}")
    st.dataframe(
        run.reading.read(lambda models: shard_table(models.view, models.divergence.rows.shards, roles, hosts)),
        hide_index=True,
        placeholder=UNKNOWN,
        key="shards",
    )
    _processes(run, roles)


def shard_table(
    view: Picture, shards: tuple[ShardRow, ...], roles: Mapping[str, str], hosts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return one row for each shard: who serves it and where, who stands by and where, and how far they are behind.

    Parameters
    ----------
    roles
        The address of the process of each role, as far as the coordinator has told it; else the log's is shown.
    hosts
        The host of each address, as far as the scheduler has told it; else it is read out of the address.
    """
    table = []
    for shard in range(view.shards):
        copies = view.protection.copies.get(shard, {})
        promoted = [one.copy for one in copies.values() if one.status == "promoted"]
        server = promoted[-1] if promoted else f"server-{shard}"
        known = copies.get(server)
        process = roles.get(server) or (known.process if known else "")
        replicas = [
            f"{one.copy}: {one.status}{_at(roles.get(one.copy) or one.process)}"
            for one in copies.values()
            if one.status not in ("lost", "moved", "promoted")
        ]
        own = shards[shard] if shard < len(shards) else None
        table.append(
            {
                "shard": shard,
                "server": server,
                "host": host_of(process, hosts) or UNKNOWN,
                "process": process or UNKNOWN,
                "replicas": ", ".join(replicas) or "none",
                "version": view.shown.get(shard, view.visible),
                "lag [updates]": own.lag if own else None,
                "divergence": round(own.divergence, 6) if own else None,
                "epoch": view.protection.epochs.get(shard, 1),
                "to replicas": f"{size(own.bytes_per_second)}/s"
                if own and own.bytes_per_second is not None
                else UNKNOWN,
            }
        )
    return table


def host_of(process: str, hosts: Mapping[str, str]) -> str:
    """Return the host of a process, which is named by its address, as in ``tcp://10.0.0.2:40123 pid 17``."""
    address = process.partition(" ")[0]
    return hosts.get(address) or address.partition("://")[2].rpartition(":")[0]


def _at(process: str) -> str:
    return f" at {process}" if process else ""


def _hosts(run: Shown) -> dict[str, str]:
    found = cluster_of(run.listed)
    view = found.news.view if found is not None else None
    return {one.address: one.host for one in view.processes} if view is not None else {}


def _roles(run: Shown) -> dict[str, str]:
    found = cluster_of(run.listed)
    if found is None or not found.knows(run.listed):
        return {}
    watched = found.watched(run.listed.run)
    if watched.trouble:
        st.caption(plain(watched.trouble))
    return watched.roles


def _processes(run: Shown, roles: dict[str, str]) -> None:
    found = cluster_of(run.listed)
    st.markdown("**Processes**", help="As the scheduler knows them; 100 % is one core.")
    if found is None or found.news.view is None:
        st.caption("No scheduler was given, or none answers: processes are known while a cluster is there.")
        return
    of_address: dict[str, list[str]] = {}
    for role, address in sorted(roles.items()):
        of_address.setdefault(address, []).append(role)
    rows = [
        {
            "process": one.address,
            "host": one.host,
            "pid": one.pid,
            "roles": ", ".join(of_address.get(one.address, [])),
            "status": one.status,
            "CPU": f"{one.cpu_percent:.0f} %",
            "memory": size(one.memory_bytes),
            "silent [s]": round(one.silent_s, 1),
        }
        for one in found.news.view.processes
    ]
    st.dataframe(rows, hide_index=True, placeholder=UNKNOWN, key="processes")
