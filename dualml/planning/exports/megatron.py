"""A layout as command-line options of Megatron-LM.

Option names: NVIDIA/Megatron-LM, core_v0.19.0, megatron/training/arguments.py and the dataclasses
from which it makes options (TransformerConfig, ModelParallelConfig).
"""

from __future__ import annotations

from dualml.common.json_types import JsonMapping
from dualml.planning.exports.options import (
    ExportedOptions,
    header_lines,
    sharded_ranks,
    shorter_ends,
    stage_sizes,
)
from dualml.planning.planner.plan_request import PlanRequest

VERSION = "Megatron-LM core_v0.19.0"
STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}


def render_megatron(request: PlanRequest, layout: JsonMapping) -> str:
    """Return the text of a Bash array ``MEGATRON_ARGS`` with a commented line for each of
    Megatron-LM's options for a layout, a row of `Layouts.describe`."""
    out = ExportedOptions()
    _add_mesh(out, request, layout)
    _add_pipeline(out, request, layout)
    _add_replicas(out, request, layout)
    _add_memory(out, request, layout)
    _add_model(out, request)
    _add_experts(out, request, layout)
    lines = [f"# {line}" for line in header_lines(VERSION, request, layout, out.left_out)]
    words = [" ".join(filter(None, (f"--{o.name}", _quote(o.value)))) for o in out.options]
    width = max(map(len, words))
    body = [
        f"  {word:<{width}}  # {option.meaning}"
        for word, option in zip(words, out.options, strict=True)
    ]
    return "\n".join([*lines, "MEGATRON_ARGS=(", *body, ")", ""])


def _quote(value: object) -> str:
    """Return a value as a word of the shell, in quotes if needed; an empty text for None, a
    flag."""
    text = "" if value is None else str(value)
    return f"'{text}'" if set(text) & set("()[]|*, ") else text


