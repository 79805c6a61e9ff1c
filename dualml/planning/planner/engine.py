"""Training engines: what they save of a layer and how they split it, relative to Megatron-LM's
formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dualml.parallel.memory import StateMemory
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape


@dataclass(frozen=True)
class PrecisionBytes(StateMemory):
    """Bytes per parameter, and per ``element`` of an activation. The state is Adam's two moments,
    and in mixed precision a third copy, the float32 weights (Rajbhandari et al. 2020, section
    3.1)."""

    element: int


PRECISIONS: Mapping[str, PrecisionBytes] = {
    "mixed": PrecisionBytes(2, 2, 12, 2),
    "fp32": PrecisionBytes(4, 4, 8, 4),
}


class TrainingEngine:
    """Megatron-LM, as Korthikanti et al. 2022 count it. Numbers are per position of a sample.

    Attributes:
        name: name on the command line.
        precisions: name → bytes.
        fused: whether attention never saves its scores.
        splits_embedding: whether tensor-parallel devices split the embedding table.
        mask_bytes: bytes per element of a dropout mask.
        keeps_recomputed_masks: whether the masks of recomputed layers are saved.
    """

    name = "megatron"
    precisions = PRECISIONS
    fused = False
    splits_embedding = True
    mask_bytes = 1
    keeps_recomputed_masks = False

    def can_train(self, x: Layouts) -> Any:
        """Return a bool array, for each layout whether the engine can train it: Megatron-LM all of
        them."""
        return np.ones(len(x), bool)

    def recompute_inputs(self, tp: Any) -> Any:
        """Return how many vectors of the model's width are saved of a fully recomputed layer: 1,
        for each entry of the array ``tp``."""
        return np.ones_like(tp)

    def first_layer_savings(self, shape: Shape, x: Layouts) -> Any:
        """Return how many of the vectors of `recompute_inputs` are not saved of the first layer:
        0."""
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

    def can_train(self, x: Layouts) -> Any:
        """Return a bool array, for each layout whether dualml can train it.

        ZeRO-2 and 3 shard whole layers, so they exclude tensor and pipeline parallelism; dualml
        does not lay out sequence and context parallelism or interleaved stages as the planner does.
        """
        plain = (x.cp == 1) & (x.sp == 0) & (x.chunks == 1)
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

    def norm_elements(self, shape: Shape) -> int:
        """Return the elements that a norm saves per position in addition to its input and output:
        mean and deviation of LayerNorm, or the normalised vector and the scale of RMSNorm."""
        return 2 if shape.biased else shape.hidden + 1

    def attention_elements(self, shape: Shape, tp: Any) -> Any:
        """Return the elements that attention saves per position in addition to queries, keys,
        values and its output, over all ``tp`` devices: the logarithm of each row's sum, and rotated
        queries and keys. With grouped queries, queries, keys and values of every head replace the
        inputs."""
        several = (shape.kv_heads > tp) & (shape.kv_heads < shape.heads)
        turned = 0 if shape.learned_positions else shape.queries + shape.keys
        copies = np.where(several, 2 * (shape.queries - shape.keys), turned)
        return shape.heads + copies

    def gate_elements(self, shape: Shape) -> int:
        """Return the elements that SwiGLU saves per position in addition to its inputs and output,
        g · σ(g); 0 without a gate."""
        return shape.ffn if shape.gated else 0


MEGATRON, DUALML = TrainingEngine(), DualmlEngine()
ENGINES: Mapping[str, TrainingEngine] = {engine.name: engine for engine in (MEGATRON, DUALML)}
