"""Tell differences inside of a model from differences of what the model does.

Two right ports may divide one computation differently: an activation is a module of its own on one
side and part of ``Dense`` on the other. The outputs of the two modules then differ, and nothing
else does. What a step computes decides: the model's outputs, the loss and the gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dualml.experiment.comparison import Note
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.trace import OUTPUT

#: Smallest ratio to the margin of a difference that would reach some gradient if anything used it.
#: A smaller one, such as that of a wrong epsilon, may be diluted until all results are inside.
MIN_RATIO = 10.0
#: Maximum number of modules that a note names.
MAX_NAMED_MODULES = 4


def inner_differences(
    judged: Sequence[TensorDistance], outside: Collection[TensorDistance], margin: float
) -> list[TensorDistance]:
    """Return the differences in outputs of inner modules that are no differences of what the model
    does: those in steps whose results agree, and those of the same modules in later steps, where
    rounding may leave little to judge.

    In such a step outputs, loss and gradients lie inside of the margin, and at least one output or
    a loss and one gradient were judged: a value that anything uses also reaches a gradient, even
    where a small factor hides it from the output. Steps with an inner difference of at most
    `MIN_RATIO` margins do not count. A NaN of one side is a difference by itself.

    Args:
        judged: the distances of the comparison.
        outside: the distances beyond the margin.
        margin: how many rounding envelopes apart arrays still count as equal.
    """
    inner = [spot for spot in outside if is_inner(spot) and spot.kind == "value"]
    large = {spot.step for spot in inner} - {
        spot.step for spot in inner if spot.ratio <= MIN_RATIO * margin
    }
    agreeing = {step for step in large if has_agreeing_results(step, judged, outside)}
    since: dict[str, int] = {}
    for spot in inner:
        if spot.step in agreeing:
            since.setdefault(spot.tensor, spot.step)
    return [spot for spot in inner if since.get(spot.tensor, spot.step + 1) <= spot.step]


def is_inner(spot: TensorDistance) -> bool:
    """Return whether a distance is one of values or shapes of an inner module's output, not of the
    model's own."""
    inside = spot.phase == "forward" and not spot.tensor.startswith(OUTPUT)
    return inside and spot.kind in ("value", "shape")


def has_agreeing_results(
    step: int, judged: Sequence[TensorDistance], outside: Collection[TensorDistance]
) -> bool:
    """Return whether outputs, loss and gradients of a step were judged and agree, see
    `inner_differences`."""
    known = ("parameters", "forward", "loss", "gradient")
    if any(s.step == step and s.phase in known and not is_inner(s) for s in outside):
        return False
    results = [s for s in judged if s.step == step and not is_inner(s) and not s.is_unstable]
    ends = [s for s in results if s.phase == "loss" or s.tensor.startswith(OUTPUT)]
    return bool(ends) and any(s.phase == "gradient" for s in results)


def inner_note(spots: Sequence[TensorDistance]) -> Note:
    """Return a note that names inner modules whose outputs differ although the results agree."""
    names = list(dict.fromkeys(spot.tensor for spot in spots))
    shown = ", ".join(names[:MAX_NAMED_MODULES])
    more = len(names) - MAX_NAMED_MODULES
    worst = max(spot.distance for spot in spots)
    values = {"names": f"{shown}, …" if more > 0 else shown, "distance": f"{worst:.1e}"}
    return Note("inner", {"n": len(names), **values})
