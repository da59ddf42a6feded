"""Hosts made of this machine's namespaces, whose cables can be pulled and which can be switched off.

Each host has a network of its own behind a bridge, a host name, process ids and shared memory of its own, so that
nothing but the network leads from one to another: what a process may see of another's death or memory ends at its host.
All of them see the same files, as hosts do that mount the same storage, and a host whose cable is pulled still does.

The bridge and the networks carry the id of the process that made them.  They are removed when it ends; what one left
behind that was killed is removed by the next.  The hosts' processes end with it in any case: the first process of each
host waits for the end of a pipe that only the program holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from psplatform.errors import ClusterError, ConfigurationError

_PREFIX: Final = "psplatform"
_NETWORK: Final = re.compile(rf"{_PREFIX}-(\d+)-[a-z0-9-]+")
_BRIDGE: Final = re.compile(r"psb(\d+)")
_CABLE: Final = re.compile(r"psv(\d+)n\d+")
_TOOLS: Final = ("ip", "tc", "unshare", "mount", "hostname", "sh")
_END_S: Final = 30.0
_POLL_S: Final = 0.05

_UNSHARE: Final = ("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

# The first process of a host: it gives the host its name and memory, starts the program as often as its first argument
# says, each again when that has ended, as a service manager does, and waits for the end of the pipe.  It takes every
# other process of the host with it.
_FIRST: Final = """
hostname "$0" && mount -t tmpfs -o size=4g tmpfs /dev/shm || exit 1
exec 3<&0
left=$1
shift
while [ "$left" -gt 0 ]; do
    left=$((left - 1))
    while :; do "$@" </dev/null 3<&-; sleep 1; done &
