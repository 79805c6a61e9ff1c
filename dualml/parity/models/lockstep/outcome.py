"""Words of a comparison block by block: places, notes, and the row of each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.experiment.comparison import FirstDivergence, Note
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.judge import PHASES
from dualml.parity.models.layers import module_name
from dualml.parity.models.lockstep.pairs import PARAMETER
from dualml.parity.models.lockstep.rows import BlockRow, as_number
from dualml.parity.models.lockstep.updates import STATE, UPDATE


@dataclass(frozen=True)
class JudgedRow:
    """A row of the comparison (two compared arrays), with its distance and rounding envelope."""

    row: BlockRow
    spot: TensorDistance

    @property
    def decides(self) -> bool:
        """Whether the row can make the verdict: not if it is an output inside of a block, which
        only says where a difference begins, or if rounding alone can turn its value over."""
        return self.row.role != "inner" and not self.spot.is_unstable


def row_name(row: BlockRow) -> str:
    """Return the name that a row is shown under: that of an array of a parameter, of a module
    inside of a block, or of the loss; else block, role and number: ``layers.3, output 0``."""
    if row.role in ("inner", "loss"):
        return row.name
    role, _, number = row.name.partition("/")
    return number if is_of_parameter(row) else f"{row.block}, {role} {number}"


def is_of_parameter(row: BlockRow) -> bool:
    """Return whether a row is about a parameter: its gradient, new weights or optimizer state, or
    that one side alone has or trains it."""
    return row.name.startswith((PARAMETER, UPDATE, STATE))


def make_divergence(
    start: JudgedRow, stray: JudgedRow, modules: Mapping[str, str], sides: tuple[str, str]
) -> FirstDivergence:
    """Return the divergence that begins at row ``start`` and exceeds the margin at row ``stray``;
    both may be the same.

    Args:
        modules: name → type of the first side's modules.
        sides: names of the two sides.
    """
    row, spot = start.row, start.spot
    if row.role == "inner":
        layer = module_name(row.name)
    elif is_of_parameter(row):
        layer = row.name.rpartition("/")[2].partition("[")[0].rpartition(".")[0]
    else:
        layer = row.block
    outside = {"phase": stray.spot.phase, "tensor": stray.spot.tensor, "ratio": stray.spot.ratio}
    return FirstDivergence(
        step=1,
        phase=spot.phase,
        layer=layer,
        type=modules.get(layer, ""),
        tensor=spot.tensor,
        other=row.other if row.role == "inner" or is_of_parameter(row) else "",
        kind=row.kind,
        distance=spot.distance,
        envelope=spot.envelope,
        shapes=row.shapes if any(row.shapes) else None,
        elements=tuple(row.elements),
        side=sides[row.side] if row.kind in ("nan", "alone", "trained") else "",
        outside=None if start is stray else outside,
    )


def raised_divergence(
    raised: Mapping[str, str], modules: Mapping[str, str], sides: tuple[str, str]
) -> FirstDivergence:
    """Return the block in which the second side raised an error, as a divergence.

    Args:
        raised: has the name of the block under ``block``.
        modules: name → type of the first side's modules.
        sides: names of the two sides.
    """
    return FirstDivergence(
        step=1,
        phase="forward",
        layer=raised["block"],
        type=modules.get(raised["block"], ""),
        tensor=raised["block"],
        distance=float("inf"),
        envelope=0.0,
        kind="raised",
        side=sides[1],
    )


def describe_drift(
    a: Mapping[str, Any], b: Mapping[str, Any], unit: float
) -> dict[str, tuple[float, float]]:
    """Return block → (drift, rounding), in the order of execution: how far the two sides' outputs
    are apart, each on its own activations, and how far weights moved by four units in the last
    place move the first side's, at least ``unit``.

    Args:
        a, b: results of both sides' workers.
    """
    return {
        block: (as_number(b["drift"][block]), max(as_number(far), unit))
        for block, far in a["drift"].items()
        if block in b["drift"]
    }


def make_notes(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    sides: tuple[str, str],
    drift: Mapping[str, tuple[float, float]],
) -> list[Note]:
    """Return the notes beside the verdict: what a comparison of blocks does not see, how far the
    two models drift apart, which parameters and states have no partner, which blocks stay in
    memory, what was updated.

    Args:
        a, b: results of both sides' workers.
        sides: names of the two sides.
        drift: what `describe_drift` returned.
    """
    notes = [Note("lockstep", {"n": len(a["blocks"]), "a": sides[0]})]
    if drift:
        block = list(drift)[-1]
        far, width = drift[block]
        values = {"block": block, "far": f"{far:.1e}", "width": f"{width:.1e}"}
        notes.append(Note("drift", {**values, "ratio": f"{far / width:.2g}"}))
    for side, names in zip(sides, b["alone"], strict=True):
        if names:
            few = ", ".join(names[:4])
            notes.append(Note("alone", {"side": side, "n": len(names), "names": few}))
    for side, names in zip(sides, b["lone_states"], strict=True):
        if names:
            notes.append(Note("states_left", {"side": side, "names": ", ".join(names)}))
    if a["left"]:
        notes.append(Note("blocks_left", {"names": ", ".join(a["left"][:4])}))
    if a["updates"] is not None:
        notes.append(Note("updates", {"a": sides[0]}))
        if a["updates"]:
            few = ", ".join(a["updates"][:4])
            notes.append(Note("updates_left", {"n": len(a["updates"]), "names": few}))
    return notes


def describe_blocks(
    blocks: Sequence[str],
    judged: Sequence[JudgedRow],
    drift: Mapping[str, tuple[float, float]],
) -> list[JsonObject]:
    """Return for each block its largest ratio to the rounding envelope, ``forward`` and of the
    ``gradient``, and its ``drift`` and ``rounding``; None where there is none. With an optimizer
    there is also ``update``, the largest ratio of new weights and states.

    Blocks with a drift come first, in the order of execution.
    """
    described: list[JsonObject] = []
    updated = {"update"} if any(one.row.role == "update" for one in judged) else set[str]()
    order = [name for name in drift if name in blocks]
    for block in [*order, *(name for name in blocks if name not in order)]:
        ratios: dict[str, list[float]] = {phase: [] for phase in PHASES}
        for one in judged:
            if one.row.block == block and one.decides:
                ratios[one.spot.phase].append(one.spot.ratio)
        far, width = drift.get(block, (None, None))
        described.append(
            {
                "block": block,
                "forward": max(ratios["forward"], default=None),
                "gradient": max(ratios["gradient"], default=None),
                **{x: max(ratios[x] + ratios["state"], default=None) for x in updated},
                "drift": far,
                "rounding": width,
            }
        )
    return described
