"""What numbers are in a job file, and what is refused as none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.job_file import fields_in, text_of

NUMBERS = {
    "1e-3": 0.001,
    "1E-3": 0.001,
    "1e3": 1000.0,
    "1.5e-3": 0.0015,
    "-2e-2": -0.02,
    "+2e2": 200.0,
    ".5e1": 5.0,
    "1.e-2": 0.01,
    "0.1": 0.1,
    "7": 7,
}
TEXTS = ["1e", "e3", "1e-", "1e3x", "0x1e", "v1e3", "'1e-3'", '"1e3"']


@pytest.mark.parametrize(("written", "value"), NUMBERS.items())
def test_a_number_with_an_exponent_is_a_number(written: str, value: float) -> None:
    (found,) = fields_in(f"lr: {written}", "job.yaml").values()
    assert (found, type(found)) == (value, type(value))
    assert fields_in(f"optimizer: {{lr: {written}}}\na: [{written}]", "job.yaml") == {
        "optimizer": {"lr": value},
        "a": [value],
    }


@pytest.mark.parametrize("written", TEXTS)
def test_what_only_looks_like_one_stays_what_it_was(written: str) -> None:
    import yaml

    assert fields_in(f"a: {written}", "job.yaml") == yaml.safe_load(f"a: {written}")


def test_a_job_takes_such_numbers_wherever_it_wants_one() -> None:
    text = """
    workload: digits
    optimizer: {name: adam, lr: 1e-3}
    clip_norm: 1e2
    stop: {target_loss: 1e-2, updates: 1e3}
    schedule: {name: step, milestones: [1e1], gamma: 5e-1}
    replication: {mode: bounded, max_divergence: 5e-1}
    server_lease_s: 3e1
    """
    job = Job(**fields_in(text, "job.yaml"))
    assert (job.optimizer.lr, job.clip_norm, job.stop.target_loss, job.server_lease_s) == (0.001, 100.0, 0.01, 30.0)
    assert (job.stop.updates, type(job.stop.updates)) == (1000, int)
    assert (job.schedule.milestones, job.schedule.gamma, job.replication.max_divergence) == ((10.0,), 0.5, 0.5)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text("1e-3.+_:x", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1e3", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1), PLAIN, max_size=4))
def test_what_is_written_is_read_as_it_was(fields: dict[str, Any]) -> None:
    """A text that looks like a number stays a text."""
    assert fields_in(text_of(fields), "job.yaml") == fields


@pytest.mark.parametrize(
    "text", ["store: 2024-13-45", "seed: 0b_", "a: [", "- digits", "[" * 5000, ""], ids=lambda text: text[:20]
)
def test_what_is_no_job_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the job file job\.yaml") as caught:
        fields_in(text, "job.yaml")
    assert "\n" not in str(caught.value)
    assert caught.value.field == "job"
