"""DeepSpeed and PyTorch's own sharding as engines: what they keep in memory unlike Megatron-LM."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.training_engine import (
    FIXED_SEGMENTS,
    PrecisionBytes,
    TrainingEngine,
)

#: Elements of DeepSpeed's buckets by default (deepspeed/runtime/zero/config.py: reduce_bucket_size,
#: allgather_bucket_size), and parameters that ZeRO-3 keeps gathered (max_live_parameters).
BUCKET, LIVE_PARAMETERS = 500_000_000, 1_000_000_000


class DeepSpeedEngine(TrainingEngine):
    """DeepSpeed with Megatron's layers (deepspeed/runtime/zero and runtime/bf16_optimizer.py).

    FP16 keeps float32 gradients of its share beside the state. BF16 sums gradients in float32 and
    keeps those of the backward pass. The pipeline keeps the output of a stage for each micro-batch
    in flight, and the loss makes several float32 copies of the logits.
    """

    name = "deepspeed"
    precisions: Mapping[str, PrecisionBytes] = MappingProxyType(
        {
            "mixed": PrecisionBytes(2, 4, 12, 2),
            "fp16": PrecisionBytes(2, 2, 16, 2),
            "tf32": PrecisionBytes(4, 4, 8, 4),
            "fp32": PrecisionBytes(4, 4, 8, 4),
        }
    )
    raw_gradients = 2
    overhead = FIXED_SEGMENTS
    stage_copies = 1

    def logit_bytes(self, tp: Any) -> Any:
        """Return the bytes per logit where the loss's memory peaks, for each entry of the array
        ``tp``: 14, as the maximum is subtracted, and the exponential taken, in float32 copies."""
        return np.full_like(tp, 14)

    def gathered_bytes(self, unit: Any, layer: Any, precision: PrecisionBytes) -> Any:
        """Return the bytes that ZeRO-3 gathers at once: whole layers up to the limit of live
        parameters, at least the largest unit."""
        return precision.weights * np.maximum(unit, LIVE_PARAMETERS // layer * layer)

    def buffer_bytes(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes of the buckets in which ZeRO reduces gradients and gathers weights."""
        several = (x.zero > 0) & (x.zero_devices > 1)
        return np.where(several, BUCKET * (precision.gradients + precision.weights), 0.0)


class EarlierMegatronEngine(TrainingEngine):
    """Megatron-LM and its relatives on PyTorch before 2.1 (October 2023), whose allocator could not
    extend its segments."""

    overhead = FIXED_SEGMENTS


class TorchEngine(TrainingEngine):
    """PyTorch's fully sharded data parallelism (FSDP2, as torchtitan uses it) with its tensor and
    pipeline parallelism.

    The shards are float32 weights and gradients; layers are gathered in 16 bits, the next one while
    the one before computes, and their gradients reduced in float32. The loss is computed on whole
    float32 logits. Attention is fused.
    """

    name = "torch"
    precisions: Mapping[str, PrecisionBytes] = MappingProxyType(
        {
            "mixed": PrecisionBytes(2, 4, 12, 2),
            "fp16": PrecisionBytes(2, 4, 12, 2),
            "fp8": PrecisionBytes(2, 4, 12, 2),
            "tf32": PrecisionBytes(4, 4, 8, 4),
            "fp32": PrecisionBytes(4, 4, 8, 4),
        }
    )
    fused = True
    #: Attention alone is not recomputed, as its scores are never stored.
    recomputed = ("none", "full", "operations")
    stage_copies = 1

    def logit_bytes(self, tp: Any) -> Any:
        """Return the bytes per logit where the loss's memory peaks, for each entry of the array
        ``tp``: 16 bytes are the logits in 16 bits and in float32 with their probabilities and two
        gradients. A compiled loss saves some, unless tensor parallelism splits the logits."""
        return np.where(tp > 1, 16, 13)

    def whole_inputs(self, shape: Shape) -> int:
        """Return how many inputs of matrices a layer saves whole: those of attention and of the
        feed-forward part, as gathered."""
        return 2

    def kept_gradient_bytes(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes per parameter of gradients that are summed whole: stages that keep their
        weights gathered reduce gradients only after the last micro-batch."""
        several = (x.reshard == 0) & (x.micro_batches > 1)
        return np.where(several, float(precision.gradients), 0.0)

    def stored_weights(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes per parameter of the weights beside the float32 ones, which are part of
        the state in mixed precision: none, as 16-bit copies exist only while they are gathered."""
        mixed = precision.weights < precision.gradients
        return np.full(len(x), 0.0 if mixed else float(precision.weights))

    def gathered_bytes(self, unit: Any, layer: Any, precision: PrecisionBytes) -> Any:
        """Return the bytes that are gathered at once: the largest unit, the next layer, and a
        layer's gradients, as computed and in the type of their reduction."""
        gradients = (precision.weights + precision.gradients) * layer
        return precision.weights * (unit + layer) + gradients


class NanotronEngine(TrainingEngine):
    """Hugging Face's nanotron: gradients of 16 bits beside the float32 sums, operations that are
    not fused, and a loss on float32 copies of the logits."""

    name = "nanotron"
    raw_gradients = 2
    overhead = FIXED_SEGMENTS

    def logit_bytes(self, tp: Any) -> Any:
        """Return the bytes per logit where the loss's memory peaks, for each entry of the array
        ``tp``: 12, of which float32 copies without the maximum and of its exponential are 8."""
        return np.full_like(tp, 12)

    def gate_elements(self, shape: Shape) -> int:
        """Return the elements that a gate saves in addition to its two inputs and its output: its
        activation."""
        return shape.ffn if shape.gated else 0
