"""A layout as a YAML file of MindSpore Transformers (MindFormers).

Option names: mindspore-lab/mindformers, configs/README.md, configs/qwen3 and research/telechat2;
the batch as in mindformers/trainer/base_trainer.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dualml.common.json_types import JsonMapping
from dualml.planning.exports.options import (
    ExportedOption,
    ExportedOptions,
    header_lines,
    sharded_ranks,
    stage_sizes,
)
from dualml.planning.planner.plan_request import PlanRequest

VERSION = "MindSpore Transformers (MindFormers) v1.6"
PARALLEL, CONFIG, MODEL = "parallel", "parallel_config", "model.model_config"


def render_mindformers(request: PlanRequest, layout: JsonMapping) -> str:
    """Return the text of a YAML file with a commented line for each of MindFormers' options for a
    layout, a row of `Layouts.describe`."""
    out = ExportedOptions()
    _add_batch(out, layout)
    _add_mesh(out, request, layout)
    _add_sharding(out, layout)
    _add_recomputation(out, layout)
    _add_model(out, request, layout)
    lines = [f"# {line}" for line in header_lines(VERSION, request, layout, out.left_out)]
    written: tuple[str, ...] = ()
    for section, options in out.sections():
        path = tuple(filter(None, section.split(".")))
        common = 0
        while common < min(len(path), len(written)) and path[common] == written[common]:
            common += 1
        lines += [f"{'  ' * depth}{key}:" for depth, key in enumerate(path) if depth >= common]
        lines += _lines(options, len(path))
        written = path
    return "\n".join([*lines, ""])


def _lines(options: list[ExportedOption], depth: int) -> Iterator[str]:
    """Yield the lines of the options of one section, with aligned comments."""
    words = [f"{'  ' * depth}{option.name}: {json.dumps(option.value)}" for option in options]
    width = max(map(len, words))
    for word, option in zip(words, options, strict=True):
        yield f"{word:<{width}}  # {option.meaning}"


def _add_batch(out: ExportedOptions, layout: JsonMapping) -> None:
    """Add to ``out`` the micro-batch and the accumulation steps: 1 with a pipeline, whose number of
    micro-batches stands beside the mesh."""
    piped, m = layout["pp"] > 1, layout["micro_batches"]
    out.add("use_parallel", True, "more than one device")
    out.add("batch_size", layout["micro"], "sequences of a micro-batch", "runner_config")
    steps = 1 if piped else m
    out.add(
        "gradient_accumulation_steps",
        steps,
        "the pipeline has its micro-batches" if piped else "micro-batches of an update",
        "runner_config",
    )


def _add_mesh(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` the mesh, and sentences about what of it cannot be expressed."""
    out.add("data_parallel", layout["dp"], "dp: replicas", CONFIG)
    out.add("model_parallel", layout["tp"], "tp: devices that share every layer", CONFIG)
    out.add("pipeline_stage", layout["pp"], "pp: pipeline stages", CONFIG)
    out.add("context_parallel", layout["cp"], "cp: devices that share a sequence", CONFIG)
    if layout["pp"] > 1:
        out.add("micro_batch_num", layout["micro_batches"], "micro-batches of an update", CONFIG)
    out.add("use_seq_parallel", layout["sp"], "sp: tp shares the sequence, too", CONFIG)
    out.add("vocab_emb_dp", False, "tp devices share the table of words", CONFIG)
    if request.shape.experts:
        out.add("expert_parallel", layout["ep"], "ep: devices that share the experts", CONFIG)
        if layout["etp"] != layout["tp"]:
            out.leave_out(f"etp {layout['etp']}: experts are split by model_parallel")
    if layout["pp"] > 1 and layout["micro_batches"] < layout["pp"]:
        out.leave_out(
            f"{layout['micro_batches']} micro-batches for {layout['pp']} stages: MindFormers wants "
            "as many as stages"
        )


def _add_sharding(out: ExportedOptions, layout: JsonMapping) -> None:
    """Add to ``out`` how replicas shard the optimizer, and the pipeline's schedule."""
    zero, ranks, place = (
        layout["zero"],
        sharded_ranks(layout),
        f"{PARALLEL}.parallel_optimizer_config",
    )
    out.add("parallel_mode", 1, "semi-automatic: the mesh below", PARALLEL)
    out.add(
        "enable_parallel_optimizer",
        zero > 0,
        f"ZeRO over {ranks} devices" if zero else "every replica holds all states",
        PARALLEL,
    )
    out.add("full_batch", True, "every device loads the whole batch", PARALLEL)
    if layout["chunks"] > 1:
        where = f"{PARALLEL}.pipeline_config"
        out.add("pipeline_interleave", True, "stages of a device alternate", where)
        out.add("pipeline_scheduler", "1f1b", "order of micro-batches", where)
    elif layout["schedule"] != "1f1b":
        out.leave_out(f"the schedule {layout['schedule']}")
    if zero:
        out.add("gradient_accumulation_shard", zero >= 2, "gradients are sharded, too", place)
    if zero and layout["replicate"] > 1:
        out.add("optimizer_weight_shard_size", ranks, "devices that shard one copy", place)
    if zero == 3:
        out.leave_out(
            "ZeRO-3: weights are sharded by the parallel optimizer and gathered for each step; set "
            "parallel_optimizer_comm_recompute to gather them again for the backward pass"
        )


def _add_recomputation(out: ExportedOptions, layout: JsonMapping) -> None:
    """Add to ``out`` the options of recomputation."""
    kind, place = layout["recompute"], "recompute_config"
    if kind == "operations":
        out.leave_out("recomputation by operations, which is PyTorch's")
    out.add("recompute", kind == "full", "whole layers", place)
    out.add("select_recompute", kind == "selective", "attention only", place)
    out.add(
        "parallel_optimizer_comm_recompute",
        layout["zero"] == 3 and layout["reshard"],
        "weights are gathered again for the backward pass",
        place,
    )
    out.add("mp_comm_recompute", kind == "full", "messages of tp are sent again", place)


def _add_model(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` the sizes of the model, the type of products, interleaving, and stages of
    different sizes."""
    shape = request.shape
    out.add("seq_length", shape.sequence, "tokens of a sequence", MODEL)
    out.add("hidden_size", shape.hidden, "model", MODEL)
    out.add("num_hidden_layers", shape.layers, "model", MODEL)
    out.add("num_attention_heads", shape.heads, "model", MODEL)
    out.add("num_key_value_heads", shape.kv_heads, "heads of keys and values", MODEL)
    out.add("intermediate_size", shape.ffn, "width inside the feed-forward part", MODEL)
    out.add("vocab_size", shape.vocabulary, "model", MODEL)
    out.add("tie_word_embeddings", shape.tied, "whether the output layer is the embedding", MODEL)
    out.add("use_flash_attention", request.fused, "whether attention keeps its scores", MODEL)
    kinds = {"fp32": "float32", "tf32": "float32", "fp16": "float16"}
    low = kinds.get(request.precision, "bfloat16")
    out.add("compute_dtype", low, "type of products", MODEL)
    if request.precision == "fp8":
        out.leave_out("products in FP8")
    if layout["chunks"] > 1:
        out.add("pp_interleave_num", layout["chunks"], "v: stages on a device", MODEL)
    sizes = stage_sizes(request, layout)
    if len(set(sizes)) > 1:
        least = shape.layers // layout["pp"]
        beyond = [size - least for size in sizes]
        out.add("offset", beyond, f"layers of each stage beyond {least}", MODEL)
