"""Batches that are dicts, made of texts of different lengths, and a step that computes the loss with them.

The model learns whether a text has more brackets that open than brackets that close.  A model of the library
transformers takes the same batches: its step is ``return model(**batch).loss``.

``python examples/ragged_text.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from distributed import Client
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import psplatform as ps

LETTERS = "_()abc"  # the first one fills up what is shorter than the longest text of a batch


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Return samples: the letters of a text, ``int64[length]``, and its class."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for length in torch.randint(3, 20, (count,), generator=generator).tolist():
        letters = torch.randint(1, len(LETTERS), (length,), generator=generator)
        more = (letters == LETTERS.index("(")).sum() > (letters == LETTERS.index(")")).sum()
        samples.append({"input_ids": letters, "labels": int(more)})
    return samples


def batch_of(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Return one batch, in which every text is as long as the longest."""
    input_ids = pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    labels = torch.tensor([sample["labels"] for sample in samples])
    return {"input_ids": input_ids, "attention_mask": (input_ids != 0).long(), "labels": labels}


class Classifier(nn.Module):
    """The sum of what each letter says, and a small network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 8)
        self.classes = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return scores ``float32[texts, 2]``."""
        return self.classes((self.letters(input_ids) * attention_mask.unsqueeze(2)).sum(1))


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss of a batch; every tensor in it is on the model's device."""
    scores = model(batch["input_ids"], batch["attention_mask"])
    return cross_entropy(scores, batch["labels"])


def main() -> None:
    """Train until the held-out loss is low, then use the model that came out."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    job = ps.Job(
        model=Classifier,
        step=step,
        data=texts(2000, seed=1),
        test=texts(500, seed=2),
        collate=batch_of,
        optimizer=ps.Adam(lr=0.01),
        policy="ssp",
        workers=2,
        batch_size=50,
        stop=ps.Stop(target_loss=0.1, updates=1500),
    )
    with ps.train(job, client) as run:
        summary = run.wait()
        model = run.model().eval()
    batch = batch_of(texts(1000, seed=3))
    right = model(batch["input_ids"], batch["attention_mask"]).argmax(1) == batch["labels"]
    print(f"held-out loss {summary['evaluation_loss']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"{right.float().mean():.1%} of other texts are classified rightly; the model is in {run.store}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
