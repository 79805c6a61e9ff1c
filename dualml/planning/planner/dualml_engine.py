"""dualml itself as a training engine: what it keeps in memory, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dualml.planning.planner.layouts import SCHEDULES, Layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.training_engine import (
    PRECISIONS,
    Overhead,
    PrecisionBytes,
    TrainingEngine,
)


class DualmlEngine(TrainingEngine):
    """dualml on PyTorch's kernels: `dualml_torch.algorithms.model.saved_activations`, written out
    for a decoder.

    In mixed precision, weights, gradients and moments stay float32 (`dualml.algorithms.precision`).
    """

    name = "dualml"
    precisions: Mapping[str, PrecisionBytes] = MappingProxyType(
        {"mixed": PrecisionBytes(4, 4, 8, 2), "fp32": PRECISIONS["fp32"]}
    )
    fused = True
    splits_embedding = False
    mask_bytes = 4
    keeps_recomputed_masks = True
    counts_gradients = False
    overhead = Overhead()

    def can_train(self, x: Layouts, shape: Shape | None = None) -> Any:
        """Return a bool array: whether dualml can train each layout, or, if ``shape`` is given, a
        model of this shape in each layout.

        ZeRO-2 and 3 shard whole layers, so they exclude tensor and pipeline parallelism; dualml
        does not lay out sequence, context and expert parallelism or interleaved stages as the
        planner does, and splits heads of keys and values without copying them. It has no
        zero-bubble schedule and no hybrid sharding; ZeRO-3 always gathers weights again for the
        backward pass.
        """
        plain = (x.cp == 1) & (x.sp == 0) & (x.chunks == 1) & (x.ep == 1)
        plain &= (x.schedule == SCHEDULES.index("1f1b")) & (x.replicate == 1) & (x.reshard == 1)
        plain &= self.can_recompute(x)
        plain &= (shape.kv_heads if shape else x.tp) % x.tp == 0
        return plain & ((x.zero < 2) | (x.pp * x.tp == 1))

    def recompute_inputs(self, tp: Any) -> Any:
        """Return for each entry of the array ``tp`` the number of saved vectors of a fully
        recomputed layer: 2, the inputs of the two residual blocks. With tensor parallelism 6: also
        the inputs of the matrices and the outputs of the sums, so that no message is sent twice."""
        return np.where(tp > 1, 6, 2)

    def first_layer_savings(self, shape: Shape, x: Layouts) -> Any:
        """Return how many vectors less the first layer saves: 1 if the embedding is recomputed with
        the first block from the tokens, and 0 if ranks split its lookup or gather it as a unit of
        its own."""
        return np.where((x.tp > 1) | ((x.zero > 1) & (not shape.tied)), 0, 1)

    def logit_bytes(self, tp: Any) -> Any:
        """Return the bytes per logit that are counted: 4, the logits in float32."""
        return np.full_like(tp, 4)

    def norm_elements(self, shape: Shape) -> int:
        """Return the elements that a norm saves per position in addition to its input and output:
        mean and deviation of LayerNorm, or the normalised vector and the scale of RMSNorm."""
        return 2 if shape.biased else shape.hidden + 1

    def attention_elements(self, shape: Shape, tp: Any) -> Any:
        """Return the elements that attention saves per position in addition to queries, keys,
        values and its output, over all ``tp`` devices: the logarithm of each row's sum, and rotated
        queries and keys. With grouped queries, the keys and values that are repeated for every
        head are saved in place of those that were projected: only the difference is added."""
        several = (shape.kv_heads > tp) & (shape.kv_heads < shape.heads)
        turned = 0 if shape.learned_positions else shape.queries + shape.keys
        copies = np.where(several, 2 * (shape.queries - shape.keys), turned)
        return shape.heads + copies

    def gate_elements(self, shape: Shape) -> int:
        """Return the elements that SwiGLU saves per position in addition to its inputs and output,
        g · σ(g); 0 without a gate."""
        return shape.ffn if shape.gated else 0
