"""Units of a model, padded so that the ranks divide them; what is held and moved in closed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.aggregation.buckets import BUCKET_BYTES, layout
from dualml.backend import Array, Arrays, Segment
from dualml.backend.shard import largest, spans
from dualml.model.base import Shape
from dualml.model.layers import Branch
from dualml.model.spec import ModelSpec
from dualml.precision import Stack, through
from dualml.zero.settings import Sharding


@dataclass(frozen=True)
class Unit:
    """Consecutive layers whose parameters lie in one vector.

    Attributes:
        layers: which of the model's.
        shapes: canonical name → shape of their parameters, in order.
        length: elements of the vector: so many that the ranks divide it.
    """

    layers: slice
    shapes: dict[str, Shape]
    length: int

    @property
    def size(self) -> int:
        """Elements of the parameters, without padding."""
        return sum(map(math.prod, self.shapes.values()))

    def named(self, vector: Array) -> Arrays:
        """Canonical name → copy of its part of the vector."""
        return {
            name: vector[start:stop].reshape(self.shapes[name]).copy()
            for name, (start, stop) in spans(list(self.shapes), self.shapes).items()
        }

    def vector(self, named: Mapping[str, Array], dtype: Any) -> Array:
        """The vector, padded, of type ``dtype``, of ``named`` arrays among which are those of the
        unit."""
        vector = np.zeros(self.length, dtype)
        for name, (start, stop) in spans(list(self.shapes), self.shapes).items():
            vector[start:stop] = np.ravel(named[name])
        return vector


#: In so many units a model falls, or nearly, where nobody says how much makes one.
UNITS = 8


def units_of(spec: ModelSpec, bucket_bytes: int | None, n: int) -> list[Unit]:
    """The units of a model for ``n`` ranks: layers in buckets, each layer whole in one of them.
    Those without parameters go with the layer before them, but a branch with what it surrounds.
    What several layers share is in the unit of the one that it is named after.

    Args:
        spec: the model.
        bucket_bytes: bytes of a unit, as `dualml.aggregation.buckets.layout` takes them; None: an
            eighth of the model, but no more than a bucket of plain data parallel training; what
            lies between a branch and its merge, which may be computed again, stays whole, and so
            does a model that has to stay `together`.

    Example:
        >>> from dualml.model import model
        >>> [(list(unit.shapes), unit.size, unit.length)
        ...  for unit in units_of(model("softmax"), 0, 4)]
        [(['fc.weight', 'fc.bias'], 7850, 7852)]
    """
    own = {
        name: {
            f"{name}.{leaf}": shape
            for leaf, shape in layer.parameters().items()
            if layer.holder(name, leaf) == name
        }
        for name, layer in spec.layers
    }
    sizes = {name: (sum(map(math.prod, p.values())),) for name, p in own.items() if p}
    position = {name: i for i, (name, _) in enumerate(spec.layers)}
    if bucket_bytes is None:
        limit = min(BUCKET_BYTES, -(-spec.nbytes() // UNITS))
        goes_on = [depth > 0 for depth in spec.depth().values()]
    else:
        limit = bucket_bytes
        goes_on = [isinstance(layer, Branch) for _, layer in spec.layers]
    starts = {0}
    for bucket in layout(sizes, limit)[1:]:
        start = position[bucket[0]]
        while goes_on[start - 1]:
            start -= 1
        starts.add(start)
    units = []
    for start, stop in itertools.pairwise([*sorted(starts), len(spec.layers)]):
        names = [name for name, _ in spec.layers[start:stop]]
        shapes = {full: shape for name in names for full, shape in own[name].items()}
        size = sum(map(math.prod, shapes.values()))
        units.append(Unit(slice(start, stop), shapes, -(-size // n) * n))
    if bucket_bytes is None and together(spec, units):
        return units_of(spec, spec.nbytes(), n)
    return units


def together(spec: ModelSpec, units: Sequence[Unit]) -> str:
    """What forbids to compute the units one by one, in words; empty if nothing does."""
    if shared := shared_across(spec, units):
        return f"{shared[1]} and {shared[0]}, which share parameters"
    if spec.padded and len(units) > 1:
        return "layers that pass over padding, which only the first of them is given"
    return ""


def shared_across(spec: ModelSpec, units: Sequence[Unit]) -> tuple[str, str] | None:
    """A layer, and the one in another unit whose parameters it shares; None if there is none."""
    unit = {name: number for number, one in enumerate(units) for name, _ in spec.layers[one.layers]}
    for name, layer in spec.layers:
        if unit[layer.holder(name)] != unit[name]:
            return name, layer.holder(name)
    return None


def segments_of(spec: ModelSpec, cuts: Sequence[slice], lower: bool) -> list[Segment]:
    """The model in these parts, for one rank.

    Args:
        lower: whether it is trained in a lower precision.
    """
    depths, segments = {-1: 1}, list[Segment]()
    stack: Stack = (False,)
    for at, depth in enumerate(spec.depth().values()):
        depths[at] = depth + 1
    for cut in cuts:
        layers = spec.layers[cut]
        before: Stack = stack if lower else (False,) * depths[cut.start - 1]
        segments.append(Segment(tuple(layers), depths[cut.start - 1], {}, before))
        for _, layer in layers:
            stack = through(layer, stack)
    return segments


@dataclass(frozen=True)
class Held:
    """Of one rank, elements.

    Attributes:
        weights, gradients, state: kept from update to update; the state with the float32 weights
            where ``weights`` and ``gradients`` are of a lower type.
        gathered: of the largest unit, what is there for a moment: its whole gradient, before the
            ranks have added it up, and in stage 3 its whole weights. With overlap of two units, the
            largest of those that lie in either of two rooms.
    """

    weights: int
    gradients: int
    state: int
    gathered: int


def held(
    units: Sequence[Unit], n: int, stage: int, slots: int, rooms: int = 1, lower: bool = False
) -> Held:
    """With Ψ elements in all units, padding included, and k slots of the optimizer: Ψ + Ψ + kΨ/N in
    stage 1, Ψ + (1 + k)Ψ/N in stage 2, (2 + k)Ψ/N in stage 3.

    Args:
        lower: as `Sharding.lower`; the state is (1 + k)Ψ/N then.

    Source: Rajbhandari et al. 2020, section 5; with k = 2 and numbers of 4 bytes 8Ψ + 8Ψ/N,
    4Ψ + 12Ψ/N and 16Ψ/N; with weights and gradients of 2 bytes 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N and 16Ψ/N.
    """
    whole = sum(unit.length for unit in units)
    most = sum(largest([unit.length for unit in units], rooms))
    part = whole // n
    return Held(
        weights=part if stage == 3 else whole,
        gradients=whole if stage == 1 else part,
        state=(slots + lower) * part,
        gathered=(stage > 1) * most + (stage > 2) * most,
    )


def moved(units: Sequence[Unit], n: int, sharding: Sharding, chunks: int = 1) -> int:
    """Elements that each rank sends in an update, and receives, in collectives around a ring.

    Once (N − 1)/N · Ψ for the sum of the gradients, in stages 2 and 3 for that of every chunk;
    once for the weights after the update, in stage 3 twice for those of every chunk: before its
    forward and before its backward pass. Not again what is there: a backward pass begins with the
    units that the forward pass ended with, and the next chunk's forward pass with those that the
    backward pass ended with; one unit, with overlap two. An all-reduce in place of a reduce-scatter
    moves twice as much; broadcasts by all ranks move what an all-gather moves.

    Source: Rajbhandari et al. 2020, section 7: 2Ψ, 2Ψ and 3Ψ for many ranks.
    """
    lengths = [unit.length for unit in units]
    whole, rooms = sum(lengths), sharding.rooms
    sums = (2 if sharding.reduce == "all_reduce" else 1) * (1 if sharding.stage == 1 else chunks)
    weights = whole
    if sharding.stage == 3:
        weights = (2 * whole - sum(lengths[-rooms:])) * chunks - sum(lengths[:rooms]) * (chunks - 1)
    return (whole * sums + weights) // n * (n - 1)
