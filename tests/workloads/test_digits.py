"""The digits are those of scikit-learn, divided as it divides them, and read without importing it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from psplatform.workloads import digits


def test_both_parts_are_those_that_scikit_learn_draws() -> None:
    found = load_digits()
    images = found.images[:, None].astype(np.uint8)
    expected = train_test_split(images, found.target, test_size=0.2, stratify=found.target, random_state=0)
    actual = (digits.training_part(), digits.held_out_part())
    for wanted, part in zip([(expected[0], expected[2]), (expected[1], expected[3])], actual, strict=True):
        for one, other in zip(wanted, part, strict=True):
            np.testing.assert_array_equal(other, one)
            assert other.dtype == one.dtype


def test_reading_them_imports_nothing_of_scikit_learn() -> None:
    program = (
        "import sys; from psplatform.workloads import digits; digits.training_part();"
        "print(sum(name.split('.')[0] in ('sklearn', 'scipy', 'pandas') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout.split() == ["0"]


def test_a_version_that_keeps_them_elsewhere_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = digits._lines()
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(digits, "find_spec", lambda name: spec)
    np.testing.assert_array_equal(digits._lines(), expected)
