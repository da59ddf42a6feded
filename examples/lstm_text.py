"""An LSTM on texts of different lengths, which a `collate` makes a batch of and the model packs.

The model learns whether the brackets of a text are balanced: each that opens is closed later.

``python examples/lstm_text.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from distributed import Client
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import psplatform as ps

LETTERS = "_()"  # the first one fills up what is shorter than the longest text of a batch
Sample = tuple[Tensor, int]
Batch = tuple[Tensor, Tensor, Tensor]


def texts(count: int, seed: int) -> list[Sample]:
    """Return samples: the letters of a text, ``int64[length]``, and whether it is balanced."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(count):
        length = 2 * int(torch.randint(1, 6, (), generator=generator))
        steps = 2 * torch.randint(0, 2, (length,), generator=generator) - 1
        if number % 2:  # half of the texts are made so that they are balanced
            for place in range(length):
                depth = int(steps[:place].sum())
                if depth in (0, length - place):
                    steps[place] = 1 if depth == 0 else -1
        balanced = int(steps.sum()) == 0 and int(steps.cumsum(0).min()) >= 0
        samples.append((torch.where(steps > 0, 1, 2), int(balanced)))
    return samples


def batch_of(samples: list[Sample]) -> Batch:
    """Return one batch: letters ``int64[texts, longest]``, lengths and classes ``int64[texts]``."""
    letters, classes = zip(*samples, strict=True)
    lengths = torch.tensor([len(one) for one in letters])
    return pad_sequence(list(letters), batch_first=True), lengths, torch.tensor(classes)


class Classifier(nn.Module):
    """An LSTM over the letters, and a linear layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 8, padding_idx=0)
        self.memory = nn.LSTM(8, 32, num_layers=2, batch_first=True, dropout=0.1)
        self.classes = nn.Linear(32, 2)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """Return scores ``float32[texts, 2]``."""
        packed = pack_padded_sequence(self.letters(letters), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.memory(packed)
        return self.classes(last[-1])


def step(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss of a batch; every tensor in it is on the model's device."""
    letters, lengths, classes = batch
    return cross_entropy(model(letters, lengths), classes)


def job(**changes: Any) -> ps.Job:
    """Describe the training; `changes` are fields that shall be otherwise."""
    fields: dict[str, Any] = {
        "model": Classifier,
        "step": step,
        "data": texts(2000, seed=1),
        "test": texts(400, seed=2),
        "collate": batch_of,
        "optimizer": ps.Adam(lr=0.003),
        "clip_norm": 1.0,
        "policy": "bsp",
        "workers": 2,
        "shards": 2,
        "batch_size": 32,
        "evaluate_every": 25,
        "stop": ps.Stop(target_loss=0.05, updates=600),
    }
    return ps.Job(**{**fields, **changes})


def main() -> None:
    """Train until the held-out loss is low, then use the model that came out."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    with ps.train(job(), client) as run:
        summary = run.wait()
        model = run.model().eval()
    letters, lengths, classes = batch_of(texts(1000, seed=3))
    right = model(letters, lengths).argmax(1) == classes
    print(f"held-out loss {summary['evaluation_loss']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"{right.float().mean():.1%} of other texts are classified rightly; the model is in {run.store}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
