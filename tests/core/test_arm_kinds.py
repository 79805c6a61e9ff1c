"""Kinds of arms: inferred from the settings, and each with the settings it has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from dualml.common.strict_model import RESTRICTED, describe_validation_error
from dualml.experiment.arm import KINDS, Arm, infer_kind, make_arm
from dualml.experiment.arm.kinds import DataParallelArm, SingleArm
from dualml.experiment.arm.split_kinds import MessagesSplitArm, RpcSplitArm
from dualml.experiment.find import experiment_files
from dualml.experiment.keys import ARM, present_table
from dualml.experiment.load import load
from dualml.experiment.schema import Experiment

SGD: dict[str, Any] = {"name": "sgd", "lr": 0.1}
DEVICES = {"engine": "devices", "devices": ["cpu:0", "cpu:1"], "schedule": "naive"}
TRAINERS = {"trainers": 2, "place": [0, 1], "micro_batches": 2}
#: Kind → settings that make an arm of it.
EXAMPLES: dict[str, dict[str, Any]] = {
    "collectives": {"kind": "collectives", "sizes": [8], "strategies": ["ring"]},
    "method": {"method": "single"},
    "split_rpc": {"world_size": 2, "split": {"engine": "rpc"}},
    "split_devices": {"split": DEVICES},
    "split_asynchronous": {"world_size": 3, "split": {**TRAINERS, "arrival": "asynchronous"}},
    "split": {"world_size": 2, "split": {}},
    "sharded": {"world_size": 2, "zero": 1},
    "asynchronous": {"world_size": 2, "aggregation": {"strategy": "parameter_server_async"}},
    "averaging": {"world_size": 2, "aggregation": {"of": "parameters"}},
    "data_parallel": {"world_size": 2},
    "single": {},
}
#: Setting → a value that is not its default.
VALUES: dict[str, Any] = {
    "aggregation": {"strategy": "ring"},
    "slow": {"compute": 2.0},
    "partition": {"name": "round_robin"},
    "dealt_to": 2,
    "split": {},
    "method": "single",
    "method_config": {"train_batch_size": 64},
    "precision": "bf16",
    "loss_scale": 8,
    "zero": 1,
    "zero_reduce": "all_reduce",
    "zero_lower": True,
    "recompute": "full",
    "offload": {"state": "host"},
}


def experiment(settings: dict[str, Any]) -> Experiment:
    """Return an experiment with one arm."""
    table = {"name": "x", "title": {}, "data": {"name": "digits"}, "model": "mlp"}
    return Experiment.model_validate({**table, "arms": {"a": {"optimizer": SGD, **settings}}})


def test_there_is_an_example_of_every_kind() -> None:
    assert list(EXAMPLES) == list(KINDS)
    assert set(VALUES) == set().union(*(kind.absent for kind in KINDS.values()))


@pytest.mark.parametrize("tag", EXAMPLES)
def test_a_kind_is_inferred_and_stored_without_a_tag(tag: str) -> None:
    found = experiment(EXAMPLES[tag])
    arm = found.arms["a"]
    assert type(arm) is KINDS[tag]
    assert infer_kind(arm) == tag
    stored = json.loads(json.dumps(found.describe()))
    assert set(stored["arms"]["a"]) <= set(Arm.model_fields)
    assert Experiment.model_validate(stored).arms["a"] == arm
    assert make_arm(arm.model_dump(mode="json")) == arm  # also with every default written out
    assert list(arm.model_dump()) == list(Arm.model_fields)


@pytest.mark.parametrize(
    ("tag", "key"), [(tag, key) for tag, kind in KINDS.items() for key in sorted(kind.absent)]
)
def test_what_a_kind_does_not_have_is_refused_at_its_key(tag: str, key: str) -> None:
    settings = {"optimizer": SGD, **EXAMPLES[tag], key: VALUES[key]}
    with pytest.raises(ValidationError) as refused:
        KINDS[tag].model_validate(settings)
    assert [(e["type"], e["loc"]) for e in refused.value.errors()] == [(RESTRICTED, (key,))]
    if infer_kind(settings) != tag:
        return  # that setting alone makes it another kind
    with pytest.raises(ValidationError) as refused:
        experiment({**EXAMPLES[tag], key: VALUES[key]})
    text = describe_validation_error(refused.value, Experiment)
    assert text.startswith(f"arms.a.{key}: ")
    assert len(text) > len(f"arms.a.{key}: ") + 20
    (written,) = present_table({key: None}, ARM)
    reason = text.removeprefix(f"arms.a.{key}: ")
    assert written in reason or tag in reason or "method" in reason
    assert "{" not in text
    assert "kind:" not in text


def test_an_arm_is_of_no_other_kind_than_it_says() -> None:
    with pytest.raises(ValidationError, match=r"kind single has no such settings.*data_parallel"):
        SingleArm.model_validate({"optimizer": SGD, **EXAMPLES["data_parallel"]})
    with pytest.raises(ValidationError, match="kind data_parallel has no such settings"):
        DataParallelArm.model_validate({"optimizer": SGD, **EXAMPLES["single"]})
    with pytest.raises(ValidationError, match=r"split.engine\n +rpc is of another kind"):
        MessagesSplitArm.model_validate({"optimizer": SGD, **EXAMPLES["split_rpc"]})
    with pytest.raises(ValidationError, match=r"split.engine\n +Field required"):
        RpcSplitArm.model_validate({"optimizer": SGD, **EXAMPLES["split"]})


def test_a_wrong_type_is_told_before_what_the_kind_does_not_have() -> None:
    with pytest.raises(ValidationError) as refused:
        experiment({"split": {"stagse": 2}, "aggregation": {"strategy": "ring"}})
    text = describe_validation_error(refused.value, Experiment)
    assert text == "unknown key arms.a.split.stagse; did you mean 'stages'?"


@pytest.mark.parametrize(
    "garbage",
    [
        3,
        "x",
        [],
        None,
        {"split": 3},
        {"aggregation": []},
        {"world_size": "2"},
        {"method": 3},
        {"zero": [1]},
        {"split": {"engine": []}},
    ],
)
def test_anything_has_a_kind_whose_error_is_told(garbage: Any) -> None:
    assert infer_kind(garbage) in KINDS
    table = {"name": "x", "title": {}, "data": {"name": "digits"}, "model": "mlp"}
    with pytest.raises(ValidationError) as refused:
        Experiment.model_validate({**table, "arms": {"a": garbage}})
    assert "arms.a" in describe_validation_error(refused.value, Experiment)


def test_the_labs_have_arms_of_every_kind() -> None:
    arms = [arm for path in experiment_files() for arm in load(path, arms=["all"]).arms.values()]
    assert all(type(arm) is KINDS[infer_kind(arm)] for arm in arms)
    assert {infer_kind(arm) for arm in arms} == set(KINDS)
