"""Judge patterns: deviations that stay inside of the margin in every tensor, but have one direction
in all tensors of a kind.

Rounding scatters; a wrong epsilon scales the results of all norms, and all in one direction. For
each kind (all modules of one type) the scale of each tensor is
estimated, b ≈ (1 + c) · a, and divided by the rounding that was measured there. The statistic of a
kind is the median of these ratios, that of a comparison the largest of its kinds. Of the kinds that
exceed the limit the one that was computed first is named, because the others follow from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.experiment.comparison import Note
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.divergence import make_divergence
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.layers import module_name
from dualml.parity.models.trace import OUTPUT
from dualml.parity.models.trace_comparison import TraceComparison

#: Smallest number of tensors of a kind, and of elements of a tensor, that make a pattern.
MIN_TENSORS, MIN_ELEMENTS = 3, 16
#: Smallest share of the tensors of a kind whose scales have one direction.
MIN_ONE_WAY = 0.9
#: A comparison whose statistic is larger is different. See docs/parity.md for what was measured.
PATTERN_LIMIT = 6.0
#: Elements of an array that are looked at, at equal distances.
MAX_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Pattern:
    """The tensors of one kind and their common scale.

    Attributes:
        kind: type of the modules, or name of the function.
        ratio: median of the tensors' scales, in units of the rounding envelope; it has their sign.
        tensors: distances of these tensors, in order of execution.
    """

    kind: str
    ratio: float
    tensors: tuple[TensorDistance, ...]


def judge_pattern(
    found: ModelComparison, pair: TraceComparison, spots: Sequence[TensorDistance]
) -> ModelComparison:
    """Return the comparison ``found``, whose verdict is ``equal``, unchanged; or with the verdict
    ``different`` if a pattern (see the module) is found.

    Args:
        spots: the judged distances of the comparison.
    """
    pattern = find_pattern(pair, spots)
    if pattern is None:
        return found
    first = pattern.tensors[0]
    note = Note(
        "pattern",
        {
            "n": len(pattern.tensors),
            "kind": pattern.kind,
            "ratio": f"{abs(pattern.ratio):.2g}",
            "limit": f"{PATTERN_LIMIT:g}",
        },
    )
    return replace(
        found,
        verdict="different",
        reason="pattern",
        first=make_divergence(pair, first, first),
        notes=(note, *found.notes),
        reach=(list(spots).index(first), found.reach[1]),
        outside=frozenset((one.step, one.phase, one.tensor) for one in pattern.tensors),
    )


def find_pattern(
    pair: TraceComparison, spots: Sequence[TensorDistance], limit: float = PATTERN_LIMIT
) -> Pattern | None:
    """Return the pattern that begins first in the first step's forward pass, of those whose ratio
    exceeds ``limit``; None if there is none.

    Args:
        spots: the judged distances of the comparison, all inside of the margin.
    """
    # The kinds are in the order of their first tensors.
    for kind, tensors in tensors_by_kind(pair, spots).items():
        # The scale is a part of the distance, so that most kinds need not be read again.
        if len(tensors) < MIN_TENSORS or median(one.ratio for one in tensors) <= limit:
            continue
        ratio = common_ratio(list(signed_ratios(pair, tensors)))
        if abs(ratio) > limit:
            return Pattern(kind, ratio, tuple(tensors))
    return None


def tensors_by_kind(
    pair: TraceComparison, spots: Iterable[TensorDistance]
) -> dict[str, list[TensorDistance]]:
    """Return type of a module → distances of its outputs in the first step's forward pass, without
    the model's own outputs and modules of unknown type."""
    kinds: dict[str, list[TensorDistance]] = defaultdict(list)
    for one in spots:
        forward = (one.step, one.phase, one.kind) == (1, "forward", "value")
        if forward and not one.tensor.startswith(OUTPUT):
            kinds[pair.a.modules.get(module_name(one.tensor), "")].append(one)
    kinds.pop("", None)
    return kinds


def signed_ratios(pair: TraceComparison, tensors: Iterable[TensorDistance]) -> Iterator[float]:
    """Yield the scale of each tensor (see `relative_scale`) in units of its rounding envelope;
    tensors with few elements or of other shapes are left out."""
    for one in tensors:
        x = pair.a.find_array("forward", 1, one.tensor)
        y = pair.b.find_array("forward", 1, one.other)
        if x is None or y is None or x.shape != y.shape or x.size < MIN_ELEMENTS:
            continue
        yield relative_scale(x, y) / one.envelope


def relative_scale(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return c of the least-squares fit y ≈ (1 + c) · x, over at most about `MAX_ELEMENTS`
    elements; 0 if x is zero or a number is not finite."""
    every = max(1, x.size // MAX_ELEMENTS)
    u = x.reshape(-1)[::every].astype(np.float64)
    v = y.reshape(-1)[::every].astype(np.float64)
    size = float(u @ u)
    c = float(u @ (v - u)) / size if size else 0.0
    return c if np.isfinite(c) else 0.0


def common_ratio(ratios: Sequence[float]) -> float:
    """Return the median of the ratios of a kind's tensors if at least `MIN_ONE_WAY` of them have
    one sign; 0 if they have not, or are fewer than `MIN_TENSORS`."""
    if len(ratios) < MIN_TENSORS:
        return 0.0
    positive = sum(one > 0 for one in ratios)
    one_way = max(positive, sum(one < 0 for one in ratios)) >= MIN_ONE_WAY * len(ratios)
    return float(median(ratios)) if one_way else 0.0
