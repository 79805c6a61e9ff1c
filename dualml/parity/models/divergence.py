"""Locate the first difference of two traces: the array, its module, the deviating side."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dualml.experiment.comparison import FirstDivergence, Note
from dualml.parity.diffs.lookup import entries_for_error
from dualml.parity.models.gap import TensorDistance, has_nan, largest_differences
from dualml.parity.models.layers import module_name
from dualml.parity.models.trace import OUTPUT
from dualml.parity.models.trace_comparison import TraceComparison


def module_and_type(pair: TraceComparison, spot: TensorDistance) -> tuple[str, str]:
    """Return name and type of the module, on the first side, that a distance belongs to; the type
    is empty if it is unknown."""
    forward, parameter = spot.phase == "forward", spot.tensor.rpartition("/")[2]
    name = module_name(spot.tensor) if forward else parameter.rpartition(".")[0]
    return name, pair.a.modules.get(name, "")


def make_divergence(
    pair: TraceComparison, spot: TensorDistance, stray: TensorDistance
) -> FirstDivergence:
    """Return the divergence that begins at distance ``spot`` and first exceeds the margin at
    ``stray``; both may be the same."""
    layer, kind = module_and_type(pair, spot)
    arrays = spot.arrays
    shapes = tuple(a.shape for a in arrays) if arrays else None
    elements = largest_differences(*arrays, pair.sides) if arrays else []
    return FirstDivergence(
        step=spot.step,
        phase=spot.phase,
        layer=layer,
        type=kind,
        tensor=spot.tensor,
        other=spot.other,
        kind=spot.kind,
        distance=spot.distance,
        envelope=spot.envelope,
        shapes=shapes,
        elements=tuple(elements),
        side=deviating_side(pair, spot),
        outside=None
        if spot is stray
        else {"phase": stray.phase, "tensor": stray.tensor, "ratio": stray.ratio},
    )


def deviating_side(pair: TraceComparison, spot: TensorDistance) -> str:
    """Return the name of the side that has the NaN, that does not train the parameter, or that
    alone has it; empty for other kinds of distances."""
    if spot.kind == "nan" and (arrays := spot.arrays) is not None:
        return pair.sides[0] if has_nan(arrays[0]) else pair.sides[1]
    if spot.kind == "alone":
        return pair.sides[0] if spot.tensor in {t.name for t in pair.a.tensors} else pair.sides[1]
    if spot.kind == "trained":
        trained = {t.name: t.trained for t in pair.a.tensors}[spot.tensor]
        return pair.sides[1] if trained else pair.sides[0]
    return ""


def belongs_to(name: str, module: str) -> bool:
    """Return whether a recorded name is that of a module, of an output of it or of one inside:
    ``h.1``, ``h.1[0]`` and ``h.1.norm`` belong to ``h.1``, ``h.10`` does not."""
    rest = name.removeprefix(module)
    return name.startswith(module) and not (rest[:1].isalnum() or rest[:1] == "_")


def locate_error(pair: TraceComparison) -> FirstDivergence:
    """Return the first module that the failed side did not complete and the other side did, or the
    model's output if there is none, as a divergence of kind ``raised``; one of the two traces has
    to have raised.

    The failed side did not complete that module, but has its name if the two are partners.
    """
    failed, other = (pair.a, pair.b) if pair.a.raised else (pair.b, pair.a)
    step = len(failed.order)
    done, order = failed.order[-1], other.order[step - 1] if step <= len(other.order) else []
    forth = pair.modules if other is pair.a else {y: x for x, y in pair.modules.items()}

    def was_reached(name: str) -> bool:
        """Return whether the failed side completed a module, or has no partner for it."""
        there = forth.get(module_name(name))
        return there is None or any(belongs_to(n, there) for n in done)

    name = next((n for n in order if not was_reached(n)), OUTPUT)
    partner = forth.get(module_name(name), "")
    left, right = (partner or name, name) if failed is pair.a else (name, partner)
    return FirstDivergence(
        step=step,
        phase="forward",
        layer=left,
        type=pair.a.modules.get(left, "") or other.modules.get(module_name(name), ""),
        tensor=left,
        other=right,
        kind="raised",
        distance=float("inf"),
        envelope=0.0,
        side=pair.sides[0] if failed is pair.a else pair.sides[1],
    )


def layout_note(spot: TensorDistance) -> Note:
    """Return a note that a module's output has another shape on the other side."""
    arrays = spot.arrays
    assert arrays is not None
    x, y = arrays
    return Note("layout", {"name": spot.tensor, "a": str(x.shape), "b": str(y.shape)})


def entries_about_error(pair: TraceComparison) -> list[str]:
    """Return the names of the entries in the catalogue of known differences that fit the error that
    a side raised, or the line that built the layer."""
    failed = pair.a if pair.a.raised else pair.b
    where = locate_error(pair)
    built = failed.built.get(where.layer if failed is pair.a else where.other)
    return entries_for_error(f"{failed.raised} {'' if built is None else built.code}")


def lacks_operator(raised: str) -> bool:
    """Return whether the text of an error says that the device has no such kernel, which no change
    of the port can fix."""
    return (
        re.search(
            r"Unsupported op|[Kk]ernel select failed|kernel \S+ unregistered|"
            r"[Pp]rimitive \S+ (is )?(not registered|unregistered)|"
            r"not (currently )?implemented for|not supported on .*(CPU|device)|Select \w+ operator|"
            r"Create kernelmod for op \w+ failed",
            raised,
        )
        is not None
    )


def find_onset(
    spots: Sequence[TensorDistance], stray: TensorDistance, margin: float
) -> TensorDistance:
    """Return the distance, one of ``spots``, at which a divergence begins that exceeds the margin
    at ``stray``, another one of them.

    It goes back over the directly preceding distances of the same step that exceed a third of the
    margin: a wrong epsilon may reach nine times the rounding in its own layer and eleven in the
    next. In forward passes of correct ports no array exceeded 1.5 times; a loss, a single number
    that two kernels round, reached 4.5, so a divergence begins at the loss only if that is
    ``stray`` itself.
    """
    if stray.kind != "value":
        return stray
    at = spots.index(stray)
    while at and spots[at - 1].step == stray.step and margin / 3 < spots[at - 1].ratio:
        at -= 1
    return spots[at] if spots[at].phase != "loss" or stray is spots[at] else spots[at + 1]
