"""One shard: averages what workers pushed, stages the next version beside the present one, and publishes it.

A commit runs `gather`, perhaps `scale`, `stage`, `publish`.  Between `stage` and `publish` the front copy
still is the version that workers pull, while the back copy is ready to be measured and replicated.  Optimiser state has
one copy, which belongs to the newest version, staged or published: `state` always describes that one.

Contributions are merged in the same pass as the step, tile by tile, so that what is merged stays in the cache.  They
are merged into a vector of their own only where that is measured, clipped or replicated (`gathering`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from psplatform.errors import InvariantViolation, ProtocolError
from psplatform.jobs.optimizers import SGD, Additive, Optimizer
from psplatform.tensors.fused import fits
from psplatform.tensors.gathering import Gathering, Tiles
from psplatform.tensors.layout import Layout
from psplatform.tensors.norms import norm, squared_norms
from psplatform.tensors.optimizers import make_rule
from psplatform.tensors.shares import Share, shares, together
from psplatform.tensors.step_norm import Measure, StepNorm, copy_and_measure
from psplatform.tensors.vectors import checked_vectors, part_of, sizes, split, tile


class Shard:
    """The arithmetic of one shard's copy.

    Parameters
    ----------
    layout, index
        Which pieces of which regions this shard owns.
    spec
        The optimiser.
    initial
        The pieces' values at `version`.
    storage
        Two sets of vectors for the pieces, perhaps in shared memory; the first becomes the front copy.
    version
        The version that `initial` is.
    """

    def __init__(
        self,
        layout: Layout,
        index: int,
        spec: Optimizer,
        initial: Mapping[str, Tensor],
        storage: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
        version: int = 0,
    ) -> None:
        self.layout = layout
        self.index = index
        self.version = version
        self.commits = 0
        self.staged = False
        self._sizes = sizes(layout, index)
        self._rule = make_rule(spec)
        self.adds_up = all(isinstance(one, SGD | Additive) for one in spec.members())
        """Whether several updates at once are a step along their sum; else one along their mean, as much longer."""
        self._parameters = [region.key for region in layout.regions if region.kind == "parameter"]
        self._buffers = [key for key in self._sizes if key not in self._parameters]
        self._spans = {key: layout.spans(index, key) for key in self._parameters}
        self._all_spans = [(key, span) for key, spans in self._spans.items() for span in spans]
        if any(span.group >= self._rule.groups for _, span in self._all_spans):
            raise InvariantViolation("the layout has parameter groups that the optimizer does not have")
        self._by_torch = any(self._rule.fused(span.group) is None for _, span in self._all_spans)
        self._front, self._back = (checked_vectors(vectors, self._sizes, "Storage") for vectors in storage)
        for key, vector in checked_vectors(initial, self._sizes, "The initial state").items():
            self._front[key].copy_(vector)
        self._slots = {key: self._rule.slots(self._front[key]) for key in self._parameters}
        self._named_slots = {f"{name}.{key}": one for key, slots in self._slots.items() for name, one in slots.items()}
        self._state_sizes = self._sizes | {name: self._sizes[name.partition(".")[2]] for name in self._named_slots}
        self._step_norm = StepNorm(self._reach, self.displacement_norm)
        self._before_step: Callable[[], None] = _nothing
        self._before_overwriting: Callable[[Mapping[str, Tensor]], None] = _nothing
        self._gathering = Gathering(
            self._front, self._parameters, sums=isinstance(spec, Additive), adds_up=self.adds_up
        )

    @property
    def front(self) -> Mapping[str, Tensor]:
        """The pieces at the published version."""
        return self._front

    @property
    def back(self) -> Mapping[str, Tensor]:
        """The pieces at the next version once it is staged."""
        return self._back

    @property
    def gathered(self) -> Mapping[str, Tensor]:
        """The averaged contributions until they are published; gathering these alone repeats the commit bit for bit."""
        return self._gathering.merged

    def touch(self, *, merged: bool = True) -> None:
        """Write to all memory that a commit needs: the first one then takes no longer than the others.

        Must be called while the shard is as it was made: the back copy and the optimiser's state are all zero after it.

        Parameters
        ----------
        merged
            Whether contributions will be merged into a vector of their own.
        """
        if merged:
            self._gathering.touch()
        for vector in (*self._back.values(), *self._named_slots.values()):
            vector.zero_()

    def gather(
        self,
        contributions: Sequence[Mapping[str, Tensor]],
        *,
        copied: bool = False,
        into: Mapping[str, Tensor] | None = None,
        gradients: int = 0,
        added: bool = False,
    ) -> None:
        """Merge contributions in the order given; they are only read, and must stay as they are until `publish`.

        Some may be sums already: `gradients` says of how many all of them are made, if not one each.  With `added`,
        each gradient is an update by itself: gradients get the sum, if the optimiser `adds_up`.

        If `copied`, they need to stay only until this returns.  Once the step is staged, what was merged lies in the
        vectors `into`, if they are given; `gathered` are these then.

        Gradients and floating-point buffers get the mean, other buffers (counters, masks) the element-wise maximum.
        Additive updates are changes, not estimates of one gradient: they get the sum.

        Raises
        ------
        ProtocolError
            If a contribution does not have this shard's pieces.
        """
        if self.staged or not contributions:
            raise InvariantViolation("gather needs contributions, and the step before it published")
        checked = [checked_vectors(contribution, self._sizes, "A contribution") for contribution in contributions]
        room = {} if into is None else checked_vectors(into, self._sizes, "What is merged into")
        self._gathering.take(checked, room, gradients=gradients, added=added, copied=copied)

    def rate_of(self, rate: float, updates: int) -> float:
        """Return the rate at which a commit of so many updates is staged.

        Optimisers that divide by the size of gradients would make no more of a sum than of one: with them, and with
        custom ones, the step along the mean is as many times longer.
        """
        return rate if self.adds_up else rate * updates

    def squared_norms(self) -> list[float]:
        """Return the sum of squares of each block of the gathered gradient, for `norms.norm` over all shards."""
        return [
            square
            for key in self._parameters
            for square in squared_norms(self.gathered[key], self.layout.block_size(key))
        ]

    def scale(self, factor: float) -> None:
        """Multiply the gathered gradient, for instance to clip it; buffers stay."""
        self._gathering.scale(factor)

    def stage(self, rate: float, *, measure: bool = False) -> float:
        """Write the state after this commit into the back copy; the front copy and the contributions stay untouched.

        Parameters
        ----------
        measure
            Whether to return what `displacement_norm` would, or up to `step_norm.PRECISION` more and never less, mostly
            without a pass of its own.
        """
        if self.staged or not self._gathering:
            raise InvariantViolation("stage needs gathered contributions, and the step before it published")
        self._announce_step()
        self.commits += 1
        self.staged = True
        for key in self._buffers:
            self._back[key].copy_(self._gathering.of(key))
        cut = shares([span.stop - span.start for _, span in self._all_spans], by_torch=self._by_torch)
        norm_parts = self._step_norm.begin(len(cut)) if measure else [None] * len(cut)
        together(partial(self._step, rate), norm_parts, cut)
        self._gathering.filled()
        if measure:
            return self._step_norm.end()
        self._step_norm.forget()
        return 0.0

    def _step(self, rate: float, measure: Measure | None, share: Share) -> None:
        merged = Tiles()
        for number, piece in share:
            key, span = self._all_spans[number]
            parts, room = self._gathering.sources(key)
            here = slice(span.start + piece.start, span.start + piece.stop)
            if self._step_fused(key, here, span.group, parts, room, rate, measure):
                continue
            merges = room is not None or len(parts) > 1
            merge = self._gathering.merging(key, len(parts))
            each = tile() if merges else piece.stop - piece.start  # a rule cuts into tiles itself
            slots = self._slots[key]
            vectors = [self._front[key], self._back[key], *slots.values(), *([] if room is None else [room]), *parts]
            # All tiles at once: several threads hold each other up with every call.  Views, because an optimiser of the
            # user's own may give a tensor other memory or another shape.
            for front, back, *others in zip(*[split(vector[here], each) for vector in vectors], strict=True):
                state = dict(zip(slots, others, strict=False))
                del others[: len(slots)]
                self._rule.step(
                    front,
                    merged.of(others, merge, into_first=room is not None) if merges else others[0],
                    state,
                    back,
                    rate=rate,
                    step=self.commits,
                    group=span.group,
                    norm=measure,
                )

    def _step_fused(
        self,
        key: str,
        here: slice,
        group: int,
        parts: Sequence[Tensor],
        room: Tensor | None,
        rate: float,
        measure: Measure | None,
    ) -> bool:
        fused = self._rule.fused(group)
        if fused is None:
            return False
        before, out = part_of(self._front[key], here), part_of(self._back[key], here)
        contributions = [part_of(one, here) for one in parts]
        momentum = part_of(self._slots[key]["momentum"], here) if fused.hyper.momentum else None
        kept = None if room is None else part_of(room, here)
        if not fits([one for one in (before, out, *contributions, momentum, kept) if one is not None]):
            return False
        by_difference = measure is not None and not measure.trusting
        squares, factor = fused.step(
            *(before, contributions, momentum, out, rate, self.commits), room=kept, by_difference=by_difference
        )
        if measure is not None:
            measure.add_squares(squares, factor, before)
        return True

    def displacement_norm(self) -> float:
        """Return the Euclidean distance between the staged and the published parameters, in float64."""
        if not self.staged:
            raise InvariantViolation("nothing is staged")
        return norm(
            square
            for key in self._parameters
            for square in squared_norms(self._back[key], self.layout.block_size(key), minus=self._front[key])
        )

    def _reach(self) -> float:
        squares = (squared_norms(self._front[key], self.layout.block_size(key)) for key in self._parameters)
        return norm(itertools.chain.from_iterable(squares))

    def publish(self, version: int) -> None:
        """Make the staged state the front copy, under a version above the present one."""
        if not self.staged or version <= self.version:
            raise InvariantViolation(f"version {version} cannot follow {self.version}, or nothing is staged")
        self._front, self._back = self._back, self._front
        self._gathering.forget()
        self.version = version
        self.staged = False

    def state(self) -> dict[str, Tensor]:
        """Return the newest state by name: a region's key, or `<slot>.<key>` for optimiser state.

        These are the vectors themselves: copy them before the next `stage`.
        """
        return {**self.newest, **self._named_slots}

    @property
    def newest(self) -> Mapping[str, Tensor]:
        """The newest parameters and buffers, staged or published: what `state` returns without the optimiser's."""
        return self._back if self.staged else self._front

    @property
    def reach(self) -> float | None:
        """A norm that the newest parameters do not exceed; ``None`` while none is known."""
        return self._step_norm.reach

    def before_next_step(self, call: Callable[[], None]) -> None:
        """Have `call` called once, before anything of what `state` returns now is written to."""
        self._before_step = call

    def before_overwriting(self, call: Callable[[Mapping[str, Tensor]], None]) -> None:
        """Have `call` called before each step or `restore`, with the parameters and buffers that it writes to.

        Those that are `newest` now are written to by the step after the next.
        """
        self._before_overwriting = call

    def _announce_step(self) -> None:
        call, self._before_step = self._before_step, _nothing
        call()
        self._before_overwriting(self._back)

    @property
    def slot_names(self) -> list[str]:
        """The names of the optimiser's state vectors."""
        return sorted({name for slots in self._slots.values() for name in slots})

    def front_sizes(self) -> dict[str, tuple[str, int]]:
        """Return dtype and number of elements of each vector of `front`."""
        return dict(self._sizes)

    def state_sizes(self) -> dict[str, tuple[str, int]]:
        """Return dtype and number of elements of each vector of `state`."""
        return dict(self._state_sizes)

    def restore(
        self,
        state: Mapping[str, Tensor],
        *,
        version: int,
        commits: int,
        reach: float | None = None,
        whole: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Take over what `state` returned elsewhere after so many commits; a staged step is given up.

        Parameters
        ----------
        reach
            A norm that the parameters do not exceed; ``None`` where none is known: then it is measured.
        whole
            Tells, after the state was read, whether it is still what it was before.  If not, the front copy stays as
            it was, `restore` returns false, and must be called with another state before anything else is.

        Raises
        ------
        ProtocolError
            If the state is not that of such a shard.
        """
        slots, wanted = self._named_slots, self._state_sizes
        if state.keys() != wanted.keys():
            raise ProtocolError(f"A state of {sorted(state)} cannot restore one of {sorted(wanted)}.")
        checked = checked_vectors(state, wanted, "The state")
        self._announce_step()
        names = list(checked)

        def load(share: Share, squares: list[float]) -> None:
            for number, piece in share:
                name, vector = names[number], part_of(checked[names[number]], piece)
                if name in self._parameters and reach is None:
                    squares.append(copy_and_measure(vector, part_of(self._back[name], piece)))
                else:
                    part_of(slots[name] if name in slots else self._back[name], piece).copy_(vector)

        cut = shares([vector.numel() for vector in checked.values()])
        found: list[list[float]] = [[] for _ in cut]
        together(load, cut, found)
        if not whole():
            return False
        self._front, self._back = self._back, self._front
        self._gathering.forget()
        if reach is None:
            self._step_norm.forget(math.sqrt(sum(itertools.chain.from_iterable(found))))
        else:
            self._step_norm.forget(reach, measured=False)
        self.version, self.commits, self.staged = version, commits, False
        return True


def _nothing(*_: object) -> None:
    """Do nothing."""
