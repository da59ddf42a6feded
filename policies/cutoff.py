"""Cutoff SGD: every round predicts how many gradients to wait for, takes the fastest, and kills the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    Answer,
    Committed,
    Fate,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    not_yet,
    yes,
)
from psplatform.errors import ConfigurationError
from psplatform.policies.bsp import admit_current, start_on_newer

if TYPE_CHECKING:
    # Predictors need numpy, which takes longer to load than listing the policies takes.
    from psplatform.policies.run_times.fitted_model import FittedModel
    from psplatform.policies.run_times.oracle import TrueTimes
    from psplatform.policies.run_times.planner import Planner, Round


@dataclass
class Cutoff(Policy):
    """Predict the best number c of gradients for each round, take the c fastest, kill the others.

    ::

        c = argmax_j j / E[x_(j)]        x_(1) <= ... <= x_(n): the run times of the coming round, sorted
        collect the c fastest fresh gradients;  w <- w - eta mean of these;  all others abort and begin anew
        learn: the run times of the c, and that the others' are above x_(c)

    The mean is over the c accepted, and the learning rate does not depend on c.

    The predictors (`psplatform.policies.run_times`):

    - ``forgetting``: a running mean and variance per worker; the default, because it needs no fitting and no file;
    - ``generative``: the paper's deep state-space model, fitted beforehand (`model`) or else during the run, which
      then begins with 40 full rounds;
    - ``normal``: order statistics of one normal; the paper's baseline;
    - ``static``: always `c`;
    - ``oracle``: knows the times to come, of computing and not of transfers; for simulators only.

    A worker that joined in mid-round and was cut off is not known to be slow and teaches nothing.  Where fewer than c
    live workers can contribute, a round takes what there is, so that it never hangs.

    Source: Teng & Wood, section 3, algorithm 1.

    Differences from the paper: predicting and learning happen when the first gradient of the next round arrives, while
    the workers compute, and use nothing of that round; `explore` makes some rounds full, which shows at once who has
    recovered (the paper never does: 0).

    Attributes
    ----------
    true_times
        Given the number of a round and ``int64[n]`` slots, the run times in it; for the oracle, and no parameter.
    """

    predictor: str = parameter(
        "forgetting",
        choices=("forgetting", "generative", "normal", "static", "oracle"),
        help="what predicts the run times",
    )
    c: int | None = parameter(None, minimum=1, help="gradients a round waits for; for predictor=static only")
    model: str | None = parameter(
        None, help="file of a fitted model; none: generative learns during the run", path=True
    )
    samples: int = parameter(64, minimum=1, maximum=100_000, help="rounds that are drawn to predict one")
    score: str = parameter(
        "ratio of means",
        choices=("ratio of means", "mean of ratios"),
        help="what is best: c/mean(x) or mean(c/x)",
    )
    full_rounds: int | None = parameter(
        None, minimum=0, help="rounds of all workers to begin with; none stands for what the predictor needs"
    )
    explore: float = parameter(0.0, minimum=0.0, maximum=1.0, help="chance of a full round, to see who recovered")
    seed: int = parameter(0, minimum=0, help="of the random numbers that predictions are made of")

    source: ClassVar[str] = 'M. Teng, F. Wood, "Bayesian distributed stochastic gradient descent", NeurIPS 2018'

    def __post_init__(self) -> None:
        """Check the parameters; nothing is learned yet."""
        super().__post_init__()
        self.true_times: TrueTimes | None = None
        self._fitted: FittedModel | None = None
        self._planner: Planner | None = None
        self._columns = 0
        self._round: Round | None = None
        self._heard: set[int] = set()
        self._late: set[int] = set()
        self._taken: set[int] = set()
        self._sequences: dict[int, int] = {}

    # --- before anything is started ---

    def load(self, read: Callable[[str], bytes]) -> None:
        """Read the fitted model."""
        if self.model is None or self.predictor != "generative":
            return
        from psplatform.policies.run_times.fitted_model import FittedModel  # noqa: PLC0415  needs numpy

        try:
            content = read(self.model)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"model {self.model} cannot be read ({error}); name a file that a fitted model was written to",
                field="model",
            ) from None
        self._fitted = FittedModel.from_bytes(content, name=f"model {self.model}")

    def foresee(self, compute_s: Callable[[int, int], float]) -> None:
        """Let the oracle know the run times to come."""
        # Late workers abort, so that all are released for their gradient of a round before that is planned.
        self.true_times = lambda _, slots: [compute_s(slot, self._sequences[slot]) for slot in slots.tolist()]

    def check(self, workers: int) -> None:
        """Refuse what the predictor lacks, or what does not fit the number of workers."""
        self._check_cutoff(workers)
        self._check_model(workers)
        if self.predictor == "oracle" and self.true_times is None:
            raise ConfigurationError(
                "predictor oracle must be told the run times to come, which only a simulator knows: use psplatform "
                "simulate, or choose predictor=forgetting",
                field="predictor",
            )

    def _check_cutoff(self, workers: int) -> None:
        if self.predictor != "static":
            if self.c is not None:
                raise ConfigurationError(f"c goes with predictor=static, not with {self.predictor}", field="c")
        elif self.c is None:
            raise ConfigurationError("predictor static needs the number of gradients to wait for; give c", field="c")
        elif self.c > workers:
            raise ConfigurationError(
                f"c must be at most the number of workers: c = {self.c}, workers = {workers}", field="c"
            )

    def _check_model(self, workers: int) -> None:
        if self.model is None:
            return
        if self.predictor != "generative":
            raise ConfigurationError(f"a model goes with predictor=generative, not {self.predictor}", field="model")
        if self._fitted is None:
            raise ConfigurationError(f"model {self.model} was not read; call load first", field="model")
        fitted = self._fitted.shape.workers
        if fitted != workers:
            raise ConfigurationError(
                f"model {self.model} was fitted for {fitted} workers and the job has {workers}; fit one for {workers} "
                f"workers, or run {fitted}",
                field="model",
            )

    # --- the four questions ---

    @property
    def traits(self) -> Traits:
        """Exactly one version per round; late workers abort."""
        return Traits(exact=True, interrupt=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool current gradients, drop late ones."""
        verdict = admit_current(gradient, view)
        if verdict.fate is Fate.POOL:
            self._heard.add(gradient.slot)
        return verdict

    def pool_ready(self, view: View) -> Answer:
        """Wait for c, or for all who are left."""
        if self._round is None:
            self._sequences = {one.slot: one.sequence for one in view.members()}
            self._round = self._planner_for(view.workers).plan(list(self._sequences))
        decided = self._round
        if decided.cutoff is None:
            waiting = not_yet(f"{view.busy} are still computing: {decided.reason}")
            return yes(f"all live workers are in: {decided.reason}") if view.busy == 0 else waiting
        if view.pooled >= min(decided.cutoff, view.live):
            return yes(f"the {view.pooled} fastest are in: c = {decided.cutoff}, {decided.reason}")
        if view.busy == 0:
            return yes(f"only {view.pooled} of c = {decided.cutoff}: no other live worker can contribute")
        return not_yet(f"{view.pooled} of c = {decided.cutoff}")

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the cutoff c of this round, where it does not wait for all."""
        cutoff = self._round.cutoff if self._round is not None else None
        return {"c": cutoff} if cutoff is not None else {}

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on when the round is over."""
        if worker.counter < 0:
            self._note_joined(worker.slot, view)
        return start_on_newer(worker, view)

    def _note_joined(self, slot: int, view: View) -> None:
        # The first process in a slot is whom a restored state speaks of; only who comes after it is another.
        if slot in self._taken:
            self._planner_for(view.workers).welcome(slot)
        self._taken.add(slot)
        if view.now > view.round_started_at:
            self._late.add(slot)

    # --- learning ---

    def on_commit(self, commit: Committed, view: View) -> None:
        """Learn the run times of the round: seconds of computing of the accepted, and who was not done by then.

        A worker that was slow to pull is taken for one that was slow to compute; the others waited for it all the same.
        """
        known = self._heard | self._late
        busy = [one.slot for one in view.members() if one.slot not in known]
        # Where a slot was taken over in mid-round and both were accepted, the newcomer's time is the last.
        self._planner_for(view.workers).observe({one.slot: one.compute_s for one in commit.gradients}, busy)
        self._round = None
        self._heard.clear()
        self._late.clear()

    def _planner_for(self, workers: int) -> Planner:
        if self._planner is None:
            from psplatform.policies.run_times.planner import Planner, make_predictor  # noqa: PLC0415  brings numpy

            self._columns = workers
            predictor = make_predictor(
                self.predictor,
                workers,
                seed=self.seed,
                samples=self.samples,
                score=self.score,
                cutoff=self.c,
                model=self._fitted,
                true_times=self.true_times,
            )
            self._planner = Planner(predictor, full_rounds=self.full_rounds, explore=self.explore, seed=self.seed)
        return self._planner

    def state(self) -> dict[str, Any]:
        """Return what was learned, by which predictor and for how many workers."""
        planned = self._planner.state() if self._planner is not None else None
        return {"predictor": self.predictor, "workers": self._columns, "planned": planned}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with what was learned; another predictor than that begins anew."""
        self._planner = None
        if state["planned"] is not None and state["predictor"] == self.predictor:
            self._planner_for(state["workers"]).restore(state["planned"])
