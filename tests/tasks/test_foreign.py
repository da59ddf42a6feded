"""What is said of an error in the user's code."""

from __future__ import annotations

import torch

from psplatform.tasks.foreign import describe


def test_where_a_gpu_is_full_it_is_said_what_to_do() -> None:
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 TiB. GPU 0 has a total capacity of 1 GiB."
    )
    kind, text, _ = describe(error)
    assert kind == "OutOfMemoryError"
    assert text == (
        "CUDA out of memory. Tried to allocate 2.00 TiB; choose a smaller batch_size, or more micro_batches"
    )


def test_of_other_errors_the_text_is_their_own() -> None:
    kind, text, trace = describe(ValueError("one. two. three."))
    assert (kind, text) == ("ValueError", "one. two. three.")
    assert "ValueError: one. two. three." in trace
