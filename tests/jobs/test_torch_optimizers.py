"""Optimisers of torch given to a job: translated where the servers do the same, else refused with what to write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Group, Optimizer, RMSProp
from psplatform.jobs.torch_optimizers import translated


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def job(optimizer: Any, given: Any) -> Job:
    return Job(model=given, loss=nn.functional.cross_entropy, data=([1], [1]), optimizer=optimizer)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.optim.SGD, SGD(lr=1e-3)),
        (torch.optim.Adam, Adam()),
        (torch.optim.AdamW, AdamW()),
        (torch.optim.Adagrad, AdaGrad()),
        (torch.optim.RMSprop, RMSProp()),
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), SGD(lr=0.1, momentum=0.9, nesterov=True)),
        (partial(torch.optim.AdamW, weight_decay=0.2, foreach=True), AdamW(weight_decay=0.2)),
        (partial(torch.optim.Adam, decoupled_weight_decay=False), Adam()),
    ],
    ids=repr,
)
def test_a_class_is_translated_with_its_defaults_or_those_of_a_partial(given: Any, expected: Optimizer) -> None:
    assert translated(given) == expected


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), SGD(lr=0.1, momentum=0.9, nesterov=True)),
        (partial(torch.optim.SGD, lr=torch.tensor(0.5)), SGD(lr=0.5)),
        (partial(torch.optim.Adam, lr=0.01, betas=(0.8, 0.9), fused=False), Adam(lr=0.01, betas=(0.8, 0.9))),
        (partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1), AdamW(lr=0.01, weight_decay=0.1)),
        (
            partial(torch.optim.Adagrad, lr_decay=0.1, initial_accumulator_value=0.5),
            AdaGrad(lr_decay=0.1, initial_accumulator_value=0.5),
        ),
        (partial(torch.optim.RMSprop, centered=True, momentum=0.5), RMSProp(centered=True, momentum=0.5)),
    ],
    ids=repr,
)
def test_an_object_is_translated_with_its_options(make: Callable[..., Any], expected: Optimizer) -> None:
    made = model()
    assert job(make(made.parameters()), made).optimizer == expected
    assert job(make(made.parameters()), model).optimizer == expected


def by_parameters(made: nn.Module) -> list[dict[str, Any]]:
    weights = [one for name, one in made.named_parameters() if name.endswith("weight")]
    biases = [one for name, one in made.named_parameters() if name.endswith("bias")]
    return [{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 0.2}]


def by_names(made: nn.Module) -> list[dict[str, Any]]:
    named = list(made.named_parameters())
    weights = [one for one in named if one[0].endswith("weight")]
    biases = [one for one in named if one[0].endswith("bias")]
    return [{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 0.2}]


IN_GROUPS = AdamW(weight_decay=0.1, groups=(Group(["0.bias", "1.bias"], lr=0.2, weight_decay=0.0),))


def test_groups_are_told_by_the_names_that_the_model_gives_to_their_parameters() -> None:
    made = model()
    assert job(torch.optim.AdamW(by_parameters(made), weight_decay=0.1), made).optimizer == IN_GROUPS


def test_groups_of_named_parameters_need_no_model() -> None:
    made = model()
    assert job(torch.optim.AdamW(by_names(made), weight_decay=0.1), model).optimizer == IN_GROUPS


def test_groups_whose_parameters_have_no_names_are_refused_with_what_to_write() -> None:
    given = torch.optim.AdamW(by_parameters(model()), weight_decay=0.1)
    with pytest.raises(ConfigurationError, match=r"named_parameters\(\), or write ps.AdamW\(groups=") as caught:
        job(given, model)
    assert caught.value.field == "optimizer"


def test_a_parameter_that_torch_would_not_train_is_not_trained_unasked() -> None:
    made = model()
    given = torch.optim.SGD(made[0].parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match=r"leaves out the parameter '1.weight'; switch its requires_grad off"):
        job(given, made)
    made[1].requires_grad_(requires_grad=False)
    assert job(given, made).optimizer == SGD(lr=0.1)


def stepped() -> torch.optim.Optimizer:
    made = model()
    given = torch.optim.Adam(made.parameters())
    made(torch.ones(1, 3)).sum().backward()
    given.step()
    return given


def scheduled() -> torch.optim.Optimizer:
    given = torch.optim.SGD(model().parameters(), lr=0.1)
    lr_scheduler.CosineAnnealingLR(given, 10)
    return given


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.optim.LBFGS, r"torch.optim.LBFGS cannot be translated; write one of ps.SGD, ps.Adam, ps.AdamW"),
        (lambda: torch.optim.Adadelta(model().parameters()), "torch.optim.Adadelta cannot be translated"),
        (lambda: Lion(model().parameters()), "Lion cannot be translated"),
        (lambda: torch.optim.Adam(model().parameters(), amsgrad=True), "has amsgrad=True, .*; leave amsgrad out"),
        (lambda: partial(torch.optim.SGD, maximize=True), "has maximize=True"),
        (stepped, "has taken steps already, whose state is not taken over; give one that is new"),
        (scheduled, r"has a schedule attached; give the job schedule=ps.Cosine"),
    ],
    ids=["class", "object", "own", "amsgrad", "maximize", "stepped", "scheduled"],
)
def test_what_the_servers_cannot_do_is_refused_with_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        job(make(), model)
    assert caught.value.field == "optimizer"


def test_anything_else_is_left_alone() -> None:
    for given in (SGD(), "adam", {"name": "adam"}, None, dict, nn.Linear):
        assert translated(given) is given
