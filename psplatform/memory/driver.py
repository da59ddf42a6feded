"""Executes the effects of coordinators, copies of shards and sessions in one thread.

Timers, computations and evaluations take the virtual time they say; messages take `latency_s` each (0 by default).  A
test may change what the network does to each message with `deliver`, and may let processes join, leave, be killed or
stopped, or ask the run to stop, at any virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.core.protocol.effects import Finish, Seal
from psplatform.core.protocol.events import Begin, MemberLost, ProcessesChanged, StopRequested, Tick
from psplatform.core.protocol.messages import StateRequest
from psplatform.core.protocol.names import Role
from psplatform.core.shards.links import MakeAccount
from psplatform.core.shards.server import Server
from psplatform.core.supervision.leases import Grants, entitlement
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.core.transfers import Fabric
from psplatform.memory.arithmetic import Arithmetic, Metadata
from psplatform.memory.engine import make_engine, name_of
from psplatform.memory.processes.losses import Losses, Supervision
from psplatform.memory.processes.machines import Seating, Unplaced
from psplatform.memory.processes.retirement import Retirements
from psplatform.memory.roles.evaluation import Evaluators
from psplatform.memory.roles.leading import Sink, VirtualCoordinator, VirtualElection, VirtualStandby
from psplatform.memory.roles.shards import VirtualShards
from psplatform.memory.roles.standbys import Standbys
from psplatform.memory.roles.workers import Workers
from psplatform.memory.world import Deliver, Ideal, World


class MemoryRun:
    """One run in memory.

    Parameters
    ----------
    plan, policy
        What the coordinator acts on.
    compute_s
        Seconds that gradient `sequence` of `slot` takes.
    arithmetic
        What servers and workers compute; metadata only where none is given.
    latency_s
        Seconds every message takes.
    evaluation_s
        Seconds an evaluation takes once its version is fetched.
    deliver
        Given sender, addressee and message, the delays of its copies: ``[0.0]`` delivers once, ``[0.0, 0.1]`` twice.
        It must deliver at least one copy: drivers retry until they are heard.
    world
        Says all of these durations, and others, instead.
    sink
        Takes the event log's records instead of `records`.
    make_account
        Makes the accounts of what replicas lack, where the plan has any.
    supervision
        How losses are noticed.
    resume
        The coordinator's part of the checkpoint that the run goes on from.
    seating
        Gives roles processes; else each has one of its own.
    fabric
        Plans the transfers of gradients, which are sent as soon as computed otherwise.

    Attributes
    ----------
    records
        The event log so far.
    finish
        The last effect of the coordinator, or ``None`` while the run goes on.
    leads
        Every coordinator that the run has had, the present one last.
    standbys
        Those that may take over.
    copies
        Every copy of a shard that the run has had, by name.
    retirements
        Lets processes end in good order.
    on_event
        Called after each event, for tests that check what must hold at any time.
    """

    def __init__(  # noqa: PLR0913  each is something that a test or the simulator may want to be otherwise
        self,
        plan: Plan,
        policy: Policy,
        compute_s: Callable[[int, int], float] = lambda slot, sequence: 1.0,
        *,
        arithmetic: Arithmetic | None = None,
        latency_s: float = 0.0,
        evaluation_s: float = 0.0,
        deliver: Deliver | None = None,
        world: World | None = None,
        sink: Sink | None = None,
        seed: int = 0,
        make_account: MakeAccount | None = None,
        supervision: Supervision | None = None,
        resume: dict[str, Any] | None = None,
        seating: Seating | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.plan = plan
        self._open()
        self._sink = self.records if sink is None else sink
        self.arithmetic = arithmetic or Metadata()
        world = world or Ideal(compute_s, deliver, evaluation_s, latency_s)
        self.engine = engine = make_engine(world, self.arithmetic.snapshot)
        self.agenda, self.processes, self.network = engine.agenda, engine.processes, engine.network
        self.supervision = supervision or Supervision()
        self._seating = seating or Unplaced(self.supervision.spares)
        self.shards = VirtualShards(
            plan, engine, self.arithmetic, make_account, partial(self._seating.seat_copy, self), self.beat
        )
        self.copies = self.shards.nodes
        self.evaluators = Evaluators(self, policy.traits, self.shards.serving)
        self.workers = Workers(
            plan,
            policy.traits,
            self.engine,
            self.arithmetic,
            self.shards.backpressure,
            seed=seed,
            host_of=fabric.host_of if fabric is not None else None,
            join_again=self._join_again,
            on_late=self._on_late_message,
        )
        self.election = VirtualElection(self.engine)
        self.leads: list[VirtualCoordinator] = []
        self.standbys = Standbys(self, partial(self._seating.seat_standby, self), self.supervision.grants)
        self.retirements: Retirements = Retirements(self, self.network, world)
        self.network.on_moved = self.retirements.on_moved
        planner = fabric.planner if fabric is not None else None
        self._begin(Coordinator(plan, policy, resume=resume, planner=planner))

    def _open(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.finish: Finish | None = None
        self.seals: dict[int, Seal] = {}
        self.on_event: Callable[[MemoryRun], None] | None = None
        self.losses = Losses(self)

    def _begin(self, coordinator: Coordinator) -> None:
        self._seating.begin(self)
        first_s = Grants(self.supervision.shortest_lease_s, self.supervision.longest_lease_s).first_s
        self.shards.begin(coordinator, entitlement(0.0, first_s) if self.supervision.beat_s else None)
        lead = ReplicatedCoordinator(
            coordinator, grants=self.supervision.grants(), appoints=self.supervision.standbys_of(self.plan)
        )
        self._lead_with(lead).feed(Begin())

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that is in charge."""
        return self.leads[-1].lead.coordinator

    @property
    def standby(self) -> VirtualStandby | None:
        """The first standby that may take over, if there is one."""
        return self.standbys.first

    @property
    def worker_names(self) -> list[str]:
        """The gradient workers that have not left."""
        return self.workers.present

    @property
    def servers(self) -> list[Server]:
        """The present server of each shard; of one that is being replaced, the last."""
        return [self.shards.server_of(shard) for shard in range(self.plan.shards)]

    @property
    def addresses(self) -> list[str]:
        """The processes in which roles are placed, where they are."""
        return self._seating.addresses

    def process_of(self, role: Role) -> str:
        """Return the process in which a role lives, or has lived."""
        return self.processes.of(name_of(role))

    # --- what a test or a user does ---

    def join(self, name: str, at: float = 0.0) -> None:
        """Let a worker process of that name offer itself at time `at`."""
        self.agenda.enter_at(at, lambda: self.workers.begin(name, self.leads[-1].lead.term))

    def leave(self, name: str, at: float) -> None:
        """Let the process go away in good order at time `at`."""
        self.agenda.enter_at(at, self.workers.leave, name, "left")

    def kill(self, name: str, at: float) -> None:
        """Kill the process at time `at`: it says no more, and who watches it hears of it soon."""
        self.agenda.enter_at(at, self.losses.kill, name)

    def pause(self, name: str, at: float, seconds: float) -> None:
        """Stop the process at time `at`, as SIGSTOP does, for so long."""
        self.agenda.enter_at(at, self.losses.pause, name, seconds)

    def lose_server(self, shard: int, at: float) -> None:
        """Kill the server of `shard` at time `at`."""
        self.agenda.enter_at(at, lambda: self.losses.kill(self.coordinator.state.shards[shard].server))

    def reinforce(self, spares: int) -> None:
        """Let there be so many further processes in which copies can be made."""
        self._seating.reinforce(spares)
        self.on_processes_changed()

    def on_processes_changed(self) -> None:
        """Let the coordinator make what it could not make before."""
        self.standbys.on_processes_changed()
        self.tell_lead(ProcessesChanged())

    def stop(self, at: float) -> None:
        """Ask the run to stop at time `at`."""
        self.agenda.enter_at(at, lambda: self.tell_lead(StopRequested("asked to stop")))

    def run(self, *, events: int = 1_000_000) -> Finish:
        """Run to the end.

        Raises
        ------
        RuntimeError
            If nothing is left to do, or `events` were handled, before the run is over; the text names who waits.
        """
        for _ in range(events):
            if self.finish is not None or not self.agenda.do_next():
                break
            if self.on_event is not None:
                self.on_event(self)
        if self.finish is not None:
            return self.finish
        raise RuntimeError(f"the run does not end; at {self.agenda.now:g} s these wait: {self.workers.waiting}")

    def drain(self) -> list[str]:
        """Deliver what is still under way when the run is over; return who or what still waits for anything."""
        timers = [f"timer {name}" for name in sorted(self.leads[-1].node.timers.due)]
        while self.agenda.do_next():
            if self.on_event is not None:
                self.on_event(self)
        return timers + list(self.workers.waiting)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the log records of that kind."""
        return [record for record in self.records if record["kind"] == kind]

    # --- making roles ---

    def _join_again(self, name: str) -> None:
        if not self._seating.addresses:  # else another is started in its place, there or elsewhere
            self.workers.begin(name, self.leads[-1].lead.term)

    def _lead_with(self, lead: ReplicatedCoordinator) -> VirtualCoordinator:
        made = VirtualCoordinator(self, lead, self._sink, partial(self._seating.make_workers, self))
        self.leads.append(made)
        self.network.listen(made.name, made.feed)
        self.beat(made.name, made.feed)
        return made

    def beat(self, name: str, feed: Callable[[Any], None]) -> None:
        """Let a role look at its leases now and then, as long as the run goes on."""
        if self.supervision.beat_s and self.finish is None and not self.processes.is_dead(name):
            self.processes.do(name, feed, Tick())
            self.agenda.enter(self.supervision.beat_s, self.beat, name, feed)

    def tell_lead(self, event: Any) -> None:
        """Tell the coordinator in charge; where there is none, the next."""
        lead = self.leads[-1]
        if self.finish is not None:
            return
        if self.processes.is_dead(lead.name) and self.standby is not None:
            self.agenda.enter(max(self.supervision.notice_s, 1e-3), self.tell_lead, event)
        else:
            self.processes.do(lead.name, lead.feed, event)

    def end(self, finish: Finish) -> None:
        """End the run with that outcome: no coordinator hears anything any more."""
        self.finish = finish
        for lead in self.leads:
            self.network.close(lead.name)
        self.network.on_delivered = self._on_delivered_after_the_end

    # --- messages ---

    def _on_late_message(self, name: str, message: Any) -> None:
        """Say again that a worker has left: it took its leave of a coordinator that is gone as well, perhaps."""
        if len(self.leads) > 1:
            self.tell_lead(MemberLost(name, "left"))

    def _on_delivered_after_the_end(self, sender: Role) -> None:
        """Close a worker that still says something: it is not answered any more."""
        if sender.name in self.workers.nodes:
            self.workers.nodes[sender.name].close()

    # --- what coordinators and standbys ask for ---

    def retire(self, lead: VirtualCoordinator, copy: str) -> None:
        """Let a server or replica know that nobody needs it any more."""
        self.retirements.on_retire(lead.role, copy)

    def take_over(self, standby: VirtualStandby) -> None:
        """Make a standby the coordinator."""
        self.standbys.all.remove(standby)
        self.network.close(standby.name)
        self.standbys.on_taken_over()
        wanted = self.supervision.standbys_of(self.plan)
        lead, effects = standby.standby.rise(self.agenda.now, grants=self.supervision.grants(), appoints=wanted)
        if self._sink is self.records:
            # What the lost coordinator logged beyond what its standby has seen never happened for this one.
            self.records[standby.records_before :] = standby.standby.records
            self.leads[-1].sink = []
        before = self.leads[-1].workers
        made = self._lead_with(lead)
        self.processes.share(made.name, standby.name)
        self.network.announce(lead.term)
        made.workers.succeed(before)
        made.node.execute(effects)
        made.workers.watch()
        self.losses.notice_again()
        known = {member.name for member in lead.coordinator.state.roster.members()}
        for name in list(self.workers.nodes):
            if name not in known:
                # One that was not yet known asks again: requests are repeated until they are answered.
                to, message = Role.member(name), StateRequest(lead.term)
                self.agenda.enter(0.0, self.network.deliver, made.role, to, message)
