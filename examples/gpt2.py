"""A small GPT-2 of the library transformers, trained from its config on batches that are dicts.

It learns to write sentences like those that it was given, letter by letter.  Nothing is downloaded.  The embedding and
the output layer are one parameter (tied weights), and no weight decay applies to biases and layer norms.

``pip install '.[transformers]'``, then ``python examples/gpt2.py [SCHEDULER]``; without a scheduler's address,
a cluster on this machine is made.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from distributed import Client
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import psplatform as ps

LETTERS = "\n abcdefghijklmnopqrstuvwxyz."  # the first one ends a sentence and fills up what is shorter
LENGTH = 32
WORDS = (("the", "a", "every"), ("cat", "dog", "bird"), ("sees", "likes", "follows"), ("the", "a"), ("fish", "mouse"))


def sentences(count: int, seed: int) -> dict[str, Tensor]:
    """Return the arrays of the data, each ``int64[count, LENGTH]``: one entry per sentence."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        chosen = [words[int(torch.randint(len(words), (), generator=generator))] for words in WORDS]
        rows.append(torch.tensor([LETTERS.index(letter) for letter in " ".join(chosen) + ".\n"]))
    input_ids = torch.stack([nn.functional.pad(row, (0, LENGTH - len(row))) for row in rows])
    lengths = torch.tensor([len(row) for row in rows]).unsqueeze(1)
    attention_mask = (torch.arange(LENGTH) < lengths).long()
    labels = input_ids.masked_fill(attention_mask == 0, -100)  # what fills up is not to be learned
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def network() -> nn.Module:
    """Build the model; every process calls this by itself and starts from the same numbers."""
    size = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(LETTERS), bos_token_id=0, eos_token_id=0, **size))
    model.loss_type = "ForCausalLM"  # which transformers assumes by itself, with a warning in each process
    return model


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss of a batch, which the model computes from the labels in it."""
    return model(**batch).loss


def job(**changes: Any) -> ps.Job:
    """Describe the training; `changes` are fields that shall be otherwise."""
    fields: dict[str, Any] = {
        "model": network,
        "step": step,
        "data": sentences(2000, seed=1),
        "test": sentences(200, seed=2),
        "optimizer": ps.AdamW(lr=0.01, weight_decay=0.1, groups=(ps.Group(("*.bias", "*.ln_*"), weight_decay=0.0),)),
        "policy": "bsp",
        "workers": 2,
        "shards": 2,
        "batch_size": 16,
        "evaluate_every": 25,
        "stop": ps.Stop(target_loss=0.4, updates=400),
    }
    return ps.Job(**{**fields, **changes})


def main() -> None:
    """Train until the held-out loss is low, then let the model write."""
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    with ps.train(job(), client) as run:
        summary = run.wait()
        model = run.model().eval()
    begin = torch.tensor([[LETTERS.index(letter) for letter in "every "]])
    written = model.generate(begin, attention_mask=torch.ones_like(begin), max_length=LENGTH, do_sample=False)
    text = "".join(LETTERS[number] for number in written[0].tolist()).partition("\n")[0]
    print(f"held-out loss {summary['evaluation_loss']:.3f} after {summary['updates']} updates, {summary['outcome']}")
    print(f"it writes: {text}")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
