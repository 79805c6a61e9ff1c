"""Units of a model, padded to a multiple of the number of ranks; communication volume in closed
form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.algorithms.model.base import Shape
from dualml.algorithms.model.layers import Branch
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.precision import Stack, propagate_precision
from dualml.backend import Array, Arrays, Segment
from dualml.backend.shard import parameter_spans
from dualml.common.former_members import keep_former_members
from dualml.parallel.aggregation.buckets import BUCKET_BYTES, bucket_layout
from dualml.parallel.zero.settings import Sharding


@keep_former_members
@dataclass(frozen=True)
class Unit:
    """Consecutive layers whose parameters are stored in one vector.

    Attributes:
        layers: slice of the model's layers.
        shapes: canonical name → shape of their parameters, in order.
        length: elements of the vector, padded to a multiple of the number of ranks.
    """

    layers: slice
    shapes: dict[str, Shape]
    length: int

    @property
    def size(self) -> int:
        """Number of elements of all its parameters, without padding."""
        return sum(map(math.prod, self.shapes.values()))

    def unflatten(self, vector: Array) -> Arrays:
        """Return canonical name → copy of its part of a whole ``vector`` in its shape; the padding
        is dropped."""
        return {
            name: vector[start:stop].reshape(self.shapes[name]).copy()
            for name, (start, stop) in parameter_spans(list(self.shapes), self.shapes).items()
        }

    def flatten(self, named: Mapping[str, Array], dtype: Any) -> Array:
        """Return the vector of type ``dtype`` of the unit's arrays out of ``named``, padded with
        zeros; other names are ignored."""
        vector = np.zeros(self.length, dtype)
        for name, (start, stop) in parameter_spans(list(self.shapes), self.shapes).items():
            vector[start:stop] = np.ravel(named[name])
        return vector


#: Approximate default number of units of a model.
UNITS = 8


def units_of(spec: ModelSpec, bucket_bytes: int | None, n: int) -> list[Unit]:
    """Group the layers of a model into units for ``n`` ranks; every layer is in exactly one unit.

    Layers without parameters belong to the unit of the layer before them, except that a branch
    belongs to the unit of the layers that it encloses. Parameters that several layers share are in
    the unit of the layer that they are named after.

    Args:
        spec: the model.
        bucket_bytes: bytes of a unit, see `dualml.parallel.aggregation.buckets.bucket_layout`;
            None: an eighth of the model, but at most a bucket of plain data parallel training. With
            None, the layers between a branch and its merge, which may be recomputed, stay
            together, and so does a model that cannot be split into units (`unsplittable_reason`).
        n: number of ranks.

    Example:
        >>> from dualml.algorithms.model import model
        >>> [(list(unit.shapes), unit.size, unit.length)
        ...  for unit in units_of(model("softmax"), 0, 4)]
        [(['fc.weight', 'fc.bias'], 7850, 7852)]
    """
    own = {
        name: {
            f"{name}.{leaf}": shape
            for leaf, shape in layer.parameters().items()
            if layer.parameter_owner(name, leaf) == name
        }
        for name, layer in spec.layers
    }
    sizes = {name: (sum(map(math.prod, p.values())),) for name, p in own.items() if p}
    position = {name: i for i, (name, _) in enumerate(spec.layers)}
    if bucket_bytes is None:
        limit = min(BUCKET_BYTES, -(-spec.nbytes() // UNITS))
        goes_on = [depth > 0 for depth in spec.open_branches().values()]
    else:
        limit = bucket_bytes
        goes_on = [isinstance(layer, Branch) for _, layer in spec.layers]
    starts = {0}
    for bucket in bucket_layout(sizes, limit)[1:]:
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
    if bucket_bytes is None and unsplittable_reason(spec, units):
        return units_of(spec, spec.nbytes(), n)
    return units


def unsplittable_reason(spec: ModelSpec, units: Sequence[Unit]) -> str:
    """Return why these units of layers cannot be computed separately, as part of a sentence for a
    message; an empty string if they can."""
    if shared := find_shared_layer(spec, units):
        return f"{shared[1]} and {shared[0]}, which share parameters"
    if spec.needs_padding_mask and len(units) > 1:
        return "layers that pass over padding, which only the first of them is given"
    return ""


def find_shared_layer(spec: ModelSpec, units: Sequence[Unit]) -> tuple[str, str] | None:
    """Return (the first layer that shares parameters with a layer of another unit, the layer that
    the parameters are named after); None if no units share parameters."""
    unit = {name: number for number, one in enumerate(units) for name, _ in spec.layers[one.layers]}
    for name, layer in spec.layers:
        if unit[layer.parameter_owner(name)] != unit[name]:
            return name, layer.parameter_owner(name)
    return None


def make_segments(spec: ModelSpec, cuts: Sequence[slice], lower: bool) -> list[Segment]:
    """Return the model as one segment for each slice of its layers in ``cuts``, for a rank that
    holds all of it.

    Args:
        cuts: slices of the layers that follow one another, from the first layer on.
        lower: whether it is trained in mixed precision.
    """
    depths, segments = {-1: 1}, list[Segment]()
    stack: Stack = (False,)
    for at, depth in enumerate(spec.open_branches().values()):
        depths[at] = depth + 1
    for cut in cuts:
        layers = spec.layers[cut]
        before: Stack = stack if lower else (False,) * depths[cut.start - 1]
        segments.append(Segment(tuple(layers), depths[cut.start - 1], {}, before))
        for _, layer in layers:
            stack = propagate_precision(layer, stack)
    return segments


def communication_volume(units: Sequence[Unit], n: int, sharding: Sharding, chunks: int = 1) -> int:
    """Return the elements that each rank sends (and receives) in an update of ``chunks`` chunks,
    with ring collectives among ``n`` ranks.

    The gradient sum costs (N − 1)/N · Ψ once, in stages 2 and 3 once per chunk. The weights cost
    the same once after the update; in stage 3 twice per chunk, before the forward and before the
    backward pass. Resident units are not gathered again: a backward pass begins with the units that
    the forward pass ended with, and the next chunk's forward pass with those that the backward pass
    ended with (one unit, with overlap two). An all-reduce instead of a reduce-scatter doubles the
    cost of the sum; broadcasts by all ranks cost the same as an all-gather.

    Source: Rajbhandari et al. 2020, section 7: 2Ψ, 2Ψ and 3Ψ for many ranks.
    """
    lengths = [unit.length for unit in units]
    whole, rooms = sum(lengths), sharding.buffer_slots
    sums = (2 if sharding.reduce == "all_reduce" else 1) * (1 if sharding.stage == 1 else chunks)
    weights = whole
    if sharding.stage == 3:
        weights = (2 * whole - sum(lengths[-rooms:])) * chunks - sum(lengths[:rooms]) * (chunks - 1)
    return (whole * sums + weights) // n * (n - 1)
