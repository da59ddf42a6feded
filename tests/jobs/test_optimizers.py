"""What a specification of an optimiser accepts, refuses and assigns."""

from __future__ import annotations

import pickle
import subprocess
import sys

import msgpack
import pytest

from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import (
    OPTIMIZERS,
    SGD,
    AdaGrad,
    Adam,
    AdamW,
    Additive,
    Group,
    Optimizer,
    RMSProp,
    assign_groups,
)

SPECS = [
    SGD(),
    SGD(0.1, momentum=0.9, nesterov=True, groups=(Group("*.bias", lr=1, weight_decay=0.0), Group("head.*", lr=0.0))),
    Adam(betas=(0.8, 0.9), groups=(Group("*", betas=(0.5, 0.6)),)),
    AdamW(weight_decay=0.1),
    AdaGrad(lr_decay=0.1, initial_accumulator_value=0.5),
    RMSProp(centered=True, momentum=0.5),
    Additive(),
]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_specification_survives_its_plain_form_msgpack_and_pickle(spec: Optimizer) -> None:
    packed = msgpack.unpackb(msgpack.packb(spec.to_plain()))
    assert Optimizer.from_plain(packed) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - made here
    assert hash(spec) == hash(Optimizer.from_plain(packed))


def test_every_optimiser_is_known_by_its_name() -> None:
    assert [(name, kind.name) for name, kind in OPTIMIZERS.items()] == [
        (kind.name,) * 2 for kind in OPTIMIZERS.values()
    ]
    assert {type(spec) for spec in SPECS} == set(OPTIMIZERS.values())


def test_numbers_become_floats() -> None:
    assert SGD(lr=1, momentum=0).to_plain()["lr"] == 1.0
    assert isinstance(SGD(lr=1).lr, float)


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        (SGD, {"lr": -0.1}, "lr"),
        (SGD, {"lr": float("nan")}, "lr"),
        (SGD, {"lr": float("inf")}, "lr"),
        (SGD, {"lr": True}, "lr"),
        (SGD, {"lr": "0.1"}, "lr"),
        (SGD, {"momentum": 1.0}, "momentum"),
        (SGD, {"dampening": 1.5}, "dampening"),
        (SGD, {"weight_decay": -1e-9}, "weight_decay"),
        (SGD, {"nesterov": 1}, "nesterov"),
        (SGD, {"nesterov": True}, "nesterov"),
        (SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "nesterov"),
        (Adam, {"betas": (0.9, 1.0)}, "betas"),
        (Adam, {"betas": 0.9}, "betas"),
        (Adam, {"betas": (0.9,)}, "betas"),
        (Adam, {"eps": -1.0}, "eps"),
        (AdamW, {"weight_decay": -0.1}, "weight_decay"),
        (AdamW, {"betas": (0.9, 1.0)}, "betas"),
        (AdaGrad, {"lr_decay": -1.0}, "lr_decay"),
        (AdaGrad, {"initial_accumulator_value": -1.0}, "initial_accumulator_value"),
        (RMSProp, {"alpha": 1.0}, "alpha"),
        (RMSProp, {"centered": "yes"}, "centered"),
    ],
)
def test_a_value_out_of_range_is_refused_by_field_with_a_remedy(
    kind: type[Optimizer], options: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigurationError, match=field) as caught:
        kind(**options)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field


def test_the_message_names_range_value_and_a_value_that_works() -> None:
    with pytest.raises(ConfigurationError, match=r"^momentum must be .* at least 0 and below 1, not 1.5; try 0.0"):
        SGD(momentum=1.5)


@pytest.mark.parametrize(
    ("group", "field", "message"),
    [
        (Group("*.bias", lr=-1), "groups[0].lr", r"\*\.bias"),
        (Group("*.bias", momentun=0.5), "groups[0].momentun", 'did you mean "momentum"'),
        (Group("*.bias", nesterov=True), "groups[0].nesterov", "needs momentum"),
        (Group("*.bias", groups=0), "groups[0].groups", "no hyper-parameter"),
    ],
)
def test_a_group_is_checked_like_the_optimiser_it_changes(group: Group, field: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        SGD(groups=(group,))
    assert caught.value.field == field


def test_a_group_needs_a_pattern() -> None:
    with pytest.raises(ConfigurationError, match="pattern"):
        Group("")
    with pytest.raises(ConfigurationError, match="pattern") as caught:
        Optimizer.from_plain({"name": "sgd", "groups": [{"lr": 0.1}]})
    assert caught.value.field == "groups[0].match"


def test_an_optimiser_without_hyper_parameters_takes_none() -> None:
    with pytest.raises(ConfigurationError, match="it has none"):
        Optimizer.from_plain({"name": "additive", "lr": 0.1})


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match='did you mean "adagrad"') as caught:
        Optimizer.from_plain({"name": "adagard"})
    assert caught.value.field == "optimizer"
    with pytest.raises(ConfigurationError, match="choose from sgd"):
        Optimizer.from_plain({})


def test_members_are_the_hyper_parameters_of_each_group() -> None:
    spec = SGD(lr=0.1, momentum=0.9, groups=(Group("*.bias", momentum=0.0), Group("head.*", lr=0.01)))
    assert spec.members() == (SGD(lr=0.1, momentum=0.9), SGD(lr=0.1), SGD(lr=0.01, momentum=0.9))


def test_the_first_pattern_that_matches_decides_and_group_0_has_the_rest() -> None:
    spec = SGD(groups=[Group("*.bias"), Group("head.*")])  # type: ignore[arg-type]  # a list is taken, too
    assert assign_groups(spec, ["body.weight", "body.bias", "head.weight", "head.bias"]) == [0, 1, 2, 1]
    assert assign_groups(SGD(), ["a", "b"]) == [0, 0]


def test_a_group_may_have_several_patterns_each_of_which_must_match_something() -> None:
    spec = SGD(groups=(Group(["*.bias", "head.*"], lr=0.1),))
    assert assign_groups(spec, ["body.weight", "body.bias", "head.weight"]) == [0, 1, 1]
    assert Optimizer.from_plain(msgpack.unpackb(msgpack.packb(spec.to_plain()))) == spec
    with pytest.raises(ConfigurationError, match=r"matches the group 'head\.\*'"):
        assign_groups(spec, ["body.weight", "body.bias"])
    with pytest.raises(ConfigurationError, match="or a list of them"):
        Group([])


def test_patterns_heed_case() -> None:
    assert assign_groups(SGD(groups=(Group("A*"),)), ["Ab", "ab"]) == [1, 0]


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    spec = SGD(groups=(Group("*"), Group("*.bais")))
    with pytest.raises(ConfigurationError, match=r"\*\.bais.*body\.weight") as caught:
        assign_groups(spec, ["body.weight"])
    assert caught.value.field == "groups[1].match"


def test_specifications_load_no_torch() -> None:
    code = "import sys, psplatform.jobs.optimizers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
