"""How gradients are compressed, in the words of a job."""

from __future__ import annotations

from typing import Any

import pytest

import psplatform as ps
from psplatform.errors import ConfigurationError
from psplatform.jobs.compression import USUAL_FRACTION, Compression


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, Compression()),
        ("none", Compression("none")),
        ("bf16", Compression("bf16")),
        ("fp16", Compression("fp16")),
        ("topk", Compression("topk", USUAL_FRACTION)),
        ("topk:0.001", Compression("topk", 0.001)),
        (" topk : 1e-3 ", Compression("topk", 0.001)),
    ],
)
def test_words(words: str | None, expected: Compression) -> None:
    found = Compression.from_plain(words)

    assert found == expected
    assert Compression.from_plain(str(found)) == found


def test_a_fraction_is_said_with_all_its_digits() -> None:
    odd = Compression("topk", 0.1234567890123)

    assert Compression.from_plain(str(odd)) == odd


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fp8", '"fp8" is not known; choose from none, bf16, fp16, topk'),
        ("topk:half", '"half" is no fraction; write it like topk:0.01'),
        ("topk:", '"" is no fraction'),
        ("topk:0", "above 0"),
        ("topk:0.5", "half of them, with their places, would be as many bytes as all"),
        ("topk:nan", "fraction"),
        ("bf16:0.1", "bf16 has no fraction; leave it out, or take topk"),
        (0.01, "must be a word such as bf16 or topk:0.01, not 0.01"),
        ({"kind": "bf16"}, "must be a word"),
    ],
)
def test_mistakes(given: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match="compression") as caught:
        ps.Job(workload="digits", compression=given)

    assert sentence in str(caught.value)
    assert caught.value.field == "compression"


def test_a_job_tells_it_in_a_word_and_reads_it_again() -> None:
    job = ps.Job(workload="digits", compression="topk:0.02")

    plain = job.to_plain()

    assert plain["compression"] == "topk:0.02"
    assert ps.Job.from_plain(plain).compression == Compression("topk", 0.02)


def test_a_job_of_before_has_none() -> None:
    plain = ps.Job(workload="digits").to_plain()
    del plain["compression"]

    assert ps.Job.from_plain(plain).compression == Compression()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"network": ps.Network(ps.Fabric())}, "leave the fabric out, or compression"),
        ({"optimizer": ps.Additive()}, "leave it out with the optimizer additive"),
    ],
)
def test_what_it_does_not_go_with(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        ps.Job(workload="digits", compression="bf16", **fields)

    assert caught.value.field == "compression"
    assert ps.Job(workload="digits", compression="none", **fields).compression.kind == "none"
