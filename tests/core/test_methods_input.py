"""Allowed and refused settings of arms with a method, a launcher or a choice of backends."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from pydantic import ValidationError

from dualml.common.errors import Unsupported, UserError
from dualml.experiment.arm import make_arm
from dualml.experiment.load import load
from dualml.experiment.methods.registry import METHODS, MethodInfo, check_backend_ranks, find_method
from dualml.experiment.schema import Experiment

SGD = {"optimizer": {"name": "sgd", "lr": 0.1}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"method": "acelerate"}, "unknown method 'acelerate'; did you mean 'accelerate'?"),
        ({"launcher": "torchrum", "world_size": 2}, "unknown launcher 'torchrum'; did you mean"),
        ({"launcher": "torchrun"}, "launcher = torchrun starts several ranks; world_size is 1"),
        ({"backends": ["pytorch"]}, "unknown backend 'pytorch'"),
        ({"method": "ddp", "world_size": 2, "aggregation": {"strategy": "ring"}}, "leave out kind"),
        ({"method": "ddp", "world_size": 2, "slow": {"compute": 2.0}}, "leave out straggler"),
        ({"method": "single", "schedule": {"kind": "cosine"}}, "leave out schedule"),
        ({"method": "single", "batch_size": 0}, "batch_size = 0"),
        ({"method": "single", "batch_size": 512}, "batch_size = 512, accumulation_batch = 256"),
        ({"method": "amp_bf16", "world_size": 2}, "method = amp_bf16 trains in one process on "),
        ({"method": "amp_bf16", "world_size": 2}, "several ranks (torch: ddp, "),
        ({"method": "amp_bf16", "world_size": 2}, "; mindspore: reducer, "),
        ({"method": "recompute", "world_size": 2, "backends": ["torch"]}, "one process on torch"),
        ({"method": "reducer", "backends": ["mindspore"]}, "needs several ranks on mindspore"),
        ({"method": "ddp"}, "world_size is 1: set world_size = 2 or more, or use"),
    ],
)
def test_what_cannot_be_meant_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises((UserError, ValidationError)) as caught:
        make_arm({**SGD, **more})
    assert said in str(caught.value)


@pytest.mark.parametrize("backend", METHODS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_every_method_is_taken_with_the_ranks_it_has(backend: str, world_size: int) -> None:
    for name, info in METHODS[backend].items():
        arm = {**SGD, "method": name, "world_size": world_size, "backends": [backend]}
        if info.ranks in ("any", "one" if world_size == 1 else "several"):
            assert make_arm(arm).method == name
            check_backend_ranks(backend, name, world_size)
        else:
            with pytest.raises(ValidationError, match=f"and world_size is {world_size}"):
                make_arm(arm)
            with pytest.raises(Unsupported, match=f"and world_size is {world_size}"):
                check_backend_ranks(backend, name, world_size)


def test_a_method_that_one_backend_trains_with_several_ranks_is_taken_for_all() -> None:
    both = {**SGD, "method": "data_parallel", "world_size": 2}
    assert not make_arm(both).backends
    with pytest.raises(Unsupported, match="data_parallel trains in one process on torch"):
        check_backend_ranks("torch", "data_parallel", 2)


def test_ranks_from_the_command_line_are_checked_too() -> None:
    chosen: dict[str, Any] = {"arms": ["torch-bf16"], "quick": True}
    with pytest.raises(UserError, match=r"--set arms.torch-bf16.world_size=2: .*one process on"):
        load("methods", overrides=["arms.torch-bf16.world_size=2"], **chosen)
    with pytest.raises(UserError, match=r"--world-size 1: .*ddp needs several ranks on torch"):
        load("methods", world_size=1, **chosen)


def test_an_arm_runs_on_the_backends_it_names() -> None:
    arms = {"each": SGD, "some": {**SGD, "backends": ["mindspore"]}}
    whole = {"name": "x", "title": {"en": "x"}, "model": "softmax", "data": {"name": "digits"}}
    experiment = Experiment.model_validate({**whole, "arms": arms})
    asked = ["torch", "mindspore"]
    assert experiment.backends_of("each", asked) == asked
    assert experiment.backends_of("some", asked) == ["mindspore"]
    assert "backends" not in experiment.describe()["arms"]["each"]


def test_a_method_of_another_backend_says_whose_it_is() -> None:
    with pytest.raises(
        Unsupported, match="backend numpy has no method 'ddp'; it is one of torch and mindspore"
    ):
        find_method("numpy", "ddp")


def test_an_engine_that_is_missing_or_of_another_version_says_how_to_get_it() -> None:
    facts: dict[str, Any] = {"name": "x", "title": "X", "what": {}, "install": "pip install x"}
    with pytest.raises(Unsupported, match="X is not installed; install it with: pip install x"):
        MethodInfo(**facts, package="no-such-package", series="1").check()
    MethodInfo(**facts, package="numpy", series=version("numpy").split(".")[0]).check()
    with pytest.raises(Unsupported, match=r"was tried with 0\.1 only: install it with"):
        MethodInfo(**facts, package="numpy", series="0.1").check()


def test_every_method_says_what_it_is_in_both_languages() -> None:
    for methods in METHODS.values():
        for info in methods.values():
            assert set(info.what) == {"en", "zh"}, info.name
            assert info.ranks in ("one", "several", "any")
            assert info.precision in ("fp32", "bf16", "fp16")
            assert bool(info.unsupported) == bool(info.page), info.name
            assert bool(info.package) == bool(info.install and info.series), info.name
