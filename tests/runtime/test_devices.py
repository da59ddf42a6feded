"""Updates that are computed on a device and read in the host's memory: on the CPU the same copies are made."""

from __future__ import annotations

import asyncio
import gc
import mmap
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from psplatform.core.protocol.messages import Pulled
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls import devices
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.devices import DeviceParameters, DeviceUpdates, Updates, updates_on
from psplatform.tasks.cancellation import Cancellation, Cancelled
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import BatchRef, Task, Update
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.vectors import allocate, fill, named_views

CPU = torch.device("cpu")
GPU = torch.device("cuda")
BATCH = BatchRef(np.arange(6, dtype=np.int64), seed=3)
SPECS = [TensorSpec(name, (4,), "float32", "parameter") for name in ("a", "b", "c")]
SPECS += [TensorSpec("wide", (2,), "float64", "parameter"), TensorSpec("seen", (2,), "int64", "buffer")]


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_BUCKET_BYTES", 32)


class Watched(DeviceUpdates):
    """Updates of three parameters of four elements, two of which make a bucket, and what was copied when."""

    def __init__(self) -> None:
        layout = Layout.of(SPECS, shards=1)
        self.exposed = allocate(layout)
        super().__init__(layout, CPU, self.exposed)
        self.sent: list[tuple[str, int, int]] = []

    def _send(self, bucket: Any) -> None:
        self.sent.append((bucket.key.partition(".")[2], bucket.start, bucket.stop))
        super()._send(bucket)


def test_a_bucket_leaves_once_all_of_it_is_there_and_the_rest_at_the_end() -> None:
    updates = Watched()
    updates.begin()
    updates.vectors["parameter.float32"].copy_(torch.arange(12.0))
    updates.ready("c")
    updates.ready("b")
    assert updates.sent == [("float32", 8, 12)]
    updates.ready("a")
    assert updates.sent == [("float32", 8, 12), ("float32", 0, 8)]
    updates.vectors["buffer.int64"].fill_(9)
    assert updates.complete() == pytest.approx(sum(one * one for one in range(12)))
    assert updates.sent[2:] == [("float64", 0, 2), ("int64", 0, 2)]
    for key, vector in updates.vectors.items():
        assert torch.equal(updates.exposed[key], vector)


def test_what_changes_after_it_left_leaves_once_more() -> None:
    updates = Watched()
    updates.begin()
    updates.ready("c")
    updates.vectors["parameter.float32"][8:] = 5
    updates.ready("c")
    updates.ready("c")
    updates.complete()
    assert updates.sent.count(("float32", 8, 12)) == 2
    assert updates.exposed["parameter.float32"].tolist() == [0.0] * 8 + [5.0] * 4


def test_what_was_interrupted_is_forgotten() -> None:
    updates = Watched()
    updates.begin()
    updates.ready("a")
    updates.begin()
    updates.ready("b")
    assert updates.sent == [], "of the update at hand, half of the bucket is there"


class Odd(nn.Module):
    """A model whose gradients come in every way: twice, sparse, late, never, beside a buffer that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4, sparse=True)
        self.twice = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen = self.seen + 1
        out: Tensor = self.norm(self.twice(torch.relu(self.twice(self.embed(inputs))))).sum(1)
        return out


def odd() -> SupervisedTask:
    samples = [(torch.tensor(number), torch.tensor(float(number))) for number in range(6)]
    return SupervisedTask(Odd, nn.functional.mse_loss, samples)


def clip(most: float, parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-most, most)


class Clipped(nn.Linear):
    """A model that clips its gradients by a hook."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.hook: Any = None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.hook is None:
            self.hook = self.bias.register_post_accumulate_grad_hook(partial(clip, 0.25))
        return super().forward(inputs)


@pytest.mark.parametrize("parts", [1, 2])
def test_hooks_of_the_users_find_gradients_and_may_change_them(parts: int) -> None:
    data = torch.full((8, 2), 9.0), torch.zeros(8, 1)
    workspace = open_workspace(SupervisedTask(Clipped(), nn.functional.mse_loss, data), 0, CPU)
    layout = Layout.of(list(workspace.specs), shards=1)
    values, updates = allocate(layout), allocate(layout)
    workspace.bind(layout, values, updates)
    fill(layout, values, {"weight": torch.ones(1, 2), "bias": torch.ones(1)})
    workspace.compute(BATCH, Cancellation(), parts)
    found = named_views(layout, updates)
    assert found["bias"].tolist() == [0.25]
    assert float(found["weight"].max()) > 1


class Counts(Task):
    """An update that is no gradient."""

    samples = 6

    def initial(self) -> dict[str, Tensor]:
        return {"a": torch.zeros(20), "b": torch.zeros(3)}

    def compute(self, parameters: Any, batch: Any, rng: np.random.Generator) -> Update:
        return Update({"a": torch.full((20,), float(batch.sum()))}, loss=1.0)


