"""A small BERT classifier of the library transformers, trained from its config on batches that are dicts.

It learns whether a text has more of one kind of words than of another.  Nothing is downloaded.

``pip install '.[transformers]'``, then ``python examples/bert_classifier.py [SCHEDULER]``; without a
scheduler's address, a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from distributed import Client
from torch import Tensor, nn
from transformers import BatchEncoding, BertConfig, BertForSequenceClassification

import psplatform as ps

VOCABULARY = ["[PAD]", "[CLS]", "[SEP]", "good", "fine", "lovely", "bad", "dull", "ugly", "the", "film", "was", "and"]
GOOD, BAD = range(3, 6), range(6, 9)
LENGTH = 16


def texts(count: int, seed: int) -> BatchEncoding:
    """Return what a tokenizer makes of texts, and their labels: arrays with one entry per text."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(3, len(VOCABULARY), (count, LENGTH - 2), generator=generator)
    lengths = torch.randint(5, LENGTH - 1, (count, 1), generator=generator)
    input_ids = torch.zeros(count, LENGTH, dtype=torch.int64)
    input_ids[:, 0] = VOCABULARY.index("[CLS]")
    input_ids[:, 1:-1] = words.masked_fill(torch.arange(LENGTH - 2) >= lengths, 0)
    input_ids.scatter_(1, lengths + 1, VOCABULARY.index("[SEP]"))
    good, bad = (torch.isin(input_ids, torch.tensor(kind)).sum(1) for kind in (GOOD, BAD))
    return BatchEncoding(
        {"input_ids": input_ids, "attention_mask": (input_ids != 0).long(), "labels": (good > bad).long()}
    )


def network() -> nn.Module:
    """Build the model; every process calls this by itself and starts from the same numbers."""
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=LENGTH, num_labels=2, **size)
    return BertForSequenceClassification(config)


def step(model: nn.Module, batch: BatchEncoding) -> Tensor:
    """Return the mean loss of a batch, which the model computes from the labels in it."""
    return model(**batch).loss


def job(**changes: Any) -> ps.Job:
    """Describe the training; `changes` are fields that shall be otherwise."""
    fields: dict[str, Any] = {
        "model": network,
        "step": step,
        "data": texts(2000, seed=1),
        "test": texts(400, seed=2),
        "optimizer": ps.AdamW(lr=0.003, weight_decay=0.01),
        "policy": "bsp",
        "workers": 2,
        "shards": 2,
        "batch_size": 32,
        "evaluate_every": 25,
        "stop": ps.Stop(target_loss=0.2, updates=600),
    }
    return ps.Job(**{**fields, **changes})


def main() -> None:
    """Train until the held-out loss is low, then use the model that came out."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    with ps.train(job(), client) as run:
        summary = run.wait()
        model = run.model().eval()
    others = texts(1000, seed=3)
    with torch.no_grad():
        right = model(**others).logits.argmax(1) == others["labels"]
    print(f"held-out loss {summary['evaluation_loss']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"{right.float().mean():.1%} of other texts are classified rightly; the model is in {run.store}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
