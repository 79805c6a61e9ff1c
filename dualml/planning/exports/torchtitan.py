"""A layout as a TOML file of torchtitan.

Option names: pytorch/torchtitan, v0.2.2, torchtitan/config/job_config.py; later versions configure
the same fields in Python.
"""

from __future__ import annotations

import json

from dualml.common.json_types import JsonMapping
from dualml.planning.exports.options import (
    ExportedOptions,
    header_lines,
    sharded_ranks,
    shorter_ends,
)
from dualml.planning.planner.plan_request import PlanRequest

VERSION = "torchtitan v0.2.2 (torchtitan/config/job_config.py)"
#: Name of a known model → torchtitan's model and flavor (torchtitan/models/*/__init__.py).
FLAVORS = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
}
PARALLELISM, TRAINING = "parallelism", "training"
SCHEDULES = {"1f1b": "1F1B", "zb-h1": "ZBVZeroBubble", "dualpipe": "DualPipeV"}


def render_torchtitan(request: PlanRequest, layout: JsonMapping) -> str:
    """Return the text of a TOML file with a commented line for each of torchtitan's options for a
    layout, a row of `Layouts.describe`."""
    out = ExportedOptions()
    _add_model(out, request)
    _add_training(out, request, layout)
    _add_sharding(out, layout)
    _add_mesh(out, request, layout)
    _add_memory(out, request, layout)
    lines = [f"# {line}" for line in header_lines(VERSION, request, layout, out.left_out)]
    for section, options in out.sections():
        lines += ["", f"[{section}]"]
        words = [f"{option.name} = {json.dumps(option.value)}" for option in options]
        width = max(map(len, words))
        lines += [
            f"{word:<{width}}  # {option.meaning}"
            for word, option in zip(words, options, strict=True)
        ]
    return "\n".join([*lines, ""])


def _add_model(out: ExportedOptions, request: PlanRequest) -> None:
    """Add to ``out`` the model, where torchtitan has it, else a sentence that it is left out."""
    if request.shape.name in FLAVORS:
        name, flavor = FLAVORS[request.shape.name]
        out.add("name", name, "model", "model")
        out.add("flavor", flavor, "its sizes", "model")
    else:
        out.leave_out(f"the model {request.shape.name}: set [model] name and flavor to your own")


def _add_training(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` the batch, the sequence and the precision."""
    piped = layout["pp"] > 1
    local = layout["batch"] // layout["dp"] if piped else layout["micro"]
    out.add(
        "local_batch_size",
        local,
        "sequences of a replica in an update" if piped else "sequences of a micro-batch",
        TRAINING,
    )
    out.add("global_batch_size", layout["batch"], "sequences of an update", TRAINING)
    out.add("seq_len", request.shape.sequence, "tokens of a sequence", TRAINING)
    low = "float32" if request.precision in ("fp32", "tf32") else "bfloat16"
    if request.precision == "fp16":
        out.leave_out("float16: torchtitan mixes bfloat16")
    out.add("mixed_precision_param", low, "type of products", TRAINING)
    out.add("mixed_precision_reduce", "float32", "type in which gradients are summed", TRAINING)


def _add_sharding(out: ExportedOptions, layout: JsonMapping) -> None:
    """Add to ``out`` how replicas shard states (FSDP2)."""
    zero, replicas = layout["zero"], layout["dp"]
    shards = 1 if zero == 0 else max(1, replicas // layout["replicate"])
    out.add(
        "data_parallel_replicate_degree",
        replicas // shards,
        "groups of devices that each hold a copy",
        PARALLELISM,
    )
    out.add(
        "data_parallel_shard_degree",
        shards,
        f"devices that shard states; with cp {sharded_ranks(layout)}",
        PARALLELISM,
    )
    if zero == 1:
        out.leave_out("ZeRO-1: FSDP2 shards gradients, too; this is its ZeRO-2")
    if zero:
        always = zero == 3 and layout["reshard"]
        out.add(
            "fsdp_reshard_after_forward",
            "always" if always else "never",
            "ZeRO-3 gathers weights again for the backward pass"
            if always
            else "weights are kept from the forward to the backward pass",
            PARALLELISM,
        )
    if zero == 0 and replicas > 1 and layout["tp"] * layout["pp"] * layout["cp"] > 1:
        out.leave_out("replicas without sharding beside tp, pp or cp are untested in torchtitan")


def _add_mesh(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` tensor, pipeline, context and expert parallelism."""
    tp, pp, cp, chunks = layout["tp"], layout["pp"], layout["cp"], layout["chunks"]
    out.add("tensor_parallel_degree", tp, "tp: devices that share every layer", PARALLELISM)
    if tp > 1 and not layout["sp"]:
        out.leave_out("tp without sequence parallelism: torchtitan always shares the sequence")
    out.add("context_parallel_degree", cp, "cp: devices that share a sequence", PARALLELISM)
    out.add("pipeline_parallel_degree", pp, "pp: devices of a pipeline", PARALLELISM)
    if pp > 1:
        schedule = SCHEDULES.get(layout["schedule"], "1F1B")
        if chunks > 1 and layout["schedule"] == "1f1b":
            schedule = "Interleaved1F1B"
        if layout["schedule"] not in SCHEDULES:
            out.leave_out(f"the schedule {layout['schedule']}")
        out.add("pipeline_parallel_schedule", schedule, "order of micro-batches", PARALLELISM)
        out.add(
            "pipeline_parallel_microbatch_size",
            layout["micro"],
            "sequences of a micro-batch",
            PARALLELISM,
        )
        if chunks > 1:
            out.add(
                "pipeline_parallel_layers_per_stage",
                -(-request.shape.layers // (pp * chunks)),
                f"layers of a stage, {chunks} on a device",
                PARALLELISM,
            )
        for name, less in zip(("first", "last"), shorter_ends(request, layout), strict=True):
            out.add(
                f"pipeline_parallel_{name}_stage_less_layers",
                less,
                f"layers that the {name} stage has less",
                PARALLELISM,
            )
    if request.shape.experts:
        out.add("expert_parallel_degree", layout["ep"], "ep: devices of the experts", PARALLELISM)
        out.add(
            "expert_tensor_parallel_degree",
            layout["etp"],
            "devices that share one expert",
            PARALLELISM,
        )


def _add_memory(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` recomputation and products in FP8, and sentences about the kernels that are
    not chosen here."""
    recompute = layout["recompute"]
    selective = recompute in ("selective", "operations")
    mode = "selective" if selective else recompute
    out.add("mode", mode, "what is recomputed", "activation_checkpoint")
    if selective:
        out.add("selective_ac_option", "op", "by operations", "activation_checkpoint")
    if recompute == "selective":
        out.leave_out("recomputation of attention alone: by operations is its nearest")
    if request.precision == "fp8":
        out.add("recipe_name", "tensorwise", "products in FP8", "quantize.linear.float8")
    if not request.fused:
        out.leave_out("attention that keeps its scores: torchtitan's kernels are fused")
