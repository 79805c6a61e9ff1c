"""Judge a comparison block by block: equal, different (in which block), or not comparable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any

from dualml.experiment.comparison import Note
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.divergence import lacks_operator
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.judge import worst_by_phase
from dualml.parity.models.layers import module_name
from dualml.parity.models.lockstep.outcome import (
    JudgedRow,
    describe_blocks,
    describe_drift,
    make_divergence,
    make_notes,
    raised_divergence,
    row_name,
)
from dualml.parity.models.lockstep.rows import BlockRow, as_number, read_row
from dualml.parity.models.pattern import MIN_TENSORS, PATTERN_LIMIT, common_ratio
from dualml.parity.models.trace import LOW_PRECISION_UNITS
from dualml.parity.places import FLOOR

#: Role of a row → phase of the result.
ROLE_PHASES = {
    "parameter": "parameters",
    "input": "forward",
    "inner": "forward",
    "output": "forward",
    "loss": "loss",
    "output gradient": "gradient",
    "parameter gradient": "gradient",
    "outside gradient": "gradient",
    "input gradient": "gradient",
    "update": "update",
    "state": "state",
}
#: Units in the last place that what lies between two blocks, or in the loss, may round by.
BETWEEN_UNITS = 4


def judge_blocks(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    sides: tuple[str, str],
    margin: float,
    dtypes: Sequence[str],
) -> ModelComparison:
    """Return the comparison that follows from what both workers left.

    Args:
        a, b: results of side ``a`` and ``b``, see `dualml.parity.models.lockstep.worker`.
        sides: names of the two sides.
        margin: how many rounding envelopes apart arrays still count as equal.
        dtypes: dtypes of the two sides, such as ``float32``.
    """
    unit = max(LOW_PRECISION_UNITS.get(dtype, FLOOR) for dtype in dtypes)
    judged = measure_rows([read_row(row) for row in b["rows"]], a, b, unit)
    stray = next((one for one in judged if one.decides and one.spot.ratio > margin), None)
    drift = describe_drift(a, b, unit)
    notes = list(make_notes(a, b, sides, drift))
    pattern = None if stray is not None else find_pattern(judged, a["modules"])
    raised, first = b["raised"], None
    random = [
        Note("random", {"side": s, **x["random"]})
        for s, x in zip(sides, (a, b), strict=True)
        if x["random"]
    ]
    verdict, reason = "equal", "inside_envelope"
    if random:
        verdict, reason, notes = "not comparable", "random", [*random, *notes]
    elif stray is not None:
        start = find_start(judged, stray, margin)
        first = make_divergence(start, stray, a["modules"], sides)
        verdict, reason = "different", "outside_envelope"
        if stray.spot.kind == "both_nan":
            verdict, reason = "not comparable", "both_nan"
    elif raised is not None and lacks_operator(raised["text"]):
        verdict, reason = "not comparable", "lacks_operator"
    elif raised is not None:
        first = raised_divergence(raised, a["modules"], sides)
        verdict, reason = "different", "raised"
    elif pattern is not None:
        kind, ratio, rows = pattern
        verdict, reason = "different", "pattern"
        first = make_divergence(rows[0], rows[0], a["modules"], sides)
        values = {"n": len(rows), "kind": kind, "ratio": f"{abs(ratio):.2g}"}
        notes.insert(0, Note("pattern", {**values, "limit": f"{PATTERN_LIMIT:g}"}))
    elif is_drift_outside(drift, margin):
        verdict, reason = "different", "drift"
    if raised is not None:
        notes.insert(0, Note("raised", {"side": sides[1], "text": raised["text"]}))
    return ModelComparison(
        sides=sides,
        verdict=verdict,
        reason=reason,
        first=first,
        margin=margin,
        tolerance="measured",
        steps=1,
        phases=worst_by_phase([one.spot for one in judged if one.decides]),
        notes=tuple(notes),
        mapping=tuple(b["mapping"]),
        environment={sides[0]: a["environment"], sides[1]: b["environment"]},
        blocks=tuple(describe_blocks(a["blocks"], judged, drift)),
    )


def is_drift_outside(drift: Mapping[str, tuple[float, float]], margin: float) -> bool:
    """Return whether the two sides, each on its own activations, lie further apart after the last
    block than the margin allows; False without a drift.

    Args:
        drift: block → (distance of the two sides, rounding), in the order of execution.
    """
    far, width = list(drift.values())[-1] if drift else (0.0, 1.0)
    return far > margin * width


def measure_rows(
    rows: Sequence[BlockRow], a: Mapping[str, Any], b: Mapping[str, Any], unit: float
) -> list[JudgedRow]:
    """Return the rows with their rounding envelopes: the larger one of both sides, and at least the
    median of all parameter gradients' for a gradient, `BETWEEN_UNITS` units for inputs, the loss
    and gradients of outputs, and one ``unit``.

    Args:
        a, b: results of both sides' workers.
    """
    widths = {name: as_number(width) for name, width in a["widths"].items()}
    known = [max(row.width, widths.get(row.width_key, 0.0)) for row in rows]
    gradients = [
        width
        for row, width in zip(rows, known, strict=True)
        if row.role == "parameter gradient" and isfinite(width)
    ]
    usual = median(gradients or [0.0])
    judged = []
    for row, width in zip(rows, known, strict=True):
        phase = ROLE_PHASES[row.role]
        if row.role in ("input", "loss", "output gradient"):
            width = max(width, BETWEEN_UNITS * unit)
        if phase == "gradient":
            width = max(width, usual)
        width = max(width, unit)
        name = row_name(row)
        spot = TensorDistance(1, phase, name, row.distance, width, row.other, row.kind, floor=unit)
        judged.append(JudgedRow(row, spot))
    return judged


def find_start(judged: Sequence[JudgedRow], stray: JudgedRow, margin: float) -> JudgedRow:
    """Return where the difference at an output begins: the first output of a module, inside of the
    same call of the block, whose ratio is above a third of the margin, or else the block's output
    itself.

    Args:
        stray: the first row beyond the margin; returned as it is if it is no output.
    """
    if stray.row.role != "output" or stray.row.kind != "value":
        return stray
    inside = [
        one
        for one in judged
        if one.row.role == "inner"
        and one.row.block == stray.row.block
        and one.row.width_key.partition("/")[0] == stray.row.width_key.partition("/")[0]
    ]
    return next((one for one in inside if one.spot.ratio > margin / 3), stray)


def find_pattern(
    judged: Sequence[JudgedRow], modules: Mapping[str, str]
) -> tuple[str, float, list[JudgedRow]] | None:
    """Return (type, ratio, rows) of the first type of modules whose outputs are scaled in one
    direction beyond the limit, see `dualml.parity.models.pattern`; None if there is none.

    Args:
        modules: name → type of the first side's modules.
    """
    kinds: dict[str, list[JudgedRow]] = defaultdict(list)
    for one in judged:
        if one.row.role == "inner" and one.row.kind == "value":
            kinds[modules.get(module_name(one.row.name), "")].append(one)
    kinds.pop("", None)
    for kind, rows in kinds.items():
        if len(rows) < MIN_TENSORS:
            continue
        ratio = common_ratio([one.row.scale / one.spot.envelope for one in rows])
        if abs(ratio) > PATTERN_LIMIT:
            return kind, ratio, rows
    return None