done
cat <&3 >/dev/null
"""


def why_not() -> str:
    """Return in one sentence why no host can be made here; "" where one can."""
    if sys.platform != "linux":
        return "hosts are made of Linux's namespaces; run this on Linux"
    if os.geteuid() != 0:
        return "making namespaces needs root's rights; run this as root"
    missing = [one for one in _TOOLS if shutil.which(one) is None]
    if missing:
        return f"there is no command {missing[0]} here; install iproute2 and util-linux"
    return _refusal()


def _refusal() -> str:
    """Return what the kernel says to a host that does nothing, "" if it agrees."""
    name, link = _network("try"), f"psb{os.getpid()}t"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", link, "type", "bridge")
        _run("ip", "netns", "exec", name, *_UNSHARE, "sh", "-c", _FIRST, "try", "1", "true")
    except ClusterError as error:
        return f"namespaces cannot be made here: {error}"
    finally:
        _try("ip", "link", "del", link)
        _try("ip", "netns", "del", name)
    return ""


def sweep() -> None:
    """Remove the networks of programs that have ended."""
    _remove_links("veth", _CABLE)  # by themselves: a network takes them with it only when the kernel finds the time
    for line in _try("ip", "netns", "list").splitlines():
        match = _NETWORK.match(line)
        if match and not Path(f"/proc/{match[1]}").exists():
            _end_all(match[0])
            _try("ip", "netns", "del", match[0])
    _remove_links("bridge", _BRIDGE)


def _remove_links(kind: str, names: re.Pattern[str]) -> None:
    for match in names.finditer(_try("ip", "-o", "link", "show", "type", kind)):
        if not Path(f"/proc/{match[1]}").exists():
            _try("ip", "link", "del", match[0])


class Host:
    """One host: a network namespace that lasts, and processes that come and go.

    Attributes
    ----------
    name, address
        Its host name, and the one address it has beside localhost.
    """

    def __init__(self, name: str, address: str, number: int, bridge: str, mbit: float | None) -> None:
        self.name, self.address = name, address
        self._network, self._cable = _network(name), f"psv{os.getpid()}n{number}"
        self._process: subprocess.Popen[bytes] | None = None
        _run("ip", "netns", "add", self._network)
        inside = ("ip", "-n", self._network)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._network)
        _run("ip", "link", "set", self._cable, "master", bridge, "up")
        _run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _run(*inside, "link", "set", link, "up")
        if mbit is not None:
            self.limit(mbit)

    def limit(self, mbit: float) -> None:
        """Let its interface carry so many megabits per second in either direction from now on."""
        limit = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "100ms")
        _run("tc", "qdisc", "replace", "dev", self._cable, *limit)
        _run("tc", "-n", self._network, "qdisc", "replace", "dev", "eth0", *limit)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that have come in through its interface, and that have gone out."""
        counted = Path("/sys/class/net", self._cable, "statistics")  # of the other end of the cable
        return int((counted / "tx_bytes").read_text()), int((counted / "rx_bytes").read_text())

    def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, processes: int = 1
    ) -> None:
        """Start a program on the host in so many processes, each again whenever it ends.

        What they say goes to a file of the host's name.
        """
        own = folder / self.name
        own.mkdir(exist_ok=True)
        first = ("ip", "netns", "exec", self._network, *_UNSHARE, "sh", "-c", _FIRST, self.name, str(processes))
        with (folder / f"{self.name}.txt").open("ab") as said:
            self._process = subprocess.Popen(  # noqa: S603  a command of ours
                [*first, *command],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=own,
                env={**os.environ, **environment, "TMPDIR": str(own)},
            )

    @property
    def is_up(self) -> bool:
        """Whether its processes run."""
        return self._process is not None and self._process.poll() is None

    def cut(self) -> None:
        """Pull its cable: nothing goes in or out any more, and nobody is told."""
        _run("ip", "link", "set", self._cable, "down")

    def mend(self) -> None:
        """Put its cable back in."""
        _run("ip", "link", "set", self._cable, "up")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the host."""
        for pid in _try("ip", "netns", "pids", self._network).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def kill(self) -> int:
        """Kill all processes of the host by their ids, with SIGKILL; return how many there were."""
        count = _end_all(self._network)
        if self._process is not None:
            self._process.kill()
            self._process.wait(_END_S)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
        return count

    def remove(self) -> None:
        """End everything on it, and take its network away."""
        with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
            self.kill()
        _try("ip", "link", "del", self._cable)
        _try("ip", "netns", "del", self._network)


class Hosts:
    """Some hosts on one bridge, which this program is on as well; a context that leaves nothing of them.

    Parameters
    ----------
    names
        One host for each.
    mbit
        Rate of each host's network interface in either direction, in megabits per second, for all or by host; ``None``
        for no limit.

    Raises
    ------
    ConfigurationError
        If hosts cannot be made here, with the reason.
    """

    def __init__(self, names: Sequence[str], mbit: float | Mapping[str, float] | None = None) -> None:
        if reason := why_not():
            raise ConfigurationError(reason)
        sweep()
        pid = os.getpid()
        net = f"10.{200 + pid % 50}.{pid // 50 % 250}"
        self._bridge = f"psb{pid}"
        self._hosts: dict[str, Host] = {}
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{net}.254/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for number, name in enumerate(names, 1):
                rate = mbit.get(name) if isinstance(mbit, Mapping) else mbit
                self._hosts[name] = Host(name, f"{net}.{number}", number, self._bridge, rate)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def at(self, address: str) -> str:
        """Return the name of the host of a Dask address; "" where it is none of these."""
        where = address.rpartition("://")[2].rpartition(":")[0]
        return next((one.name for one in self._hosts.values() if one.address == where), "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove all hosts and the bridge."""
        for host in self._hosts.values():
            host.remove()
        _try("ip", "link", "del", self._bridge)


def _network(name: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{name}"


def _end_all(network: str) -> int:
    """Kill every process in a network namespace, and wait until none is left; return how many there were."""
    ended: set[str] = set()
    give_up_at = time.monotonic() + _END_S
    while found := _try("ip", "netns", "pids", network).split():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        ended.update(found)
        if time.monotonic() > give_up_at:
            raise ClusterError(f"processes {', '.join(found)} of {network} do not end; look at them")
        time.sleep(_POLL_S)
    return len(ended)


def _run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed: {' '.join(done.stderr.split())}")
    return done.stdout


def _try(*command: str) -> str:
    with contextlib.suppress(ClusterError):
        return _run(*command)
    return ""
