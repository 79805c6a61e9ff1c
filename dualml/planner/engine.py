"""What an engine keeps of a layer, and cuts, otherwise than the formulas of Megatron-LM have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dualml.planner.layouts import Layouts
from dualml.planner.shape import Shape


@dataclass(frozen=True)
class Precision:
    """Bytes of each parameter, and of an element of an activation.

    Args:
        weights, gradients, states: of a parameter; states are Adam's two moments, and in mixed
            precision a third copy, the float32 weights (Rajbhandari et al. 2020, section 3.1).
        element: of an activation.
    """

    weights: int
    gradients: int
    states: int
    element: int


PRECISIONS: Mapping[str, Precision] = {
    "mixed": Precision(2, 2, 12, 2),
    "fp32": Precision(4, 4, 8, 4),
}


class Engine:
    """Megatron-LM, as Korthikanti et al. 2022 count it. Numbers are of one position of a sample.

    Attributes:
        name: how the command line calls it.
        precisions: name → bytes.
        fused: whether attention never keeps its scores, whatever is asked for.
        tables: whether tensor-parallel devices share the table of words.
        mask: bytes of an element of a mask of Dropout.
        masks: whether masks are kept of what is recomputed.
    """

    name = "megatron"
    precisions = PRECISIONS
    fused = False
    tables = True
    mask = 1
    masks = False

    def trains(self, x: Layouts) -> Any:
        """Which layouts."""
        return np.ones(len(x), bool)

    def inputs(self, tp: Any) -> Any:
        """Values of the model's width that are kept of a layer that is recomputed in full."""
        return np.ones_like(tp)

    def spared(self, shape: Shape, x: Layouts) -> Any:
        """Of them, how many are not kept of the first layer."""
        return np.zeros_like(x.tp)

    def norm(self, shape: Shape) -> int:
        """Elements kept of a norm beside what goes into it and what it gives."""
        return 0

    def attention(self, shape: Shape, tp: Any) -> Any:
        """Elements that attention keeps beside queries, keys, values and what it gives, of all of
        ``tp`` devices."""
        return np.zeros_like(tp)

    def gate(self, shape: Shape) -> int:
        """Elements that a gate keeps beside its two inputs and what it gives."""
        return 0


class Dualml(Engine):
    """dualml on PyTorch's kernels: `dualml_torch.model.kept`, written out for a decoder. In a lower
    precision weights, gradients and moments stay float32 (`dualml.precision`)."""

    name = "dualml"
    precisions: Mapping[str, Precision] = MappingProxyType(
        {"mixed": Precision(4, 4, 8, 2), "fp32": PRECISIONS["fp32"]}
    )
    fused = True
    tables = False
    mask = 4
    masks = True

    def trains(self, x: Layouts) -> Any:
        """ZeRO-2 and 3 share out whole layers, so that no rank may have a part of the model;
        sequences that ranks share and interleaved stages it does not lay out as the planner."""
        plain = (x.cp == 1) & (x.sp == 0) & (x.chunks == 1)
        return plain & ((x.zero < 2) | (x.pp * x.tp == 1))

    def inputs(self, tp: Any) -> Any:
        """What goes into each of the two residual blocks; where ranks share them, also what goes
        into the matrices and what comes out of their sum: no message is sent twice."""
        return np.where(tp > 1, 6, 2)

    def spared(self, shape: Shape, x: Layouts) -> Any:
        """The embedding is recomputed with the first block, from the tokens, unless ranks share
        its lookup or gather it as a unit of its own."""
        return np.where((x.tp > 1) | ((x.zero > 1) & (not shape.tied)), 0, 1)

    def norm(self, shape: Shape) -> int:
        """LayerNorm its mean and deviation; RMSNorm what is normal, and the size."""
        return 2 if shape.biased else shape.hidden + 1

    def attention(self, shape: Shape, tp: Any) -> Any:
        """The logarithm of each row's sum; queries and keys that were turned; of several groups
        queries, keys and values of every head in place of those that came."""
        several = (shape.kv_heads > tp) & (shape.kv_heads < shape.heads)
        turned = 0 if shape.learned_positions else shape.queries + shape.keys
        copies = np.where(several, 2 * (shape.queries - shape.keys), turned)
        return shape.heads + copies

    def gate(self, shape: Shape) -> int:
        """SwiGLU: g · σ(g)."""
        return shape.ffn if shape.gated else 0


MEGATRON, DUALML = Engine(), Dualml()
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (MEGATRON, DUALML)}
