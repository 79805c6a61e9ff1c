"""Pair the parameters of two models.

Pairs are found in this order, each rule only where it is unambiguous: the user's map; the role in
the computation (`dualml.parity.models.graph_roles`), if names alone do not pair all; equal names;
equal names after translating both frameworks' terms (``gamma`` → ``weight``); equal endings
(``layers.0.weight`` and ``0.weight``); equal contents of a module with another name
(``head.weight``, ``head.bias`` and ``fc.weight``, ``fc.bias``); and last, among equal shapes, the
same order of use, or of listing. Under each rule a shape may also be transposed (a matrix stored as
(in, out)), have additional axes of length one (MindSpore's Conv1d) or several axes merged into one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.parity.models.matchers import UnmatchedParameters
from dualml.parity.models.partners import (
    Change,
    Pairing,
    Tensor,
    TensorPair,
    canonical_name,
    find_change,
)
from dualml.parity.models.user_map import ParameterMap as ParameterMap
from dualml.parity.models.user_map import flat_map, pairs_from_user_map

#: PyTorch buffers that MindSpore does not have.
COUNTERS = ("num_batches_tracked",)
#: Minimum share of the smaller model's trained parameters that must have partners.
MIN_PAIRED_SHARE = 0.5
NEAREST = 3  # shapes of the other side that an error names


def match_tensors(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    user_map: ParameterMap | None = None,
    sides: tuple[str, str] = ("torch", "mindspore"),
    roles: Mapping[str, str] | None = None,
    guesses: Mapping[str, str] | None = None,
    *,
    complete: bool = True,
) -> Pairing:
    """Pair the tensors of two models, in the order of rules that the module gives, and return all
    pairs.

    Trained parameters and buffers of one side alone are listed in the result; counters of batches
    (`COUNTERS`) are ignored.

    Args:
        user_map: name in ``a`` → name in ``b``, or ``(name, "transpose")``; takes precedence, see
            `dualml.parity.models.user_map`.
        sides: names of the two sides, for error messages.
        roles: name in ``a`` → name in ``b``, of tensors with the same role in the computation.
        guesses: name in ``a`` → name in ``b``, of tensors that are used in the same order.
        complete: whether too many parameters without a partner are an error.

    Raises:
        UserError: a name in ``user_map`` does not exist, or the shapes of a pair in it do not fit.
            If ``complete``: fewer than half of the smaller model's trained parameters have
            partners, or those left over on both sides hold equally many numbers; the message has
            their shapes and the nearest ones.
    """
    a = [one for one in a if one.name.rpartition(".")[2] not in COUNTERS]
    b = [one for one in b if one.name.rpartition(".")[2] not in COUNTERS]
    rest = UnmatchedParameters(a, b, pairs_from_user_map(a, b, user_map, sides) if user_map else {})
    ways: list[list[Change]] = [["", "reshape"], ["transpose"]]
    for allowed in ways:
        rest.by_mapping("role", roles or {}, allowed)
    for allowed in ways:
        rest.by_key("name", lambda one: one.name, allowed)
        rest.by_key("word", lambda one: canonical_name(one.name), allowed)
    for way in (rest.by_ending, rest.by_block):
        for allowed in ways:
            way(allowed)
    for allowed in ways:
        rest.by_mapping("order", guesses or {}, allowed)
    for allowed in ways:
        rest.by_order(lambda one: canonical_name(one.name).rpartition(".")[2], allowed)
        rest.by_order(lambda one: one.trained, allowed)
    if all(any(one.trained for one in side) for side in rest.remaining()):
        rest.by_sequence()
    left = rest.remaining()
    trained = [[one for one in side if one.trained] for side in left]
    # Unpaired parameters are a difference, not an error, if most of one model has partners.
    paired = sum(one.trained for one in a if one.name in rest.pairs)
    fewest = paired + min(map(len, trained))
    pieces = [sum(one.size for one in side) for side in trained]
    # Equal total sizes: probably the same numbers in other pieces, such as a fused matrix.
    if complete and any(trained) and (paired < fewest * MIN_PAIRED_SHARE or pieces[0] == pieces[1]):
        raise UserError(describe_leftovers(left, (a, b), sides))
    order = {one.name: i for i, one in enumerate(a)}
    found = transpose_squares(list(rest.pairs.values()), a, b)
    pairs = tuple(sorted(found, key=lambda pair: order[pair.a]))
    buffers = [tuple(x.name for x in side if not x.trained) for side in left]
    alone = [tuple(x.name for x in side) for side in trained]
    return Pairing(pairs, (buffers[0], buffers[1]), (alone[0], alone[1]))


def transpose_squares(
    pairs: list[TensorPair], a: Sequence[Tensor], b: Sequence[Tensor]
) -> list[TensorPair]:
    """Return the pairs, with those of square matrices transposed if all other matrices with the
    same last name are, or if one of the two is a piece of a matrix that is stored as (in, out).

    The shape of a square matrix does not tell whether it is transposed. Pairs of the user's map
    stay.
    """
    columns = {one.name for side in (a, b) for one in side if one.is_column_piece}
    shapes = {one.name: one.shape for one in a}, {one.name: one.shape for one in b}

    def last_part(name: str) -> str:
        """Return the last part of a dotted name, without digits."""
        return re.sub(r"\d+", "", name.rpartition(".")[2])

    ways = defaultdict(set)
    for pair in pairs:
        x, y = shapes[0][pair.a], shapes[1][pair.b]
        if len(x) == len(y) == 2 and x != x[::-1]:
            ways[last_part(pair.b)].add(pair.change)
    return [
        replace(pair, change="transpose")
        if pair.how != "asked"
        and len(shapes[0][pair.a]) == 2
        and shapes[0][pair.a] == shapes[0][pair.a][::-1] == shapes[1][pair.b]
        and (
            ways.get(last_part(pair.b)) == {"transpose"}
            or (pair.a in columns) != (pair.b in columns)
        )
        else pair
        for pair in pairs
    ]


def is_paired_by_names(
    a: Sequence[Tensor], b: Sequence[Tensor], asked: ParameterMap | None = None
) -> bool:
    """Return whether every trained parameter of the side that has fewer has a partner of equal
    name, in PyTorch's terms, and fitting shape, so that no other rule is needed. Parameters in the
    user's map, ``asked``, do not count."""
    asked = flat_map(asked) if asked else {}
    taken = {value if isinstance(value, str) else value[0] for value in asked.values()}
    left = (
        {canonical_name(one.name): one.shape for one in a if one.trained and one.name not in asked},
        {canonical_name(one.name): one.shape for one in b if one.trained and one.name not in taken},
    )
    fewer, more = sorted(left, key=len)
    return bool(fewer or not more) and all(
        name in more and find_change(shape, more[name]) is not None for name, shape in fewer.items()
    )


