"""Seconds of one micro-batch in a layer, and in the output layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import PrecisionBytes, TrainingEngine
from dualml.planning.planner.layer_messages import message_seconds
from dualml.planning.planner.layer_products import (
    LayerProduct,
    attention_seconds,
    cast_seconds,
    product_seconds,
    three_passes,
)
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import RECOMPUTE_FULL, layer_activations
from dualml.planning.planner.shape import Shape

#: Columns of a layout that the seconds of a layer and of the output layer depend on.
LAYER_COLUMNS = ("micro", "tp", "cp", "sp", "recompute", "ep", "etp", "schedule")
OUTPUT_COLUMNS = ("micro", "tp", "cp")

#: Odd multiplier of a hash with 64 bits (Knuth 1998, section 6.4: the golden ratio).
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one micro-batch in a layer or in the output layer, forward and backward.

    Attributes:
        products, traffic, recompute, tensor, launches: parts, as in `UpdateSeconds`.
        forward: seconds of the forward pass, included in the parts.
        weights: seconds of the products that give gradients of weights, included in ``products``.
    """

    products: Any
    traffic: Any
    recompute: Any
    tensor: Any
    launches: Any
    forward: Any
    weights: Any

    @property
    def parts(self) -> dict[str, Any]:
        """Part → seconds."""
        names = ("products", "traffic", "recompute", "tensor", "launches")
        return {name: getattr(self, name) for name in names}

    @property
    def total(self) -> Any:
        """Sum over all parts, in seconds."""
        return sum(self.parts.values())

    @property
    def backward(self) -> Any:
        """Seconds of the backward pass, with recomputation."""
        return self.total - self.forward


def layer_seconds(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool,
    engine: TrainingEngine,
) -> LayerSeconds:
    """Return the seconds of one micro-batch in a layer of each layout.

    Of the layouts with equal `LAYER_COLUMNS` only one is computed.
    """
    rows, index = distinct_rows(x, LAYER_COLUMNS)
    work = _layer_seconds(shape, x.select_rows(rows), cluster, precision, fused, engine)
    return _repeat_rows(work, len(rows), index)


def distinct_rows(x: Layouts, columns: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the indices of the first rows that differ in some of the columns, and for every row
    which of these it equals. Rows are sorted by a hash of the columns; if two different ones
    collide, every row is its own."""
    code = np.zeros(len(x), np.uint64)
    for name in columns:
        code = code * MULTIPLIER + getattr(x, name).astype(np.uint64)
    _, rows, index = np.unique(code, return_index=True, return_inverse=True)
    for name in columns:
        column = getattr(x, name)
        if not np.array_equal(column[rows][index], column):
            return np.arange(len(x)), np.arange(len(x))
    return rows, index


def _repeat_rows(work: LayerSeconds, count: int, index: Any) -> LayerSeconds:
    """Return the seconds of every row from those of ``count`` distinct ones; ``index`` says which
    of these each row equals."""
    return replace(work, **{key: np.broadcast_to(v, count)[index] for key, v in vars(work).items()})


def _layer_seconds(
    shape: Shape,
    x: Layouts,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool,
    engine: TrainingEngine,
) -> LayerSeconds:
    """Return the seconds of one micro-batch in a layer, without sharing equal rows."""
    tokens = x.micro * (shape.sequence / x.cp)
    matrices = product_seconds(shape, x, tokens, cluster, precision)
    scores = attention_seconds(shape, x, tokens, cluster, precision, fused)
    moved = cluster.reached.traffic * cluster.software.moves / cluster.bandwidth
    everything, _ = layer_activations(shape, x, precision, fused, engine)
    bare, _ = layer_activations(shape, x, precision, True, engine)
    again = np.choose(
        x.recompute,
        [
            np.zeros(len(x)),
            scores.forward + (everything - bare) * moved,
            matrices.forward + scores.forward + everything * moved,
            # Every second product of PyTorch's selective checkpoints, and all that lies between.
            matrices.forward / 2 + everything * moved,
        ],
    )
    traffic = 3 * everything * moved + cast_seconds(shape, x, tokens, cluster)
    products = matrices + scores
    tensor, ahead = message_seconds(
        shape, x, tokens, cluster, precision, matrices.total, scores.total
    )
    passes = 3 + (x.recompute == RECOMPUTE_FULL)
    host = cluster.reached.launch * cluster.software.kernels * passes
    launches = np.maximum(host - (products.total + traffic + again + tensor), 0.0)
    forward = products.forward + traffic / 3 + ahead + launches / passes
    return LayerSeconds(products.total, traffic, again, tensor, launches, forward, products.weights)


def output_seconds(
    shape: Shape, x: Layouts, cluster: Cluster, precision: PrecisionBytes, engine: TrainingEngine
) -> LayerSeconds:
    """Return the seconds of one micro-batch in the output layer, forward and backward: products in
    16 bits, and the logits in float32."""
    rows, index = distinct_rows(x, OUTPUT_COLUMNS)
    work = _output_seconds(shape, x.select_rows(rows), cluster, precision, engine)
    return _repeat_rows(work, len(rows), index)


def _output_seconds(
    shape: Shape, x: Layouts, cluster: Cluster, precision: PrecisionBytes, engine: TrainingEngine
) -> LayerSeconds:
    """Return the seconds of one micro-batch in the output layer, without sharing equal rows."""
    split = np.where(engine.splits_embedding, x.tp, 1)
    tokens = x.micro * (shape.sequence / x.cp)
    products = three_passes(
        cluster.wide_products,
        LayerProduct(tokens, shape.vocabulary / split, shape.hidden),
        precision.element,
        precision,
    )
    logits = 4.0 * shape.vocabulary * tokens / split
    traffic = 3 * logits * cluster.reached.traffic / cluster.bandwidth
    zero = np.zeros(len(x))
    forward = products.forward + traffic / 3
    return LayerSeconds(products.total, traffic, zero, zero, zero, forward, products.weights)
