"""Pair parameters that nothing else distinguishes, in the order of their use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Tensor, canonical_name

PREFIX = "parameter:"
#: Meanings of tensors that their names tell.
MEANINGS = ("bias", "mean", "var")
#: Last parts of names that every layer has.
COMMON = ("weight", "bias", "w", "b", "kernel", "scale", "shift")
#: Kinds of calls with parameters; the function names of both frameworks contain these words.
PARAMETER_CALLS = ("norm", "embed", "gather", "conv")


def first_uses(operations: Sequence[Operation]) -> dict[str, tuple[int, str]]:
    """Return parameter → the first call that takes it, and its kind, one of PARAMETER_CALLS or
    empty."""
    first: dict[str, tuple[int, str]] = {}
    for call in operations:
        name = call.name.lower()
        taker = next((word for word in PARAMETER_CALLS if word in name), "")
        for given in call.inputs:
            if given.startswith(PREFIX):
                first.setdefault(given.removeprefix(PREFIX), (call.number, taker))
    return first


def pair_by_use(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    calls: tuple[Sequence[Operation], Sequence[Operation]],
    listed: bool = False,
) -> dict[str, str]:
    """Return name in ``a`` → name in ``b``: tensors paired in the order of their use, where both
    sides use equally many of a shape. Unused tensors are left out.

    Tensors with the same distinctive last name come first, then those that the same kind of call
    takes, under names of the same meaning.

    Args:
        a, b: tensors without a partner.
        calls: the operations of both models.
        listed: pair in listing order instead.
    """
    known = first_uses(calls[0]), first_uses(calls[1])
    left = [
        [one for one in side if whole_name(one.name) in used]
        for side, used in zip((a, b), known, strict=True)
    ]
    if not listed:
        left = [
            sorted(side, key=partial(use_position, used=used))
            for side, used in zip(left, known, strict=True)
        ]
    pairs: dict[str, str] = {}
    numbers = {id(one): i for side in (a, b) for i, one in enumerate(side)}

    def order(one: Tensor) -> int:
        return numbers[id(one)]

    def kind(one: Tensor, side: int) -> Hashable:
        """Return the properties that paired tensors must share."""
        return (
            sorted_shape(one),
            one.trained,
            known[side][whole_name(one.name)][1],
            tensor_meaning(one),
        )

    keys: tuple[Callable[[Tensor, int], Hashable], ...] = (
        lambda one, side: (
            (one.shape, word) if (word := distinctive_word(one)) else (one.name, side)
        ),
        kind,
        lambda one, side: (sorted_shape(one), one.trained, known[side][whole_name(one.name)][1]),
        lambda one, side: (sorted_shape(one), one.trained, tensor_meaning(one)),
        lambda one, side: (sorted_shape(one), one.trained),
    )
    for key in keys:
        groups: list[dict[Hashable, list[Tensor]]] = [defaultdict(list), defaultdict(list)]
        for side in (0, 1):
            for one in left[side]:
                if one.name not in (pairs.keys() if side == 0 else pairs.values()):
                    groups[side][key(one, side)].append(one)
        for word, ones in groups[0].items():
            others = groups[1].get(word, [])
            if len(ones) == len(others):
                pieces = [["[" in one.name for one in side] for side in (ones, others)]
                if any(map(all, pieces)) or (listed and any(map(any, pieces))):
                    # All pieces of a tensor are used at once: only listing order remains.
                    ones, others = (sorted(side, key=order) for side in (ones, others))
                elif any(map(any, pieces)):
                    ones, others = sort_beside_pieces(ones, others, order)
                pairs |= {x.name: y.name for x, y in zip(ones, others, strict=True)}
    return pairs


def sort_beside_pieces(
    ones: Sequence[Tensor], others: Sequence[Tensor], order: Callable[[Tensor], int]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return tensors of two sides, in the order of their use, with those beside the pieces of one
    tensor in listing order, because all pieces are used at once.

    Args:
        ones, others: pieces and whole tensors of both sides, in the order of their use.
        order: returns the place of a tensor in its side's list.
    """
    sides = list(ones), list(others)
    for here, there in (sides, sides[::-1]):
        start = 0
        while start < len(here):
            whole, end = whole_name(here[start].name), start + 1
            while end < len(here) and "[" in here[end].name and whole_name(here[end].name) == whole:
                end += 1
            if end - start > 1:
                here[start:end] = sorted(here[start:end], key=order)
                there[start:end] = sorted(there[start:end], key=order)
            start = end
    return sides


def tensor_meaning(one: Tensor) -> str:
    """Return ``bias``, ``mean`` or ``var`` if the name says so; else empty."""
    last = canonical_name(one.name).rpartition(".")[2]
    return next((word for word in MEANINGS if word in last), "")


def distinctive_word(one: Tensor) -> str:
    """Return a specific last part of a name that both sides may share, such as ``a_log`` for
    ``A_log``.

    Empty for words that every layer has.
    """
    last = canonical_name(whole_name(one.name)).rpartition(".")[2].lower()
    return "" if last in COMMON else last


def whole_name(name: str) -> str:
    """Return the name of a fused tensor from that of its piece: ``qkv.weight`` of
    ``qkv.weight[1]``."""
    return name.partition("[")[0]


def use_position(one: Tensor, used: dict[str, tuple[int, str]]) -> tuple[int, str]:
    """Return the sort key of a tensor: its first call, and the number of the piece."""
    return used[whole_name(one.name)][0], one.name.partition("[")[2]


def sorted_shape(one: Tensor) -> tuple[int, ...]:
    """Return the sorted shape without ones, because a matrix may be stored transposed."""
    return tuple(sorted(n for n in one.shape if n > 1))
