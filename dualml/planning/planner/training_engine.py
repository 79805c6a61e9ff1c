"""Memory that a training engine keeps, and Megatron-LM as the engine that others are relative
to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dualml.parallel.memory import StateMemory
from dualml.planning.planner.layouts import RECOMPUTATIONS, RECOMPUTED, Layouts
from dualml.planning.planner.shape import Shape

#: Codes of the recomputation settings, in the order of `layouts.RECOMPUTATIONS`.
RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_OPERATIONS = range(4)


@dataclass(frozen=True)
class PrecisionBytes(StateMemory):
    """Bytes per parameter, and per ``element`` of an activation. The state is Adam's two moments,
    and in mixed precision a third copy, the float32 weights (Rajbhandari et al. 2020, section
    3.1). ``copies`` are bytes of weights kept in the smaller type of the products."""

    element: int
    copies: int = 0


#: Bytes as Rajbhandari et al. 2020 count them, whichever engine trains.
PRECISIONS: Mapping[str, PrecisionBytes] = {
    "mixed": PrecisionBytes(2, 2, 12, 2),
    "fp32": PrecisionBytes(4, 4, 8, 4),
    "tf32": PrecisionBytes(4, 4, 8, 4),
    "fp8": PrecisionBytes(2, 2, 12, 2),
}


@dataclass(frozen=True)
class Overhead:
    """Bytes of a device that hold no tensor of the model.

    Attributes:
        context: CUDA context, with libraries and their workspaces.
        pair, group: communicator of two devices, and of more.
        fragments: bytes that the allocator reserves and does not use, per byte of tensors.
    """

    context: float = 0.0
    pair: float = 0.0
    group: float = 0.0
    fragments: float = 0.0


#: Communicators as measured on A100s with NVLink (NVIDIA/nccl, issue 964: 544 MB for two devices,
#: 688 MB for more); the context with cuBLAS's workspaces. Fragments are fitted to published
#: memories (docs/fragments.py): 0.15 to those of 2022 and of nanotron, 0.06 to those of torchtitan,
#: whose allocator extends its segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), as
#: scripts for Megatron-LM do today.
FIXED_SEGMENTS = Overhead(context=512e6, pair=544e6, group=688e6, fragments=0.15)
EXTENDED_SEGMENTS = Overhead(context=512e6, pair=544e6, group=688e6, fragments=0.06)


class TrainingEngine:
    """Megatron-LM, as Korthikanti et al. 2022 count it. Numbers are per position of a sample.

    Attributes:
        name: name on the command line.
        precisions: name → bytes, with gradients in the type in which they are summed.
        raw_gradients: bytes per parameter of gradients that the backward pass writes beside those
            that are summed, in 16-bit precisions.
        recomputed: settings of recomputation that it has.
        fused: whether attention never saves its scores.
        splits_embedding: whether tensor-parallel devices split the embedding table.
        mask_bytes: bytes per element of a dropout mask.
        keeps_recomputed_masks: whether the masks of recomputed layers are saved.
        stage_copies: copies of a stage's output held for each micro-batch in flight.
        counts_gradients: whether gradients of activations in the backward pass are counted.
        overhead: memory beside the tensors.
    """

    name = "megatron"
    #: Megatron Core, distributed optimizer: 18 bytes with float32 gradients, 6 + 12/d if d devices
    #: shard the state; 20 and 4 + 16/d with fp16 gradients. FP8 keeps the weights and their
    #: transpose in 8 bits.
    precisions: Mapping[str, PrecisionBytes] = MappingProxyType(
        {
            "mixed": PrecisionBytes(2, 4, 12, 2),
            "fp16": PrecisionBytes(2, 2, 16, 2),
            "fp8": PrecisionBytes(2, 4, 12, 2, copies=2),
            "tf32": PrecisionBytes(4, 4, 8, 4),
            "fp32": PrecisionBytes(4, 4, 8, 4),
        }
    )
    raw_gradients = 0
    recomputed: tuple[str, ...] = RECOMPUTED
    fused = False
    splits_embedding = True
    mask_bytes = 1
    keeps_recomputed_masks = False
    stage_copies = 0
    counts_gradients = True
    overhead = EXTENDED_SEGMENTS

    def can_train(self, x: Layouts, shape: Shape | None = None) -> Any:
        """Return a bool array: whether the engine can train each layout, or, if ``shape`` is given,
        a model of this shape in each layout. Megatron-LM can train all that have one of its
        settings of recomputation."""
        return self.can_recompute(x)

    def can_recompute(self, x: Layouts) -> Any:
        """Return a bool array: for each layout whether its setting of recomputation is one of
        `recomputed`."""
        return np.isin(x.recompute, [RECOMPUTATIONS.index(name) for name in self.recomputed])

    def recompute_inputs(self, tp: Any) -> Any:
        """Return how many vectors of the model's width are saved of a fully recomputed layer: 1,
        for each entry of the array ``tp``."""
        return np.ones_like(tp)

    def first_layer_savings(self, shape: Shape, x: Layouts) -> Any:
        """Return, for each layout, how many of the vectors of `recompute_inputs` are not saved for
        the first layer: 0."""
        return np.zeros_like(x.tp)

    def norm_elements(self, shape: Shape) -> int:
        """Return the elements that a norm saves in addition to its input and output: 0."""
        return 0

    def attention_elements(self, shape: Shape, tp: Any) -> Any:
        """Return the elements that attention saves in addition to queries, keys, values and its
        output, over all ``tp`` devices: 0. Its scores are counted elsewhere."""
        return np.zeros_like(tp)

    def gate_elements(self, shape: Shape) -> int:
        """Return the elements that a gate saves in addition to its two inputs and its output: 0."""
        return 0

    def logit_bytes(self, tp: Any) -> Any:
        """Return the bytes per logit where the loss's memory peaks, for each entry of the array
        ``tp``: 8, the logits, their float32 copy, which becomes the probabilities and the gradient
        in place, and the gradient in 16 bits."""
        return np.full_like(tp, 8)

    def whole_inputs(self, shape: Shape) -> int:
        """Return how many inputs of matrices, of the model's width, a layer saves whole on every
        tensor-parallel device although these share the sequence: 0, they are gathered again."""
        return 0

    def kept_gradient_bytes(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes per parameter of gradients that are summed over micro-batches before
        ZeRO-3 shards them, for each layout: 0."""
        return np.zeros(len(x))

    def stored_weights(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes per parameter of the weights that forward and backward pass read, as
        far as they are not part of the state, for each layout."""
        return np.full(len(x), float(precision.weights + precision.copies))

    def gathered_bytes(self, unit: Any, layer: Any, precision: PrecisionBytes) -> Any:
        """Return the bytes that ZeRO-3 gathers at once: one unit.

        Args:
            unit: parameters of the largest unit on a device.
            layer: parameters of a layer on a device.
        """
        return precision.weights * unit

    def buffer_bytes(self, x: Layouts, precision: PrecisionBytes) -> Any:
        """Return the bytes of the engine's own buffers, for each layout: 0."""
        return np.zeros(len(x))

    def overhead_bytes(self, x: Layouts) -> Any:
        """Return the bytes of the context and of the communicators of each layout: one for every
        axis with several devices, one for all, and one between the ends of a pipeline."""
        axes = (x.dp * x.cp, x.tp, x.pp, x.cp, x.ep, x.devices, np.where(x.pp > 1, 2, 1))
        sizes = np.stack(axes)
        each = np.where(sizes > 2, self.overhead.group, self.overhead.pair)
        return self.overhead.context + np.where(sizes > 1, each, 0.0).sum(axis=0)
