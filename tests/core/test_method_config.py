"""An engine's own configuration file: read once, checked against the arm, and passed on without the
keys that the plan decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dualml.common.errors import UserError
from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.load import load
from dualml.experiment.methods.config import MAX_CONFIG_BYTES, read_config, without_planned_keys

ARM = {
    "method": "deepspeed_zero2",
    "world_size": 2,
    "batch_size": 64,
    "optimizer": {"name": "adam", "lr": 0.001},
}
#: DeepSpeed configurations of public scripts: the arm's settings, and communication settings.
AGREES = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
    "fp16": {"enabled": False},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 200000},
}


def arm(config: Any, **more: Any) -> Arm:
    return make_arm(**{**ARM, "method_config": config, **more})


def test_one_that_agrees_is_taken() -> None:
    table = arm(AGREES).method_config
    assert table == AGREES
    assert without_planned_keys(table) == {
        key: AGREES[key] for key in ("fp16", "zero_optimization")
    }
    assert arm({"train_batch_size": "auto", "optimizer": {"type": "adam"}}).method_config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"train_batch_size": 128}, "train_batch_size = 128, and batch_size is 64"),
        ({"train_micro_batch_size_per_gpu": 64}, "batch_size = 64 of 2 ranks gives each 32"),
        ({"train_micro_batch_size_per_gpu": "32"}, "train_micro_batch_size_per_gpu = 32, and"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps = 4"),
        (
            {"optimizer": {"type": "AdamW"}},
            "optimizer.type = AdamW, and the arm's optimizer is adam",
        ),
        ({"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}, "optimizer.params.lr = 0.1, and"),
        ({"optimizer": {"type": "Adam", "params": {"muon": 1}}}, "params.muon, which the arm"),
        ({"scheduler": {"type": "WarmupLR"}}, "constant step size"),
        ({"gradient_clipping": 1.0}, "gradient_clipping = 1.0"),
        ({"fp16": {"enabled": True}}, "fp16.enabled = true, and method = deepspeed_zero2 is fp32"),
        ({"zero_optimization": {"stage": 3}}, "stage = 3, and method = deepspeed_zero2 is stage 2"),
        ({"zero_optimization": []}, "must be a table"),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "offload_param.device = cpu"),
        ({"tensorboard": {"enabled": True}}, "has tensorboard, which dualml does not hand on"),
    ],
)
def test_contradictions_are_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, ValidationError)) as caught:
        arm(config)
    assert message in str(caught.value)


def test_all_contradictions_are_named_at_once() -> None:
    with pytest.raises((UserError, ValidationError)) as caught:
        arm({"train_batch_size": 1, "gradient_clipping": 1.0})
    assert "train_batch_size = 1" in str(caught.value)
    assert "gradient_clipping = 1.0" in str(caught.value)


@pytest.mark.parametrize("method", ["ddp", ""])
def test_methods_without_one_refuse_it(method: str) -> None:
    with pytest.raises((UserError, ValidationError), match="deepspeed_zero1, deepspeed_zero2"):
        arm(AGREES, method=method)


def test_a_lower_precision_is_that_of_the_method() -> None:
    bf16 = {"method": "deepspeed_bf16"}
    assert arm({"bf16": {"enabled": True}}, **bf16).method_config
    with pytest.raises((UserError, ValidationError), match=r"bf16.enabled = false"):
        arm({"bf16": {"enabled": False}}, **bf16)


def test_a_file_is_found_beside_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(AGREES))
    (tmp_path / "own.toml").write_text(
        'name = "own"\nmodel = "softmax"\ntitle = { en = "x" }\ndata = { name = "digits" }\n'
        '[arms.zero]\nmethod = "deepspeed_zero2"\nworld_size = 2\nbatch_size = 64\n'
        'optimizer = { name = "adam", lr = 0.001 }\nmethod_config = "ds.json"\n'
    )
    assert load(str(tmp_path / "own.toml")).arms["zero"].method_config == AGREES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "must be an object"),
        (b" " * (MAX_CONFIG_BYTES + 1), "bytes"),
        (None, "ds.json"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "ds.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_config(path)


def test_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UserError):
            read_config(path)
