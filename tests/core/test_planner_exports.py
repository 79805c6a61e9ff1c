"""Planned layouts as options of the software that trains them."""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import Any

import pytest
import yaml
from test_planner_layout import make_plan

from dualml.common.errors import UserError
from dualml.planning.exports import EXPORTS, export_layout

MESH = "dp=8,pp=4,tp=4,sp=1,zero=1,micro=2"


def export(name: str, model: str = "llama3-70b", layout: str = MESH, **options: Any) -> str:
    plan = make_plan(model, layout=layout, **options)
    return export_layout(name, plan.request, plan.layouts.describe(plan.answer_row))


def megatron_words(text: str) -> dict[str, str | None]:
    """Return option → value of an exported Bash array."""
    body = text.split("MEGATRON_ARGS=(")[1].rsplit(")", 1)[0]
    values: dict[str, str | None] = {}
    for line in body.strip().splitlines():
        words = shlex.split(line, comments=True)
        values[words[0].removeprefix("--")] = words[1] if len(words) > 1 else None
    return values


def test_megatron() -> None:
    text = export("megatron", batch=512)
    values = megatron_words(text)
    assert values["tensor-model-parallel-size"] == "4"
    assert values["pipeline-model-parallel-size"] == "4"
    assert (values["micro-batch-size"], values["global-batch-size"]) == ("2", "512")
    assert {"sequence-parallel", "use-distributed-optimizer", "bf16", "swiglu"} <= set(values)
    assert {"overlap-grad-reduce", "overlap-param-gather"} <= set(values)
    assert (values["num-layers"], values["num-query-groups"]) == ("80", "8")
    assert values["attention-backend"] == "flash"
    assert "not expressed: the vocabulary" in text


def test_megatron_for_other_layouts() -> None:
    full = megatron_words(export("megatron", layout="dp=8,zero=3,recompute=full"))
    assert full["data-parallel-sharding-strategy"] == "optim_grads_params"
    assert full["recompute-granularity"] == "full"
    assert full["recompute-num-layers"] == "1"
    woven = megatron_words(export("megatron", layout="pp=4,tp=4,v=2"))
    assert woven["num-virtual-stages-per-pipeline-rank"] == "2"
    assert "use-distributed-optimizer" not in woven
    hybrid = megatron_words(export("megatron", layout="dp=8,zero=1,replicate=2"))
    assert hybrid["num-distributed-optimizer-instances"] == "2"
    plain = megatron_words(export("megatron", layout="dp=2,tp=2", overlap=0.0, attention="stored"))
    assert "overlap-grad-reduce" not in plain
    assert plain["attention-backend"] == "unfused"


def test_megatron_with_uneven_stages() -> None:
    """126 layers on 16 stages: 7 on the first and the last; 126 on 4: 31 on both; on 20 a list."""
    for pp, first in ((16, "7"), (4, "31")):
        values = megatron_words(export("megatron", "llama3-405b", f"pp={pp},tp=8"))
        assert values["decoder-first-pipeline-num-layers"] == first
        assert values["decoder-last-pipeline-num-layers"] == first
    values = megatron_words(export("megatron", "llama3-405b", "pp=20,tp=8"))
    stages = str(values["pipeline-model-parallel-layout"]).split("|")
    assert len(stages) == 20
    assert sum(int(stage.strip("EL").removeprefix("t*")) for stage in stages) == 126


def test_torchtitan() -> None:
    text = export("torchtitan", layout="dp=8,tp=4,sp=1,zero=3,micro=2,recompute=full")
    values = tomllib.loads(text)
    assert values["model"] == {"name": "llama3", "flavor": "70B"}
    assert values["training"]["local_batch_size"] == 2
    mesh = values["parallelism"]
    assert (mesh["data_parallel_shard_degree"], mesh["data_parallel_replicate_degree"]) == (8, 1)
    assert mesh["tensor_parallel_degree"] == 4
    assert mesh["fsdp_reshard_after_forward"] == "always"
    assert values["activation_checkpoint"]["mode"] == "full"
    piped = tomllib.loads(export("torchtitan", batch=512))
    assert piped["training"]["local_batch_size"] == 64
    assert piped["parallelism"]["pipeline_parallel_microbatch_size"] == 2
    assert piped["parallelism"]["fsdp_reshard_after_forward"] == "never"
    hybrid = tomllib.loads(export("torchtitan", layout="dp=8,zero=3,replicate=2"))["parallelism"]
    assert hybrid["data_parallel_replicate_degree"] == 2
    assert hybrid["data_parallel_shard_degree"] == 4
    assert "not expressed: the model gpt3-13b" in export("torchtitan", "gpt3-13b", "dp=8,zero=3")
    assert "always shares the sequence" in export("torchtitan", layout="dp=8,tp=2,zero=3")


def test_deepspeed() -> None:
    values = json.loads(export("deepspeed", layout="dp=8,tp=4,zero=2,micro=2", batch=512))
    assert values["train_batch_size"] == 512
    replicas = 512 // values["train_micro_batch_size_per_gpu"]
    assert replicas // values["gradient_accumulation_steps"] == 8
    assert values["zero_optimization"]["stage"] == 2
    assert values["zero_optimization"]["overlap_comm"] is True
    assert values["tensor_parallel"] == {"autotp_size": 4}
    said = values["_comments"]
    assert "zero_optimization.stage" in said
    assert any("program" in line for line in said["about"])
    hybrid = json.loads(export("deepspeed", layout="dp=8,zero=3,replicate=2"))
    assert hybrid["zero_optimization"]["mics_shard_size"] == 4
    piped = json.loads(export("deepspeed"))["_comments"]["about"]
    assert any("PipelineModule(num_stages=4)" in line for line in piped)


def test_mindformers() -> None:
    text = export("mindformers", batch=512)
    values = yaml.safe_load(text)
    mesh = values["parallel_config"]
    assert (mesh["data_parallel"], mesh["model_parallel"], mesh["pipeline_stage"]) == (8, 4, 4)
    product = values["runner_config"]["batch_size"] * mesh["data_parallel"]
    assert product * mesh["micro_batch_num"] == 512
    assert values["parallel"]["enable_parallel_optimizer"] is True
    assert values["parallel"]["parallel_optimizer_config"]["gradient_accumulation_shard"] is False
    assert values["model"]["model_config"]["num_hidden_layers"] == 80
    uneven = yaml.safe_load(export("mindformers", "llama3-405b", "pp=16,tp=8"))
    offset = uneven["model"]["model_config"]["offset"]
    assert sum(offset) + 16 * 7 == 126
    woven = yaml.safe_load(export("mindformers", layout="pp=4,tp=4,v=2"))
    assert woven["parallel"]["pipeline_config"]["pipeline_interleave"] is True
    assert woven["model"]["model_config"]["pp_interleave_num"] == 2


@pytest.mark.parametrize("name", EXPORTS)
def test_each_line_says_what_it_stands_for(name: str) -> None:
    text = export(name)
    if name == "deepspeed":
        values = json.loads(text)
        said = values.pop("_comments")
        for key, value in values.items():
            inner = [f"{key}.{k}" for k in value] if isinstance(value, dict) else [key]
            assert set(inner) <= set(said)
        return
    for line in text.splitlines():
        words = line.split("#")[0].strip()
        if words and not words.endswith(("(", ")", ":")) and not words.startswith("["):
            assert " # " in line, line


def test_an_unknown_export() -> None:
    with pytest.raises(UserError, match="did you mean 'megatron'"):
        export("megatrn")
