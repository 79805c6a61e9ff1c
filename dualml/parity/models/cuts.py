"""The pieces into which fused tensors are cut: those of the user's map, then those of shapes."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.errors import UserError
from dualml.parity.models.layouts import HEADS, changed_shape, invert_change
from dualml.parity.models.partners import Tensor
from dualml.parity.models.pieces import PieceLengths, find_cuts
from dualml.parity.models.user_map import PIECE, ParameterMap, flat_map, group_counts

#: Fused tensor → lengths of its pieces.
SideCuts = dict[str, tuple[int, ...]]


def plan_cuts(
    a: Sequence[Tensor], b: Sequence[Tensor], asked: ParameterMap
) -> tuple[SideCuts, SideCuts]:
    """Return for side ``a`` and side ``b``: name of a fused tensor to cut → lengths of its pieces.

    Args:
        a, b: tensors of both sides, fused ones whole.
        asked: the user's map; tensors that it does not name are cut as their shapes say.

    Raises:
        UserError: the map cuts a tensor, in groups of rows, into pieces that do not fit.
    """
    of_a, of_b = cuts_from_map(a, b, asked)
    if not of_a and not of_b:
        return find_cuts(a, b)
    flat = flat_map(asked)
    named = {one.partition("[")[0] for one in flat}, {v[0].partition("[")[0] for v in flat.values()}
    rest = (
        [one for one in side if one.name not in known]
        for side, known in zip((a, b), named, strict=True)
    )
    more_a, more_b = find_cuts(*rest)
    return more_a | of_a, more_b | of_b


def cuts_from_map(
    a: Sequence[Tensor], b: Sequence[Tensor], asked: ParameterMap
) -> tuple[SideCuts, SideCuts]:
    """Return for each side: fused tensor → lengths of its pieces, for those tensors whose pieces,
    ``NAME[0]``, ``NAME[1]``, …, the user's map names; raise `UserError` if pieces in groups do not
    fit."""
    shapes = {one.name: one.shape for one in a}, {one.name: one.shape for one in b}
    flat, counts = flat_map(asked), group_counts(asked)
    # Where pieces of both sides are paired, all of a tensor have the same length.
    shapes = (
        shapes[0] | equal_pieces(shapes[0], list(flat)),
        shapes[1] | equal_pieces(shapes[1], [partner for partner, *_ in flat.values()]),
    )
    there, back = [], []
    for name, (partner, *words) in flat.items():
        change = "+".join(words)
        there.append((name, shape_in_layout(shapes[1], partner, invert_change(change))))
        back.append((partner, shape_in_layout(shapes[0], name, change)))
    wholes = {one.name: one.shape for one in a}, {one.name: one.shape for one in b}
    return cuts_of_names(there, wholes[0], counts), cuts_of_names(back, wholes[1], counts)


def equal_pieces(
    shapes: dict[str, tuple[int, ...]], names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return name of a piece → shape, for the tensors of which a map names all pieces, ``NAME[0]``,
    ``NAME[1]``, …, if the first axis can be cut into as many equal parts.

    Args:
        shapes: shapes of one side's tensors by name.
        names: names of one side in the map.
    """
    pieces: dict[str, set[int]] = {}
    for name in names:
        match = PIECE.fullmatch(name)
        if match is not None and name not in shapes and match["whole"] in shapes:
            pieces.setdefault(match["whole"], set()).add(int(match["number"]))
    return {
        f"{whole}[{i}]": (shapes[whole][0] // len(numbers), *shapes[whole][1:])
        for whole, numbers in pieces.items()
        if numbers == {*range(len(numbers))} and shapes[whole][0] % len(numbers) == 0
        for i in numbers
    }


def shape_in_layout(
    shapes: dict[str, tuple[int, ...]], name: str, change: str
) -> tuple[int, ...] | None:
    """Return the shape of a tensor after a change of layout that splits or merges an axis for
    heads; after any other change its own shape, because `find_lengths` sees itself whether a matrix
    is transposed. None if there is no such tensor, or the change does not fit."""
    shape, words = shapes.get(name), change.split("+")
    if shape is None or not any(HEADS.fullmatch(word) for word in words):
        return shape
    return changed_shape(shape, words)


def cuts_of_names(
    entries: Sequence[tuple[str, tuple[int, ...] | None]],
    own: dict[str, tuple[int, ...]],
    counts: dict[str, int],
) -> SideCuts:
    """Return fused tensor → lengths of its pieces, for one side; tensors of which only some pieces
    are named, or whose pieces do not fit, are left out. Raise `UserError` for pieces in groups that
    do not fit.

    Args:
        entries: (name on this side, the partner's shape in this side's layout or None).
        own: shapes of this side by name.
        counts: fused tensor → number of groups in which its rows lie.
    """
    pieces: dict[str, dict[int, tuple[int, ...]]] = {}
    for name, shape in entries:
        match = PIECE.fullmatch(name)
        if match is None or name in own or match["whole"] not in own or shape is None:
            continue
        pieces.setdefault(match["whole"], {})[int(match["number"])] = shape
    cuts: SideCuts = {}
    for name, by_number in pieces.items():
        groups = counts.get(name, 1)
        shapes = [by_number.get(i) for i in range(len(by_number))]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            continue  # only some pieces are named: the shapes say how long they are
        cut = find_lengths(own[name], known, groups)
        if cut is not None:
            cuts[name] = cut
        elif groups > 1:
            raise UserError(
                f"map: {name} {own[name]} cannot be cut into pieces of {known} in {groups} groups"
            )
    return cuts


def find_lengths(
    whole: tuple[int, ...], pieces: Sequence[tuple[int, ...]], groups: int
) -> PieceLengths | None:
    """Return the lengths of the pieces of a fused tensor: along its first axis, or else along the
    second one if they are stored as (in, out) in it; None if they do not fit.

    Args:
        whole: shape of the fused tensor.
        pieces: shapes of the other side's tensors, which may be transposed.
        groups: number of groups in which the rows lie; every length must be a multiple of it.
    """
    for axis in range(min(2, len(whole))):
        rest = whole[1 - axis] if len(whole) == 2 else None
        lengths: list[int] = []
        for shape in pieces:
            if rest is None or len(shape) != 2:
                fits = shape[:1] if shape[1:] == whole[1:] and axis == 0 else ()
            elif shape[1 - axis] == rest:
                fits = shape[axis : axis + 1]
            else:
                fits = shape[1 - axis : 2 - axis] if shape[axis] == rest else ()
            lengths += fits
        right = len(lengths) == len(pieces) and sum(lengths) == whole[axis]
        if right and not any(length % groups for length in lengths) and not (axis and groups > 1):
            return PieceLengths.from_lengths(lengths, groups, axis)
    return None
