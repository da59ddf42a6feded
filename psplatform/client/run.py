"""A run as a program holds it: wait for it, look at it, stop it, take its model."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from distributed import Client

from psplatform.client.clusters.connecting import address_of
from psplatform.client.runs import records
from psplatform.client.runs.coordinator_link import CoordinatorLink
from psplatform.client.runs.stored import StoredRun
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError, StoreError
from psplatform.replication.stores.models import load_model
from psplatform.runtime.comms.calls import ActorGone, Peer, PeerLost, PeerSilent

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

_POLL_S: Final = 0.25
_TRIES: Final = 3
"""Failed calls in a row after which the coordinator counts as gone, unless its process is still there."""

_TAKEOVER_S: Final = 60.0
"""How long a coordinator that has a standby is looked for: longer than any lease."""

_STOP_S: Final = 60.0
"""How long `Run.close` waits for a run to save its model and last checkpoint before it ends the run's cluster."""

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
        Called by `close`: closes the client, and ends an embedded cluster.  ``None`` where others close the client.
    embedded
        Whether the cluster ends with this program.
    gone
        Whether no coordinator is left, as far as is known.
    unasked
        Which scheduler was not asked for one, in words.
    """

    def __init__(  # noqa: PLR0913  each says another thing of where the run is
        self,
        run: str,
        store: str,
        *,
        client: Client | None = None,
        coordinator: Peer | None = None,
        process: tuple[str, int] | None = None,
        module: Callable[[], nn.Module] | None = None,
        keep: Any = None,
        on_close: Callable[[], None] | None = None,
        embedded: bool = False,
        gone: bool = False,
        unasked: str = "",
    ) -> None:
        self.run = run
        self.store = store
        self._link = CoordinatorLink(run, store, client, coordinator, process, gone=gone)
        self._stored = StoredRun(run, store)
        self._module = module
        self._keep = keep
        self._on_close = on_close
        self._embedded = embedded
        self._let_go = ""
        self._last: dict[str, Any] | None = None
        self._unasked = unasked
        self._died = ""

    @property
    def client(self) -> Client | None:
        """The client of the run's cluster; ``None`` where only its store is known."""
        return self._link.client

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
        link = self._link
        if not link.found():
            return self._from_store()
        tries, give_up_at = 0, time.monotonic() + _TAKEOVER_S
        lost: PeerLost | None = None
        while tries < _TRIES or (link.stands_by and time.monotonic() < give_up_at):
            status, lost = self._answer(wait_s)
            if status is not None:
                return self._told(status)
            if link.seek():
                link.repeat_stop()
                continue
            if self._stored.is_over():  # nobody will answer any more, and nobody has to
                link.gone = True
                return self._from_store()
            left = link.left_the_cluster()
            if (not link.stands_by and (left or isinstance(lost, PeerSilent))) or link.cluster_is_empty():
                break
            if link.stands_by:
                say(f"the coordinator does not answer; waiting up to {_TAKEOVER_S:g} s for its standby to take over")
            tries += 1
            time.sleep(_POLL_S)
        if lost is not None and not isinstance(lost, ActorGone) and not link.left_the_cluster():
            return self._from_store(
                f"the coordinator does not answer, but its process is there: it is busy or stopped ({lost})"
            )
        link.gone, self._died = True, link.death()
        return self._from_store()

    def _answer(self, wait_s: float) -> tuple[dict[str, Any] | None, PeerLost | None]:
        """Return what the coordinator says, if it leads the run, or else why it does not answer."""
        try:
            status: dict[str, Any] = self._link.ask("status", wait_s, wait_s=wait_s)
        except PeerLost as error:
            return None, error
        return (status if status["phase"] not in ("standing by", "replaced") else None), None

    def _told(self, status: dict[str, Any]) -> dict[str, Any]:
        """Return what the coordinator says, and tell it again to stop where it did not hear that."""
        self._link.process = status.pop("process", None)
        if status["phase"] == "over":
            self._last = status
            client: Any = self._link.client
            records.forget(self.run, address_of(client))
        else:
            self._link.make_stop_heard()
        return dict(status)

    def _from_store(self, trouble: str = "") -> dict[str, Any]:
        why = f"{self._died}the coordinator of run {self.run} is gone"
        if self._unasked:
            why = f"{self._died}no coordinator of run {self.run} is known ({self._unasked})"
        return self._stored.status(gone=self._link.gone, why=why, trouble=trouble)

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
        if not self._link.found():
            raise ClusterError(f"no coordinator of run {self.run} is known here; attach to it with a client", peer=None)
        try:
            roles: dict[str, str] = self._link.ask("roles")
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
        if not self._link.found():
            raise ClusterError(f"no coordinator of run {self.run} is known here; attach to it with a client", peer=None)
        standing: dict[str, Any] = self._link.ask("standing")
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
        client: Any = self._link.client
        pids: dict[str, int] = client.run(os.getpid, workers=[roles[role]])
        return pids[roles[role]]

    def stop(self, reason: str = "asked to stop") -> None:
        """End the run in good order; `wait` tells when that is done.  A run that is over stays as it is.

        Raises
        ------
        ClusterError
            If `close` has closed the way to a run that was not over.
        """
        if self._let_go:
            raise ClusterError(self._let_go)
        self._link.order_stop(reason)
        if self._last is not None or not self._link.found():
            return
        for _ in range(_TRIES):
            if self._link.repeat_stop():
                return
            self.status()  # which finds the coordinator that has taken over, if one has
            if self._link.gone or self._last is not None:
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
        if flaw := self._stored.flaw():
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
        return _loaded(self._module(), self.parameters(best=best)[0], self.store)

    def close(self, *, stop_within_s: float = _STOP_S) -> None:
        """Let go of the run: one on an embedded cluster, which ends, is stopped in good order first; another goes on.

        Leaving a ``with`` block does the same, also by an exception.  A run on an embedded cluster may take
        `stop_within_s` to save its model and last checkpoint.  Afterwards its store is read.
        """
        on_close, self._on_close = self._on_close, None
        if on_close is None:
            self._keep = None
            return
        went_on, left = self._last is None, "its connection is closed; use ps.attach to reach the run again"
        try:
            if self._embedded:
                left = f"its cluster has ended with it; `psplatform recover {self.store}` goes on"
                _stop_in_time(self, stop_within_s)
        finally:
            self._let_go = f"run {self.run} was closed, and {left}" if went_on else ""
            self._link.client, self._link.gone = None, self._link.gone or self._embedded
            self._keep = None
            on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _loaded(module: nn.Module, arrays: Mapping[str, NDArray[Any]], store: str) -> nn.Module:
    """Return the module with the tensors that a store has, by name; refuse one of which the store lacks some."""
    import torch  # noqa: PLC0415  watching a run needs no torch

    from psplatform.tensors.flat import tensors_of  # noqa: PLC0415  brings torch

    lacking = sorted(tensors_of(module).keys() - arrays.keys())
    if lacking:
        text = f"the model in {store} lacks {lacking[0]!r}; build the module that was trained"
        raise StoreError(f"{text}, or load run.parameters() into your own", store=store)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    module.load_state_dict(state, strict=False)  # frozen parameters and tied names are not among what is saved
    return module


def _stop_in_time(run: Run, limit_s: float) -> None:
    """Stop a run in good order if it takes no longer than that; how it ends is for its status to tell."""
    if limit_s > 0:
        # What Dask raises of a cluster that is gone is an OSError or a RuntimeError.
        with contextlib.suppress(PsplatformError, OSError, RuntimeError):
            run.stop("its program let go of it")
            run.wait(limit_s)
