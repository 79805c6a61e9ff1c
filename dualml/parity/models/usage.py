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
    """Return parameter → (number of the first call that takes it, kind of that call: one of
    `PARAMETER_CALLS` or empty)."""
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
    """Return name in ``a`` → name in ``b`` of tensors that are paired in the order of their first
    use, where both sides use equally many of a shape. Unused tensors are left out.

    Tensors with the same distinctive last name come first, then those that the same kind of call
    takes, under names of the same meaning.

    Args:
        a, b: tensors without a partner.
        calls: the operations of both models.
        listed: pair in the order of ``a`` and ``b`` instead of that of use.
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
        """Return the properties in which paired tensors have to agree.

        Args:
            side: 0 for ``a``, 1 for ``b``.
        """
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
    """Return the tensors of two sides in the order of their use; where one side has consecutive
    pieces of a fused tensor, these and their partners are put in listing order, because all pieces
    are used at once.

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
    """Return the first of ``bias``, ``mean`` and ``var`` that the last part of a tensor's name
    contains; empty if there is none."""
    last = canonical_name(one.name).rpartition(".")[2]
    return next((word for word in MEANINGS if word in last), "")


def distinctive_word(one: Tensor) -> str:
    """Return the last part of a tensor's name in lower case, such as ``a_log`` for ``A_log``; empty
    for words that every layer has (`COMMON`)."""
    last = canonical_name(whole_name(one.name)).rpartition(".")[2].lower()
    return "" if last in COMMON else last


def whole_name(name: str) -> str:
    """Return the name of a fused tensor from that of its piece: ``qkv.weight`` of
    ``qkv.weight[1]``; any other name unchanged."""
    return name.partition("[")[0]


def use_position(one: Tensor, used: dict[str, tuple[int, str]]) -> tuple[int, str]:
    """Return the sort key of a tensor: number of its first call, and the number of its piece as
    text.

    Args:
        used: what `first_uses` returned.
    """
    return used[whole_name(one.name)][0], one.name.partition("[")[2]


def sorted_shape(one: Tensor) -> tuple[int, ...]:
    """Return the lengths of a tensor's axes, sorted and without ones, because a matrix may be
    stored transposed."""
    return tuple(sorted(n for n in one.shape if n > 1))