def _add_mesh(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` the mesh and the batch; the number of replicas follows from the devices."""
    tp, cp = layout["tp"], layout["cp"]
    out.add("tensor-model-parallel-size", tp, "tp: devices that share every layer")
    out.add("pipeline-model-parallel-size", layout["pp"], "pp: pipeline stages")
    if cp > 1:
        out.add("context-parallel-size", cp, "cp: devices that share a sequence")
    if layout["sp"]:
        out.add("sequence-parallel", None, "sp: tp devices share the sequence outside matrices")
    out.add("micro-batch-size", layout["micro"], "sequences of a micro-batch")
    out.add(
        "global-batch-size",
        layout["batch"],
        f"sequences of an update: dp {layout['dp']} · {layout['micro_batches']} micro-batches",
    )


def _add_pipeline(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` interleaved stages, and stages of different sizes; nothing without a
    pipeline."""
    if layout["pp"] == 1:
        return
    sizes, chunks = stage_sizes(request, layout), layout["chunks"]
    if layout["schedule"] != "1f1b":
        out.leave_out(f"the schedule {layout['schedule']}: Megatron-LM has 1F1B and interleaving")
    if chunks > 1:
        out.add(
            "num-virtual-stages-per-pipeline-rank",
            chunks,
            "v: stages on a device (interleaved 1F1B)",
        )
    if len(set(sizes)) == 1 and not layout["first_layers"] and not layout["last_layers"]:
        return
    if chunks > 1:
        for name, less in zip(("embedding", "loss"), shorter_ends(request, layout), strict=True):
            if less:
                out.add(
                    f"account-for-{name}-in-pipeline-split",
                    None,
                    f"the {name} stands in for a layer of its stage",
                )
    elif len(set(sizes[1:-1])) <= 1 and len(sizes) > 2:
        for name, size in (("first", sizes[0]), ("last", sizes[-1])):
            if size != sizes[1]:
                out.add(
                    f"decoder-{name}-pipeline-num-layers",
                    size,
                    f"layers of the {name} stage; the others have {sizes[1]}",
                )
    else:
        stages = [f"t*{size}" for size in sizes]
        stages[0], stages[-1] = f"E{stages[0]}", f"{stages[-1]}L"
        out.add(
            "pipeline-model-parallel-layout",
            "|".join(stages),
            "layers of each stage, with embedding (E) and loss (L)",
        )


def _add_replicas(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` how replicas sum gradients and shard states; nothing for a single replica."""
    zero, ranks, overlaps = layout["zero"], sharded_ranks(layout), request.cluster.overlap > 0
    if layout["dp"] * layout["cp"] == 1:
        return
    if zero == 1:
        out.add("use-distributed-optimizer", None, f"ZeRO-1 over {ranks} devices")
    elif zero:
        out.add("use-megatron-fsdp", None, f"ZeRO-{zero} over {ranks} devices")
        out.add("data-parallel-sharding-strategy", STRATEGIES[zero], f"what ZeRO-{zero} shards")
        out.add("ckpt-format", "fsdp_dtensor", "the checkpoints that Megatron-FSDP requires")
    if layout["replicate"] > 1:
        out.add(
            "num-distributed-optimizer-instances",
            layout["replicate"],
            "groups of devices that each hold one sharded copy (HSDP)",
        )
    if overlaps:
        out.add("overlap-grad-reduce", None, "gradients are summed beside the backward pass")
        if zero:
            out.add("overlap-param-gather", None, "weights are gathered beside the forward pass")
    if zero == 3 and not layout["reshard"]:
        out.leave_out("weights kept after the forward pass (reshard 0): Megatron-FSDP frees them")


def _add_memory(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` recomputation, attention and precision."""
    recompute = layout["recompute"]
    if recompute == "operations":
        out.leave_out("recomputation by operations, which is PyTorch's")
    elif recompute != "none":
        out.add("recompute-granularity", recompute, "what is recomputed for the backward pass")
    if recompute == "full":
        out.add("recompute-method", "uniform", "every layer is recomputed")
        out.add("recompute-num-layers", 1, "from its own input")
    backend = "flash" if request.fused else "unfused"
    out.add("attention-backend", backend, "whether attention keeps its scores")
    if request.precision == "mixed":
        out.add("bf16", None, "mixed precision: bfloat16 with float32 master weights")
    elif request.precision == "fp16":
        out.add("fp16", None, "mixed precision: float16 with float32 master weights")
    elif request.precision == "fp8":
        out.add("bf16", None, "what is not computed in FP8")
        out.add("fp8-format", "hybrid", "products in FP8")


def _add_model(out: ExportedOptions, request: PlanRequest) -> None:
    """Add to ``out`` the sizes of the model."""
    shape = request.shape
    out.add("num-layers", shape.layers, "model")
    out.add("hidden-size", shape.hidden, "model")
    out.add("ffn-hidden-size", shape.ffn, "model")
    out.add("num-attention-heads", shape.heads, "model")
    if shape.kv_heads != shape.heads and not shape.kv_lora_rank:
        out.add("group-query-attention", None, "heads share keys and values")
        out.add("num-query-groups", shape.kv_heads, "heads of keys and values")
    if shape.width * shape.heads != shape.hidden and not shape.kv_lora_rank:
        out.add("kv-channels", shape.width, "width of a head")
    out.add("seq-length", shape.sequence, "tokens of a sequence")
    out.add("max-position-embeddings", max(shape.positions, shape.sequence), "positions")
    kind = "learned_absolute" if shape.learned_positions else "rope"
    out.add("position-embedding-type", kind, "positions")
    if shape.gated:
        out.add("swiglu", None, "gated feed-forward part")
    if not shape.biased:
        out.add("normalization", "RMSNorm", "norms without a bias")
        out.add("disable-bias-linear", None, "no biases")
    if not shape.tied:
        out.add("untie-embeddings-and-output-weights", None, "an output layer of its own")
    if not shape.dropout:
        out.add("attention-dropout", 0, "no dropout")
        out.add("hidden-dropout", 0, "no dropout")
    out.leave_out(f"the vocabulary of {shape.vocabulary:,}: it is the tokenizer's")
    if shape.parallel:
        out.leave_out("attention and feed-forward part beside each other")


def _add_experts(out: ExportedOptions, request: PlanRequest, layout: JsonMapping) -> None:
    """Add to ``out`` mixtures of experts and latent attention, if the model has them."""
    shape = request.shape
    if shape.experts:
        out.add("num-experts", shape.experts, "routed experts of a layer")
        out.add("moe-router-topk", shape.experts_per_token, "experts of a token")
        out.add("moe-ffn-hidden-size", shape.expert_ffn or shape.ffn, "width of an expert")
        if shape.shared_experts:
            out.add(
                "moe-shared-expert-intermediate-size",
                shape.shared_experts * (shape.expert_ffn or shape.ffn),
                "width of all shared experts together",
            )
        if shape.dense_layers:
            moe = shape.layers - shape.dense_layers
            out.add(
                "moe-layer-freq",
                f"([0]*{shape.dense_layers}+[1]*{moe})",
                "dense layers first, then layers with experts",
            )
        elif shape.expert_interval > 1:
            out.add("moe-layer-freq", shape.expert_interval, "every how many layers have experts")
        out.add("expert-model-parallel-size", layout["ep"], "ep: devices that share the experts")
        out.add("expert-tensor-parallel-size", layout["etp"], "devices that share one expert")
        if shape.capacity:
            out.add("moe-expert-capacity-factor", shape.capacity, "tokens that an expert accepts")
    if shape.kv_lora_rank:
        out.add("multi-latent-attention", None, "latent attention (DeepSeek-V2)")
        if shape.q_lora_rank:
            out.add("q-lora-rank", shape.q_lora_rank, "width of compressed queries")
        out.add("kv-lora-rank", shape.kv_lora_rank, "width of compressed keys and values")
        out.add("qk-head-dim", shape.width - shape.rope_width, "unrotated part of a head")
        out.add("qk-pos-emb-head-dim", shape.rope_width, "rotated part of a head")
        out.add("v-head-dim", shape.value_width or shape.width, "values of a head")
