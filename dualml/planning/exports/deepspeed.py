"""A layout as a JSON configuration of DeepSpeed.

Option names: deepspeedai/DeepSpeed, 0.19, deepspeed/runtime/constants.py, zero/config.py,
tensor_parallel/config.py and activation_checkpointing/config.py.
"""

from __future__ import annotations

import json
from typing import Any

from dualml.common.json_types import JsonMapping
from dualml.planning.exports.options import ExportedOptions, header_lines, sharded_ranks
from dualml.planning.planner.plan_request import PlanRequest

VERSION = "DeepSpeed 0.19 (docs: config-json)"
ZERO = "zero_optimization"
#: Key whose entries DeepSpeed ignores: JSON has no comments.
COMMENTS = "_comments"


def render_deepspeed(request: PlanRequest, layout: JsonMapping) -> str:
    """Return the text of a JSON object with DeepSpeed's options for a layout (a row of
    `Layouts.describe`); what each key stands for is under ``_comments``, which DeepSpeed
    ignores."""
    out = ExportedOptions()
    _add_batch(out, layout)
    _add_sharding(out, request, layout)
    _add_rest(out, request, layout)
    values: dict[str, Any] = {}
    meanings: dict[str, str] = {}
    for option in out.options:
        table = values.setdefault(option.section, {}) if option.section else values
        table[option.name] = option.value
        meanings[".".join(filter(None, (option.section, option.name)))] = option.meaning
    about = header_lines(VERSION, request, layout, out.left_out)
    content = {COMMENTS: {"about": about, **meanings}, **values}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _add_batch(out: ExportedOptions, layout: JsonMapping) -> None:
    """Add to ``out`` the sequences of an update and of a micro-batch, and the number of
    micro-batches."""
    out.add("train_batch_size", layout["batch"], "sequences of an update")
    out.add("train_micro_batch_size_per_gpu", layout["micro"], "sequences of a micro-batch")
    out.add("gradient_accumulation_steps", layout["micro_batches"], "micro-batches of an update")


def _add_sharding(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` ZeRO's stage, hybrid sharding and overlap."""
    zero, ranks = layout["zero"], sharded_ranks(layout)
    out.add("stage", zero, f"ZeRO's stage, over {ranks} devices", ZERO)
    if zero:
        overlaps = request.cluster.overlap > 0
        out.add("overlap_comm", overlaps, "messages beside the backward pass", ZERO)
        out.add("contiguous_gradients", True, "gradients in one buffer", ZERO)
        out.add("reduce_scatter", True, "gradients are scattered, not all summed", ZERO)
    if layout["replicate"] > 1 and zero == 3:
        out.add("mics_shard_size", ranks, "devices of a group that holds one copy (MiCS)", ZERO)
    elif layout["replicate"] > 1:
        out.leave_out("groups that each hold one copy: DeepSpeed has them for ZeRO-3 (MiCS)")
    if zero == 3 and not layout["reshard"]:
        out.add(
            "stage3_max_reuse_distance",
            2 * request.shape.parameters,
            "parameters after which gathered weights are freed: all are kept",
            ZERO,
        )
    if zero >= 2 and layout["pp"] > 1:
        out.leave_out(f"ZeRO-{zero} with a pipeline: DeepSpeed's pipeline engine refuses it")


def _add_rest(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` tensor parallelism, recomputation and precision, and sentences about what is
    set in the program instead."""
    if layout["tp"] > 1:
        out.add("autotp_size", layout["tp"], "tp: devices that share a layer", "tensor_parallel")
    if layout["sp"]:
        out.leave_out("sequence parallelism beside tp: use Megatron-DeepSpeed's own options")
    if layout["cp"] > 1:
        out.leave_out(
            f"cp {layout['cp']}: Ulysses' sequence_parallel_size is set in the program, not here"
        )
    if layout["pp"] > 1:
        out.leave_out(
            f"pp {layout['pp']}: the program builds a PipelineModule(num_stages={layout['pp']})"
        )
    if layout["chunks"] > 1 or layout["schedule"] != "1f1b":
        out.leave_out("interleaved and zero-bubble stages: DeepSpeed's pipeline is 1F1B")
    if request.shape.experts:
        out.leave_out(f"ep {layout['ep']}: an argument of deepspeed.moe.layer.MoE in the program")
    if layout["recompute"] in ("selective", "operations"):
        out.leave_out("selective recomputation: a choice of the model's program")
    elif layout["recompute"] == "full":
        out.add(
            "partition_activations",
            layout["tp"] > 1,
            "what is kept of a recomputed layer is split among tp",
            "activation_checkpointing",
        )
        out.leave_out("which layers are recomputed: the program calls checkpoint for each")
    if request.precision not in ("fp32", "tf32"):
        half = "fp16" if request.precision == "fp16" else "bf16"
        out.add("enabled", True, "mixed precision with float32 master weights", half)
    if request.precision == "fp8":
        out.leave_out("products in FP8: a choice of the model's program")
    kind = "fused" if request.fused else "stored"
    out.leave_out(f"attention {kind}, and the sizes of {request.shape.name}: the model's program")