@pytest.mark.parametrize("task", [odd, Counts])
@pytest.mark.parametrize("parts", [1, 3])
def test_servers_read_the_same_as_without_a_device(task: Callable[[], Any], parts: int) -> None:
    found = []
    for make in (lambda layout, to: DeviceUpdates(layout, CPU, to), lambda layout, to: updates_on(layout, CPU, to)):
        workspace = open_workspace(task(), 0, CPU)
        layout = Layout.of(list(workspace.specs), shards=2)
        values, exposed = allocate(layout), allocate(layout)
        updates: Updates = make(layout, exposed)
        workspace.bind(layout, values, updates.vectors, updates.ready)
        fill(layout, values, workspace.initial())
        cancelled = Cancellation()
        cancelled.cancel()
        for cancellation in (Cancellation(), cancelled, Cancellation()):
            updates.begin()
            try:
                workspace.compute(BATCH, cancellation, parts)
            except Cancelled:
                continue
            squared = updates.complete()
        updates.close()
        found.append((squared, exposed))
    (squared, device), (expected, host) = found
    assert squared == pytest.approx(expected)
    assert squared > 0
    for key, vector in host.items():
        assert torch.equal(device[key], vector)


def test_parameters_on_a_device_take_what_a_server_shows(run_id: str) -> None:
    layout = Layout.of(SPECS, shards=1)
    content = Content.create(layout, 0, run_id, 2)
    for vector in content.copies[1].values():
        vector.fill_(7)
    content.show(1, 5)
    parameters = DeviceParameters(layout, CPU)
    before = parameters.vectors
    asyncio.run(parameters.meet(content))
    assert parameters.take(Pulled(0, 1, 5, 2), content, Answer(b"", 1))
    assert not parameters.take(Pulled(0, 1, 6, 2), content, Answer(b"", 1))
    assert parameters.vectors is before, "a model is bound to them once"
    assert all(set(map(float, vector)) == {7.0} for vector in before.values())
    parameters.forget(content)
    parameters.close()


class Runtime:
    """CUDA's, which keeps track of what is pinned."""

    def __init__(self, refused: int = 0) -> None:
        self.pinned: dict[int, int] = {}
        self._refused = refused

    def cudaHostRegister(self, start: int, size: int, flags: int) -> int:  # noqa: N802  CUDA's name
        if not self._refused:
            self.pinned[start] = size
        return self._refused

    def cudaHostUnregister(self, start: int) -> int:  # noqa: N802  CUDA's name
        del self.pinned[start]
        return 0


def test_whole_pages_are_pinned_once_and_let_go_of_once(monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    layout = Layout.of(SPECS, shards=2)  # one owns nothing of the buffer
    one, content = Slab.create(layout, run_id, shared=False), Content.create(layout, 0, run_id, 1)
    pins = devices.Pins(GPU)
    pins.pin(one.vectors)
    pins.pin(*content.copies)
    assert len(runtime.pinned) == 2
    for vectors, (start, size) in zip(((one.vectors,), content.copies), runtime.pinned.items(), strict=True):
        assert (start % mmap.PAGESIZE, size % mmap.PAGESIZE) == (0, 0)
        for vector in [vector for some in vectors for vector in some.values() if vector.numel()]:
            assert start <= vector.data_ptr()
            assert vector.data_ptr() + vector.numel() * vector.element_size() <= start + size
    pins.let_go(one.vectors)
    pins.let_go(one.vectors)
    assert len(runtime.pinned) == 1
    pins.close()
    pins.close()
    pins.pin(one.vectors)
    assert runtime.pinned == {}, "closed"


def test_what_is_pinned_stays_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    layout = Layout.of(SPECS, shards=1)
    vectors = dict(allocate(layout))
    kept = weakref.ref(vectors["parameter.float32"])
    pins = devices.Pins(GPU)
    pins.pin(vectors)
    del vectors
    assert kept() is not None
    pins.close()
    gc.collect()
    assert kept() is None


def test_nothing_is_copied_after_the_end() -> None:
    updates = Watched()
    updates.begin()
    updates.vectors["parameter.float32"].fill_(5)
    updates.close()
    updates.complete()
    assert float(updates.exposed["parameter.float32"].sum()) == 0


def test_what_cannot_be_pinned_is_said_and_used_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    vectors = allocate(Layout.of(SPECS, shards=1))
    pins = devices.Pins(CPU)
    pins._runtime = Runtime(refused=2)
    pins.pin(vectors)
    said = [one.getMessage() for one in caplog.records if one.name == devices.LOGGER.name]
    assert len(said) == 1
    assert said[0].endswith("bytes could not be pinned (CUDA error 2): copies take longer")
    pins.let_go(vectors)
    pins.close()
