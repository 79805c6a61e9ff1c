"""Seconds of a layer's matrix products and of its attention, on one device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import PrecisionBytes
from dualml.planning.planner.kernels import FLASH_BACKWARD, ProductSpeed
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape

#: Bytes per element of an operand that is read in 16 bits and written in 8, and per element of a
#: gradient that is also written transposed.
CAST_BYTES, TRANSPOSED_CAST_BYTES = 3, 4


@dataclass(frozen=True)
class PassSeconds:
    """Seconds of kernels by pass: forward, gradients of inputs, gradients of weights."""

    forward: Any = 0.0
    inputs: Any = 0.0
    weights: Any = 0.0

    def __add__(self, other: PassSeconds) -> PassSeconds:
        return PassSeconds(
            self.forward + other.forward, self.inputs + other.inputs, self.weights + other.weights
        )

    @property
    def total(self) -> Any:
        """Sum over the passes, in seconds."""
        return self.forward + self.inputs + self.weights


class LayerProduct(NamedTuple):
    """A forward product of a layer on one device: m tokens, n outputs, k inputs.

    Attributes:
        share: share of the layers that have it, 0 to 1.
        count: number of equal products, each with m tokens.
    """

    m: Any
    n: Any
    k: Any
    share: float = 1.0
    count: Any = 1


def layer_products(
    shape: Shape, x: Layouts, tokens: Any, imbalance: float = 0.0
) -> Iterator[LayerProduct]:
    """Yield the forward products of a layer on one device, for the ``tokens`` of a micro-batch on
    it (an array, one entry per layout in ``x``). With experts on many devices, the busiest one has
    ``imbalance`` (0 … 1) more tokens than the mean."""
    h, gates = shape.hidden, 2 if shape.gated else 1
    yield from _attention_products(shape, x, tokens)
    dense = 1 - shape.moe_layers / shape.layers if shape.experts else 1.0
    if dense:
        yield LayerProduct(tokens, gates * shape.ffn / x.tp, h, dense)
        yield LayerProduct(tokens, h, shape.ffn / x.tp, dense)
    if not shape.experts:
        return
    moe, width = 1 - dense, shape.expert_width
    yield LayerProduct(tokens, shape.experts, h, moe)
    if shape.shared_experts:
        yield LayerProduct(tokens, gates * shape.shared_experts * width / x.tp, h, moe)
        yield LayerProduct(tokens, h, shape.shared_experts * width / x.tp, moe)
    # Every device computes as many tokens as it sends, if the experts are equally popular; those of
    # fewer devices even out.
    here, capacity = shape.experts / x.ep, shape.capacity or 1.0
    busiest = 1 + imbalance * (1 - 1 / x.ep)
    each = capacity * busiest * tokens * shape.experts_per_token * x.etp / x.tp / here
    yield LayerProduct(each, gates * width / x.etp, h, moe, here)
    yield LayerProduct(each, h, width / x.etp, moe, here)


def _attention_products(shape: Shape, x: Layouts, tokens: Any) -> Iterator[LayerProduct]:
    """Yield the products with attention's matrices. Devices beyond the number of key-value heads
    compute copies of them; every device compresses for latent attention."""
    h = shape.hidden
    if not shape.latent:
        pairs = (shape.keys + shape.values) / shape.kv_heads * shape.key_heads_on(x.tp)
        yield LayerProduct(tokens, shape.queries / x.tp + pairs, h)
    else:
        if shape.q_lora_rank:
            yield LayerProduct(tokens, shape.q_lora_rank, h)
        yield LayerProduct(tokens, shape.queries / x.tp, shape.q_lora_rank or h)
        yield LayerProduct(tokens, shape.kv_lora_rank + shape.rope_width, h)
        apart = shape.heads * (shape.width - shape.rope_width) + shape.attended
        yield LayerProduct(tokens, apart / x.tp, shape.kv_lora_rank)
    yield LayerProduct(tokens, h, shape.attended / x.tp)


def product_seconds(
    shape: Shape, x: Layouts, tokens: Any, cluster: Cluster, precision: PrecisionBytes
) -> PassSeconds:
    """Return the seconds of the products with a layer's matrices, forward and backward."""
    element = precision.element / cluster.chip.low_precision
    total = PassSeconds()
    for product in layer_products(shape, x, tokens, cluster.reached.imbalance):
        total += three_passes(cluster.products, product, element, precision)
    return total


def three_passes(
    speed: ProductSpeed, product: LayerProduct, element: float, precision: PrecisionBytes
) -> PassSeconds:
    """Return the seconds of a forward product and of the two products of its backward pass: one
    with the matrix, one with the inputs, whose result is added to the gradients of the
    micro-batches before."""
    m, n, k, share, count = product
    wide = precision.element
    return PassSeconds(
        share * speed.seconds(m, n, k, element, wide, count),
        share * speed.seconds(m, k, n, element, wide, count),
        share * speed.seconds(k, n, m, element, 2 * precision.gradients, count),
    )


def cast_seconds(shape: Shape, x: Layouts, tokens: Any, cluster: Cluster) -> Any:
    """Return the seconds in which a layer's inputs and output gradients are cast to the smaller
    type of the products; 0 in 16 bits."""
    if cluster.chip.low_precision <= 1:
        return 0.0
    nbytes = sum(
        each.share * each.count * each.m * (CAST_BYTES * each.k + TRANSPOSED_CAST_BYTES * each.n)
        for each in layer_products(shape, x, tokens)
    )
    return nbytes / cluster.bandwidth


def attention_seconds(
    shape: Shape,
    x: Layouts,
    tokens: Any,
    cluster: Cluster,
    precision: PrecisionBytes,
    fused: bool,
) -> PassSeconds:
    """Return the seconds of a layer's attention scores, forward and backward: by a fused kernel
    with its measured speed, or as products of each head, whose scores are stored."""
    _, each = shape.layer_flops(fused)
    flops = each * tokens / x.tp
    speed, chip = cluster.wide_products, cluster.chip
    kernels = chip.attention
    if fused and kernels:
        kernel = kernels.get(cluster.software.attention) or next(iter(kernels.values()))
        ahead, back = kernel.shares(shape.sequence / x.cp, shape.width)
        rate = cluster.wide_peak * cluster.reached.products
        return PassSeconds(flops / (rate * ahead), FLASH_BACKWARD * flops / (rate * back))
    if fused or not chip.processors:
        return PassSeconds(flops / speed.flops, 2 * flops / speed.flops)
    rows, width, e = shape.sequence / x.cp, shape.width, precision.element
    count = shape.heads / x.tp * x.micro
    scores = speed.seconds(rows, shape.sequence, width, e, count=count)
    values = speed.seconds(rows, width, shape.sequence, e, count=count)
    return PassSeconds(scores + values, scores + 3 * values)
