"""Localisation of a divergence: update, phase, tensor, rank and elements, and the deviating
backend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.common.distance import distance
from dualml.parity.envelope import exceeds
from dualml.parity.finder.context import PHASES, ReplayContext
from dualml.parity.places import FLOOR, Distance

MAX_LISTED_ELEMENTS = 3
TRUST = 3.0


@dataclass(frozen=True)
class ReplayDistance(Distance):
    """Distance of one tensor of one rank and backend from the reference."""

    rank: int
    backend: str

    @property
    def key(self) -> str:
        """Key of the tensor in the records: ``STEP/PHASE/TENSOR``."""
        return f"{self.step}/{self.phase}/{self.tensor}"

    @property
    def ratio(self) -> float:
        """Distance divided by the rounding envelope; infinite if the distance is infinite."""
        # Infinite even if every perturbed run was: rounding cannot cause that.
        return math.inf if math.isinf(self.distance) else super().ratio


def safe_distance(a: Any, b: Any) -> float:
    """Return the `distance` of two arrays, infinite if their shapes differ."""
    return distance(a, b) if a.shape == b.shape else float("inf")


def compare_tensors(scene: ReplayContext, backend: str) -> Iterator[ReplayDistance]:
    """Yield the distance of every tensor that a backend's replay and the reference recorded, in
    execution order, each for all ranks; tensors that rank 0 of the reference lacks are left out.
    Updates are compared with the rule on the backend's own gradient; for data the envelope is 0."""
    parameters, layers = list(scene.recipe.spec.parameters()), dict(scene.recipe.spec.layers)
    flows = {
        "forward": list(layers),
        "update": parameters,
        **dict.fromkeys(("gradient", "aggregation"), parameters[::-1]),
    }
    for step in scene.steps:
        for phase in PHASES:
            start = f"{step}/{phase}/"
            names = [key[len(start) :] for key in scene.reference.ranks[0] if key.startswith(start)]
            place = {name: i for i, name in enumerate(flows.get(phase, ()))}
            for name in sorted(names, key=lambda name: place.get(name, 0)):
                key = start + name
                for rank, arrays in enumerate(scene.sides[backend].ranks):
                    if key not in scene.reference.ranks[rank] or key not in arrays:
                        continue
                    seen, right = arrays[key], scene.expected(backend, rank, key)
                    far, width = safe_distance(seen, right), rounding_envelope(scene, rank, key)
                    if phase == "data":
                        far, width = 0.0 if same_data(seen, right) else far or 1.0, 0.0
                    yield ReplayDistance(step, phase, name, far, width, rank, backend)


def rounding_envelope(scene: ReplayContext, rank: int, key: str) -> float:
    """Return the rounding envelope of a tensor.

    It is the widest of the backends' envelopes, but at most `TRUST` times the narrowest, so that a
    faulty backend does not hide its fault. With a single backend, a width that only the order of
    the samples causes is not trusted (`dualml.parity.envelope.clip_to_plain`). 0 if no backend has
    one.
    """
    sides = [side.widths[rank] for side in scene.sides.values() if key in side.widths[rank]]
    if len(sides) == 1:
        width, plain = sides[0][key], sides[0].get(f"plain {key}", sides[0][key])
        return plain if exceeds(width, plain) else width
    drawn = [widths[key] for widths in sides] or [0.0]
    return min(max(drawn), TRUST * max(min(drawn), FLOOR))


def same_data(a: Any, b: Any) -> bool:
    """Return whether two arrays of data are equal, with the same shape; floats are compared as
    float32."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        return bool(np.array_equal(a.astype(np.float32), b.astype(np.float32)))
    return bool(np.array_equal(a, b))


def execution_order(point: ReplayDistance) -> tuple[int, int]:
    """Return the position of a deviation in execution order: update, phase."""
    return point.step, PHASES.index(point.phase)


def largest_differences(seen: Any, ref: Any) -> dict[str, Any]:
    """Return which elements of a tensor differ most, up to MAX_LISTED_ELEMENTS, and what share of
    them differs.

    Returns:
        ``{"shape", "share", "largest": [{"index", "found", "expected"}]}``; ``shape`` is a list of
            the shape, or of both shapes if they differ (then ``share`` is None and nothing is
            listed); ``share`` counts the elements that differ by more than a hundredth of the
            largest difference.
    """
    if seen.shape != ref.shape:
        return {"shape": [list(seen.shape), list(ref.shape)], "share": None, "largest": []}
    a, b = seen.astype(np.float64), ref.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b)
    off = np.where(np.isfinite(off), off, np.inf)
    top: Sequence[int] = np.argsort(off, axis=None)[::-1][:MAX_LISTED_ELEMENTS].tolist()
    largest = off.max() if off.size else 0.0
    limit = largest / 100 if np.isfinite(largest) else np.finfo(np.float64).max
    return {
        "shape": [list(seen.shape)],
        "share": float((off > limit).mean()) if off.size else 0.0,
        "largest": [
            {
                "index": [int(i) for i in np.unravel_index(at, a.shape)],
                "found": float(a.flat[at]),
                "expected": float(b.flat[at]),
            }
            for at in top
            if off.flat[at] > 0
        ],
    }