def find_tied_value(
    one: Tensor, a: Sequence[Tensor], arrays: Mapping[str, NDArray[Any]]
) -> NDArray[Any] | None:
    """Return an initial value for ``one``, a parameter that only the second side has.

    This is the first trained parameter of the same shape on the first side, because the two may be
    tied there. None if there is none, or for fewer than two axes; the parameter then keeps its own
    value.
    """
    if len(one.shape) < 2:
        return None
    return next((arrays[x.name] for x in a if x.trained and x.shape == one.shape), None)


def describe_leftovers(
    left: tuple[Sequence[Tensor], Sequence[Tensor]],
    all_: tuple[Sequence[Tensor], Sequence[Tensor]],
    sides: tuple[str, str],
) -> str:
    """Return an error text about all trained parameters without a partner, with their shapes and
    the nearest ones on the other side.

    Args:
        left: tensors of both sides without a partner.
        all_: all tensors of both sides.
    """
    parts = []
    for i, side in enumerate(sides):
        other = left[1 - i] or all_[1 - i]
        alone = []
        for one in (x for x in left[i] if x.trained):
            near = sorted(other, key=partial(shape_distance, one))[:NEAREST]
            shown = ", ".join(f"{y.name} {y.shape}" for y in near) or "none"
            alone.append(f"{one.name} {one.shape} (nearest: {shown})")
        total = sum(one.trained for one in all_[i])
        listed = ": " + ", ".join(alone) if alone else ""
        parts.append(f"{len(alone)} of {total} in {side}{listed}")
    return (
        f"parameters without a partner: {'; '.join(parts)}; these are two models, or they keep the "
        "same numbers in other pieces: cut one of them like the other to compare them"
    )


def shape_distance(x: Tensor, y: Tensor) -> tuple[float, int]:
    """Return a sort key for the distance of two tensors' shapes: those with equally many axes by
    the ratios of their lengths, axes in the given order or reversed, before those with another
    number of axes."""
    if len(x.shape) != len(y.shape):
        return 1e9, abs(len(x.shape) - len(y.shape))
    ways = (y.shape, y.shape[::-1])
    return min(
        sum(abs(np.log((m + 1) / (n + 1))) for m, n in zip(x.shape, way, strict=True))
        for way in ways
    ), 0
