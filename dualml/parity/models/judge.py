"""Judge two traces against measured rounding: equal, different (and where first), or not
comparable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.experiment.comparison import Note
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.divergence import (
    entries_about_error,
    find_onset,
    lacks_operator,
    layout_note,
    locate_error,
    make_divergence,
)
from dualml.parity.models.gap import TensorDistance, is_bit_identical
from dualml.parity.models.inner_differences import inner_differences, inner_note
from dualml.parity.models.mapping import ParameterMap, match_tensors
from dualml.parity.models.other_types import is_rounded_to_type, is_type_error, type_notes
from dualml.parity.models.partners import Pairing, apply_change
from dualml.parity.models.pattern import judge_pattern
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace
from dualml.parity.models.trace_comparison import KnownDistances, TraceComparison
from dualml.parity.places import farthest_by_phase, is_lone_kink

#: In the order of execution.
PHASES = ("parameters", "forward", "loss", "gradient", "update", "state")
MARGIN = 10.0


@dataclass(frozen=True)
class JudgingSettings:
    """Settings of a comparison of two traces.

    Args:
        margin: a distance is outside when it exceeds ``margin`` × max(envelope, 2⁻²³).
        user_map: the user's map of parameters, see `dualml.parity.models.mapping.match_tensors`.
        sides: names of the two sides.
    """

    margin: float = MARGIN
    user_map: ParameterMap | None = None
    sides: tuple[str, str] = ("torch", "mindspore")


DEFAULT_JUDGING = JudgingSettings()


def judge_traces(
    a: Trace,
    b: Trace,
    settings: JudgingSettings = DEFAULT_JUDGING,
    *,
    structure: bool = True,
    known: KnownDistances | None = None,
) -> ModelComparison:
    """Judge two traces of one plan (with the same inputs and initial weights), and return the
    comparison, without a search of causes.

    Args:
        structure: whether a trained parameter that only one side has counts as a difference, if its
            gradient in step 1 was recorded and is not zero; others are only noted.
        known: finite distances from an earlier judgement of these two traces, which are not
            measured again; it is then not checked again either whether both are of one plan. None:
            there was none.

    Raises:
        UserError: too many parameters have no partner, or the traces have different inputs or
            initial weights.
    """
    margin, sides = settings.margin, settings.sides
    a, b = align_pieces(a, b)
    pairing = match_tensors(a.tensors, b.tensors, settings.user_map, sides, b.roles, b.guesses)
    if known is None:
        check_same_plan(a, b, pairing, sides)
    steps = min(a.steps, b.steps)
    pair = TraceComparison(a, b, pairing, sides, margin, known or {})
    spots = [
        *pair.training_differences(),
        *(pair.one_sided_parameters(pairing) if structure else ()),
        *(s for step in range(1, pair.last_step + 1) for s in pair.step_distances(step)),
    ]
    notes = [*pairing_notes(pairing, sides), *pair.notes]
    make_comparison = partial(
        ModelComparison,
        sides=sides,
        margin=margin,
        tolerance=pair.tolerance,
        steps=steps,
        mapping=tuple(p.describe() for p in pairing.pairs),
        environment={side: t.environment for side, t in zip(sides, (a, b), strict=True)},
    )
    random_notes = [
        Note("random", {"side": side, **t.random})
        for side, t in zip(sides, (a, b), strict=True)
        if t.random
    ]
    if random_notes:
        return make_comparison(
            verdict="not comparable", reason="random", notes=(*random_notes, *notes)
        )
    chaos = pair.first_chaotic_step(steps)
    judged = [s for s in spots if chaos is None or s.step < chaos]
    outside = [s for s in judged if s.ratio > margin and not s.is_unstable]
    wild = [s for s in judged if s.is_unstable]
    if wild and not outside:
        moved = {"tensor": wild[0].tensor, "width": f"{wild[0].envelope:.1e}"}
        notes.append(Note("wild", {"n": len(wild), **moved}))
    raised = [(side, t.raised) for side, t in zip(sides, (a, b), strict=True) if t.raised]
    notes += [Note("raised", {"side": side, "text": text}) for side, text in raised]
    notes += [
        Note("entry", {"entry": name}) for name in (entries_about_error(pair) if raised else ())
    ]
    if inner := [] if raised else inner_differences(judged, outside, margin):
        notes.append(inner_note(inner))
        outside, judged = ([s for s in some if s not in inner] for some in (outside, judged))
    types = type_notes(pair) if any(is_type_error(text) for _, text in raised) else []
    if types:
        notes += types
        rounded = [s for s in outside if is_rounded_to_type(s, margin)]
        outside, judged = ([s for s in some if s not in rounded] for some in (outside, judged))
    # A module may return another shape as long as the results of the step agree.
    apart = {s.step for s in outside if s.is_hard and s.phase in ("parameters", "forward", "loss")}
    strays = [s for s in outside if s.is_hard or raised or s.step in apart]
    layouts = [s for s in outside if s not in strays]
    notes += [layout_note(s) for s in layouts]
    if not raised and is_lone_kink(list(strays), pair.output_layer()):
        notes, strays = [*notes, Note("kink", {"step": strays[0].step})] if strays else notes, []
    first = (
        make_divergence(pair, find_onset(judged, strays[0], margin), strays[0]) if strays else None
    )
    reach = (judged.index(strays[0]) if strays else len(judged), pair.first_unmatched_operation())
    verdict, reason = "equal", "inside_envelope"
    if len(raised) == 2:
        verdict, reason = "not comparable", "both_raised"
    elif first is not None and first.kind == "both_nan":
        verdict, reason = "not comparable", "both_nan"
    elif first is not None:
        verdict, reason = "different", "outside_envelope"
    elif any(lacks_operator(text) for _, text in raised):
        verdict, reason = "not comparable", "lacks_operator"
    elif types:
        verdict, reason = "not comparable", "other_types"
    elif raised:
        verdict, reason, first = "different", "raised", locate_error(pair)
    elif chaos is not None:
        verdict, reason = "not comparable", "chaotic"
        notes.append(Note("chaotic", {"step": chaos}))
    elif not steps:
        verdict, reason = "not comparable", "no_steps"
    found = make_comparison(
        verdict=verdict,
        reason=reason,
        first=first,
        phases=worst_by_phase([s for s in judged if not s.is_unstable and s not in layouts]),
        notes=tuple(notes),
        reach=reach,
        lost=len(pair.unmatched[1]),
        distances={(s.step, s.phase, s.tensor): s.distance for s in judged},
        outside=frozenset((s.step, s.phase, s.tensor) for s in strays),
    )
    measured = found.verdict == "equal" and pair.tolerance == "measured"
    return judge_pattern(found, pair, judged) if measured else found


def pairing_notes(pairing: Pairing, sides: tuple[str, str]) -> Iterator[Note]:
    """Yield notes about parameters that were paired by their order alone, and about buffers and
    parameters that have no partner."""
    if guessed := [p for p in pairing.pairs if p.how == "order"]:
        yield Note("by_order", {"n": len(guessed), "all": len(pairing.pairs)})
    for side, names in zip(sides, pairing.unpaired_buffers, strict=True):
        if names:
            yield Note("left", {"side": side, "names": ", ".join(names)})
    for side, names in zip(sides, pairing.unpaired_parameters, strict=True):
        if names:
            few = ", ".join(names[:4])
            yield Note("alone", {"side": side, "n": len(names), "names": few})


def check_same_plan(a: Trace, b: Trace, pairing: Pairing, sides: tuple[str, str]) -> None:
    """Raise `UserError` if the two sides have different inputs in a common step, or different
    initial weights, or if one lacks the initial value of a paired tensor."""
    same = "both must be trained on the same batches to be compared"
    for step, (xs, ys) in enumerate(zip(a.inputs, b.inputs, strict=False), 1):
        if len(xs) != len(ys):
            raise UserError(
                f"other inputs: in step {step} {len(xs)} tensors in {sides[0]}, {len(ys)} in "
                f"{sides[1]}; {same}"
            )
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            if x != y:
                raise UserError(
                    f"other inputs: step {step}, tensor {i} (SHA-256 {x[:12]}… in {sides[0]}, "
                    f"{y[:12]}… in {sides[1]}); {same}"
                )
    start_a, start_b, off = a.initial_parameters(), b.initial_parameters(), []
    for pair in pairing.pairs:
        if pair.a not in start_a or pair.b not in start_b:
            raise UserError(f"the initial value of {pair.a} is not in both traces")
        u, v = start_a[pair.a], start_b[pair.b]
        if not is_equal(u, apply_change(v, pair.change, u.shape)):
            off.append(pair.a)
    if off:
        raise UserError(
            f"other initial weights: {len(off)} of {len(pairing.pairs)} differ, first {off[0]}; "
            "save the weights of one side and load them in the other before the first step "
            "(or say with map which parameter is which)"
        )


def is_equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two arrays have the same shape and numbers, whatever their dtypes; NaNs equal
    one another."""
    # Equal bits are the rule, and seen faster.
    return is_bit_identical(a, b) or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def worst_by_phase(spots: Sequence[TensorDistance]) -> dict[str, dict[str, Any]]:
    """Return for each phase that occurs ``arrays``, the number of distances over all steps, and
    step, name, distance, envelope and ratio of the array with the largest ratio of distance to
    envelope."""
    keys = ("step", "tensor", "distance", "envelope", "ratio")
    return {
        phase: {"arrays": len(of_phase), **{key: getattr(worst, key) for key in keys}}
        for phase, of_phase, worst in farthest_by_phase(spots, PHASES)
    }
