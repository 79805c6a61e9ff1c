"""Of parameters that nothing else tells apart: the first that is used with the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Tensor, canonical

PREFIX = "parameter:"
#: What a tensor is, where its name says so.
MEANINGS = ("bias", "mean", "var")
#: Words that say nothing.
COMMON = ("weight", "bias", "w", "b", "kernel", "scale", "shift")
#: What takes a parameter; the frameworks' functions have one of these in their names.
TAKERS = ("norm", "embed", "gather", "conv")


def uses(operations: Sequence[Operation]) -> dict[str, tuple[int, str]]:
    """Parameter → the first call that takes it, and what kind of call that is."""
    first: dict[str, tuple[int, str]] = {}
    for call in operations:
        name = call.name.lower()
        taker = next((word for word in TAKERS if word in name), "")
        for given in call.inputs:
            if given.startswith(PREFIX):
                first.setdefault(given.removeprefix(PREFIX), (call.number, taker))
    return first


def by_use(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    calls: tuple[Sequence[Operation], Sequence[Operation]],
    listed: bool = False,
) -> dict[str, str]:
    """Pair tensors in the order in which they are used, where both sides use equally many of a
    shape: first those that the same kind of call takes, under names of the same meaning.

    Args:
        a, b: what has no partner yet.
        calls: of both models.
        listed: in the order of the lists instead.
    """
    known = uses(calls[0]), uses(calls[1])
    left = [
        [one for one in side if whole(one.name) in used]
        for side, used in zip((a, b), known, strict=True)
    ]
    if not listed:
        left = [
            sorted(side, key=partial(place, used=used))
            for side, used in zip(left, known, strict=True)
        ]
    pairs: dict[str, str] = {}
    numbers = {id(one): i for side in (a, b) for i, one in enumerate(side)}

    def order(one: Tensor) -> int:
        return numbers[id(one)]

    def kind(one: Tensor, side: int) -> Hashable:
        return (
            shape(one),
            one.trained,
            known[side][whole(one.name)][1],
            meaning(one),
        )

    keys: tuple[Callable[[Tensor, int], Hashable], ...] = (
        lambda one, side: (one.shape, word) if (word := own_word(one)) else (one.name, side),
        kind,
        lambda one, side: (shape(one), one.trained, known[side][whole(one.name)][1]),
        lambda one, side: (shape(one), one.trained, meaning(one)),
        lambda one, side: (shape(one), one.trained),
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
                if any("[" in one.name for one in (*ones, *others)):
                    # All pieces of a tensor are used at once: only the lists have an order.
                    ones, others = (sorted(side, key=order) for side in (ones, others))
                pairs |= {x.name: y.name for x, y in zip(ones, others, strict=True)}
    return pairs


def meaning(one: Tensor) -> str:
    last = canonical(one.name).rpartition(".")[2]
    return next((word for word in MEANINGS if word in last), "")


def own_word(one: Tensor) -> str:
    """What both sides may call it by themselves: ``A_log``, ``a_log``; empty for words that every
    layer has."""
    last = canonical(whole(one.name)).rpartition(".")[2].lower()
    return "" if last in COMMON else last


def whole(name: str) -> str:
    """``qkv.weight`` of its piece ``qkv.weight[1]``."""
    return name.partition("[")[0]


def place(one: Tensor, used: dict[str, tuple[int, str]]) -> tuple[int, str]:
    return used[whole(one.name)][0], one.name.partition("[")[2]


def shape(one: Tensor) -> tuple[int, ...]:
    """Sorted: a matrix may be stored transposed."""
    return tuple(sorted(n for n in one.shape if n > 1))
