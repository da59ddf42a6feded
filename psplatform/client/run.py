"""A run as a program holds it: wait for it, look at it, stop it, take its model."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from distributed import Client

from psplatform.client.clusters.connecting import address_of
from psplatform.client.clusters.finding import actors_of, ended_lead
from psplatform.client.runs import records
from psplatform.client.runs.listing import is_starting
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError, StoreError, from_plain
from psplatform.replication.stores.store import describe_run, load_model
from psplatform.runtime.cluster import cluster_of
from psplatform.runtime.comms.calls import ActorGone, Peer, PeerLost, PeerSilent, call_the_living
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.pools.deaths import death_of
from psplatform.telemetry.follow import LiveRun

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

_POLL_S: Final = 0.25
_DEADLINE_S: Final = 10.0
_TRIES: Final = 3
"""Failed calls in a row after which the coordinator counts as gone, unless its process is still there."""

_TAKEOVER_S: Final = 60.0
"""How long a coordinator that has a standby is looked for: longer than any lease."""

Progress = Callable[[dict[str, Any]], None]


class Run:
    """One training, under way or over.

    Parameters
    ----------
    run, store
        Its id, and the place where it persists.
    client, coordinator
        The way to it while it goes on.  Without a coordinator the client's cluster is searched for it; without both
        only the store is read.
    process
        The nanny and the process id of that coordinator, which tell how it ended if it does.
    module
        Builds the user's module for `model`; ``None`` where this program does not have it.
    keep
        The future of the coordinator's actor, which Dask keeps as long as it is held.
    on_close
        Called by `close`; ends an embedded cluster.
    gone
        Whether no coordinator is left, as far as is known.
    unasked
        Which scheduler was not asked for one, in words.
    """

    def __init__(
        self,
        run: str,
        store: str,
        *,
        client: Client | None = None,
        coordinator: Peer | None = None,
        process: tuple[str, int] | None = None,
        module: Callable[[], nn.Module] | None = None,
        keep: Any = None,
        on_close: Callable[[], None] = lambda: None,
        gone: bool = False,
        unasked: str = "",
    ) -> None:
        self.run = run
        self.store = store
        self._client = client
        self._coordinator = coordinator
        self._module = module
        self._keep = keep
        self._on_close = on_close
        self._live = LiveRun(store)
        self._last: dict[str, Any] | None = None
        self._gone = gone
        self._unasked = unasked
        self._stands_by = False
        self._stop_reason: str | None = None
        self._stop_heard = True
        self._process = process
        self._died = ""

    @property
    def client(self) -> Client | None:
        """The client of the run's cluster; ``None`` where only its store is known."""
        return self._client

    def status(self, wait_s: float = 0.0) -> dict[str, Any]:
        """Return how the run stands, as the coordinator knows it or, where that is gone, as the store does.

        The ``phase`` is starting, running, ending or over, and unknown for an open run whose cluster is not known, or
        whose coordinator is too busy to answer although its process is there; ``step`` says in words what it does while
        it starts or ends; ``summary`` is that of `metrics`; ``failure`` is the error that ended the run, and
        ``trouble`` what the store or the coordinator lacks.
        """
        return self._look(wait_s)

    def _look(self, wait_s: float, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
        """Return what `status` does; `say` is told what is waited for where that may take long."""
        if self._last is not None:
            return self._last
        if not self._found():
            return self._from_store()
        tries, give_up_at = 0, time.monotonic() + _TAKEOVER_S
        lost: PeerLost | None = None
        while tries < _TRIES or (self._stands_by and time.monotonic() < give_up_at):
            status, lost = self._answer(wait_s)
            if status is not None:
                return self._told(status)
            if self._seek():
                self._repeat_stop()
                continue
            if self._is_written():  # nobody will answer any more, and nobody has to
                self._gone = True
                return self._from_store()
            left = self._left_the_cluster()
            if not self._stands_by and (left or isinstance(lost, PeerSilent)):
                break
            if self._stands_by:
                say(f"the coordinator does not answer; waiting up to {_TAKEOVER_S:g} s for its standby to take over")
            tries += 1
            time.sleep(_POLL_S)
        if lost is not None and not isinstance(lost, ActorGone) and not self._left_the_cluster():
            return self._from_store(
                f"the coordinator does not answer, but its process is there: it is busy or stopped ({lost})"
            )
        self._gone, self._died = True, self._ask_of_death()
        return self._from_store()

    def _answer(self, wait_s: float) -> tuple[dict[str, Any] | None, PeerLost | None]:
        """Return what the coordinator says, if it leads the run, or else why it does not answer."""
        try:
            status: dict[str, Any] = self._ask("status", wait_s, deadline_s=_DEADLINE_S + wait_s)
        except PeerLost as error:
            return None, error
        return (status if status["phase"] not in ("standing by", "replaced") else None), None

    def _told(self, status: dict[str, Any]) -> dict[str, Any]:
        """Return what the coordinator says, and tell it again to stop where it did not hear that."""
        self._process = status.pop("process", None)
        if status["phase"] == "over":
            self._last = status
            client: Any = self._client
            records.forget(self.run, address_of(client))
        elif not self._stop_heard:
            self._repeat_stop()
        return dict(status)

    def wait(
        self,
        timeout_s: float | None = None,
        progress: Progress = lambda summary: None,
        step: Callable[[str], None] = lambda text: None,
    ) -> dict[str, Any]:
        """Wait until the run is over; return its summary.

        Parameters
        ----------
        timeout_s
            Longest time to wait; ``None`` for as long as it takes.
        progress
            Called with the summary so far, a few times per second.
        step
            Called instead, with what the run does, while it starts and while it ends.

        Raises
        ------
        TimeoutError
            If the run still goes on after `timeout_s`.
        PsplatformError
            Why the run failed, if it did.
        """
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        while True:
            status = self._look(_POLL_S, step)
            if status["phase"] == "over":
                break
            if status["step"] or (status["phase"] == "unknown" and status["trouble"]):
                step(status["step"] or status["trouble"])
            else:
                progress(status["summary"])
            if status["phase"] == "unknown":
                time.sleep(_POLL_S)  # nothing else has waited
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.run} is not over after {timeout_s:g} s")
        if status["failure"] is not None:
            raise status["failure"]
        summary: dict[str, Any] = status["summary"]
        return summary

    def metrics(self) -> dict[str, Any]:
        """Return the summary so far: the object that ``psplatform train --json`` ends with."""
        summary: dict[str, Any] = self.status()["summary"]
        return summary

    def roles(self) -> dict[str, str]:
        """Return the address of the Dask worker of each of the run's servers, replicas, workers and so on, by name.

        Raises
        ------
        ClusterError
            If the run's coordinator cannot be asked.
        """
        if not self._found():
            raise ClusterError(f"no coordinator of run {self.run} is known here; attach to it with a client", peer=None)
        try:
            roles: dict[str, str] = self._ask("roles", deadline_s=_DEADLINE_S)
        except AttributeError as error:  # of the coordinator, which has not made anything yet
            raise ClusterError(f"run {self.run} is still starting; look at its roles later", peer=None) from error
        return roles

    def standing(self) -> dict[str, Any]:
        """Return how the shards are served, as `CoordinatorHost.standing` does: for programs that look from beside.

        Raises
        ------
        ClusterError
            If the run's coordinator cannot be asked; after a takeover `status` finds the new one.
        """
        if not self._found():
            raise ClusterError(f"no coordinator of run {self.run} is known here; attach to it with a client", peer=None)
        standing: dict[str, Any] = self._ask("standing", deadline_s=_DEADLINE_S)
        return standing

    def process_of(self, role: str) -> int:
        """Return the process id of the role of that name, on its own host.

        Raises
        ------
        ConfigurationError
            If the run has no such role; those it has are named.
        """
        roles = self.roles()
        if role not in roles:
            raise ConfigurationError(f"the run has no {role!r}; it has {', '.join(sorted(roles))}", field="role")
        client: Any = self._client
        pids: dict[str, int] = client.run(os.getpid, workers=[roles[role]])
        return pids[roles[role]]

    def stop(self, reason: str = "asked to stop") -> None:
        """End the run in good order; `wait` tells when that is done.  A run that is over stays as it is."""
        self._stop_reason, self._stop_heard = reason, False
        if self._last is not None or not self._found():
            return
        for _ in range(_TRIES):
            with contextlib.suppress(PeerLost):
                self._ask("stop", reason, deadline_s=_DEADLINE_S)
                self._stop_heard = True
                return
            self.status()  # which finds the coordinator that has taken over, if one has
            if self._gone or self._last is not None:
                return

    def parameters(self, *, best: bool = False) -> tuple[dict[str, NDArray[Any]], int]:
        """Return the saved model's tensors by name, and its version.

        Parameters
        ----------
        best
            Whether those of the best version instead of the last: while the run goes on, too.  The job must have
            ``keep_best=True``.

        Raises
        ------
        StoreError
            If the run has not saved such a model (yet).
        """
        if flaw := self._of_another():
            raise StoreError(flaw, store=self.store)
        return load_model(self.store, best=best)

    def model(self, *, best: bool = False) -> nn.Module:
        """Return the user's module with the saved parameters and buffers, of the last version or the `best` one.

        Raises
        ------
        ConfigurationError
            If this program does not have the module: a run attached to, or a task without one.
        StoreError
            If the run has not saved a model (yet), or that lacks a tensor of the module.
        """
        if self._module is None:
            raise ConfigurationError(
                "this program does not have the run's module; load run.parameters() into your own", field="model"
            )
        import torch  # noqa: PLC0415  watching a run needs no torch

        from psplatform.tensors.flat import tensors_of  # noqa: PLC0415  brings torch

        module = self._module()
        arrays, _ = self.parameters(best=best)
        lacking = sorted(tensors_of(module).keys() - arrays.keys())
        if lacking:
            text = f"the model in {self.store} lacks {lacking[0]!r}; build the module that was trained"
            raise StoreError(f"{text}, or load run.parameters() into your own", store=self.store)
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        module.load_state_dict(state, strict=False)  # frozen parameters and tied names are not among what is saved
        return module

    def close(self) -> None:
        """Let go of the run; an embedded cluster ends, a run on another goes on."""
        self._keep = None
        self._on_close()
        self._on_close = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, *arguments: Any, deadline_s: float) -> Any:
        client: Any = self._client
        return client.sync(call_the_living, client.rpc, self._coordinator, method, *arguments, deadline_s=deadline_s)

    def _found(self) -> bool:
        """Whether there is a coordinator to be asked; one that is not known yet is looked for."""
        if self._client is None or self._gone:
            return False
        if self._coordinator is None:
            if self._seek():
                self._repeat_stop()
            else:
                self._coordinator = self._ended_here()
                self._gone = self._coordinator is None and not self._is_starting()
        return self._coordinator is not None

    def _ended_here(self) -> Peer | None:
        client: Any = self._client
        try:
            return ended_lead(self.run, client) if client.scheduler is not None else None
        except (OSError, TimeoutError):
            return None

    def _is_starting(self) -> bool:
        client: Any = self._client
        if client.scheduler is None:
            return False
        try:
            return bool(actors_of(self.run, client)) or is_starting(self.store, describe_run(self.store))
        except (OSError, TimeoutError):
            return True  # nothing is known; the next look tells

    def _repeat_stop(self) -> None:
        # A coordinator that is replaced and does not know it yet takes the order, and nothing comes of it.
        if self._stop_reason is not None:
            with contextlib.suppress(PeerLost):
                self._ask("stop", self._stop_reason, deadline_s=_DEADLINE_S)
                self._stop_heard = True

    def _seek(self) -> bool:
        """Look where the run's coordinator is now; return whether it is elsewhere than before."""
        client: Any = self._client
        if client.scheduler is None:  # Dask has given it up: without it no standby can take over
            self._stands_by = False
            return False
        try:
            details = client.get_metadata([dataset_name(self.run)], default=None) or {}
        except (OSError, TimeoutError):
            return False
        self._stands_by = bool(details.get("standby"))
        found = Peer(details["address"], details["key"]) if "key" in details else self._coordinator
        moved, self._coordinator = found != self._coordinator, found
        return moved

    def _is_written(self) -> bool:
        """Whether the store says how the run has ended: that is written last, when everything else is."""
        try:
            description = describe_run(self.store)
        except StoreError:
            return False  # it may be out of this program's reach
        return description.get("run") == self.run and "outcome" in description

    def _left_the_cluster(self) -> bool:
        # Calls to a process that died last until their deadline; its scheduler knows at once.
        client: Any = self._client
        if client.scheduler is None:
            return True
        try:
            return self._coordinator is None or self._coordinator.address not in client.sync(cluster_of, client)[1]
        except (OSError, TimeoutError):
            return False

    def _ask_of_death(self) -> str:
        """Return how the coordinator's process ended, with what separates that from what follows; "" if unknown."""
        if self._client is None or self._coordinator is None or self._process is None:
            return ""
        client: Any = self._client
        try:
            death = client.sync(death_of, client, self._coordinator.address, *self._process)
        except (OSError, TimeoutError, RuntimeError):  # the last where the client is closed
            return ""
        return f"{death}: " if death is not None else ""

    def _of_another(self) -> str:
        """Return what is to be said where the store is another run's by now, or ``""``."""
        with contextlib.suppress(StoreError):
            other = describe_run(self.store).get("run")
            if other not in (None, self.run):
                return (
                    f"{self.store} now holds run {other}; of run {self.run}, whose store was removed, nothing is kept"
                )
        return ""

    def _from_store(self, trouble: str = "") -> dict[str, Any]:
        if flaw := self._of_another():
            failure: PsplatformError | None = StoreError(f"{flaw}: start it again in another store", store=self.store)
            summary = self._live.view.to_summary()
            phase = "over" if self._gone else "unknown"
            return {"phase": phase, "step": "", "summary": summary, "failure": failure, "trouble": trouble or flaw}
        self._live.refresh()
        outcome, summary = self._live.view.outcome, self._live.view.to_summary()
        failure = None
        if outcome is not None and outcome.outcome == "failed":
            described = describe_run(self.store).get("failure")
            failure = from_plain(described) if described else ClusterError(outcome.detail)
        elif outcome is None and self._gone:
            updates = self._live.view.updates
            what = f"the coordinator of run {self.run} is gone"
            if self._unasked:
                what = f"no coordinator of run {self.run} is known ({self._unasked})"
            failure = ClusterError(
                f"{self._died}{what}; its log ends at version {updates}, and "
                f"`psplatform recover {self.store}` goes on from its newest checkpoint, if it has one"
            )
        phase = "over" if outcome is not None or self._gone else "unknown"
        return {"phase": phase, "step": "", "summary": summary, "failure": failure, "trouble": trouble}
