"""Pair the submodules of two models.

Pairs follow from the parameters: if ``enc.0.weight`` is ``encoder.layers.0.weight``, the module
``enc`` is ``encoder.layers``. Modules without parameters (activations, pooling) are paired by name
under their paired parent, then by their order among modules of the same type.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile

from dualml.parity.models.partners import Pairing

#: MindSpore's type names → PyTorch's; all others are compared in lower case.
KINDS = {"dense": "linear", "sequentialcell": "sequential", "celllist": "modulelist"}


def canonical_type(type_name: str) -> str:
    """Return a module's type name in lower case, in PyTorch's terms: ``linear`` for ``Dense``."""
    word = type_name.lower()
    return KINDS.get(word, word)


def parent_name(name: str) -> str:
    """Return a dotted name without its last part, the name of the enclosing module; empty at the
    top."""
    return name.rpartition(".")[0]


def pair_modules(a: Mapping[str, str], b: Mapping[str, str], mapping: Pairing) -> dict[str, str]:
    """Pair the modules of two models; return name in ``a`` → name in ``b``, without modules that
    have no partner.

    Args:
        a, b: name → type, in the framework's order.
        mapping: the parameters of both models, paired.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    flipped = [(pair.b, pair.a) for pair in mapping.pairs]
    straight = [(pair.a, pair.b) for pair in mapping.pairs]
    fused = find_fused(straight), find_fused(flipped)
    for pair in mapping.pairs:
        x, y = parent_name(pair.a), parent_name(pair.b)
        if x in fused[0] or y in fused[1]:
            continue  # one of several partners
        while x in a and y in b and x and y:
            votes[x][y] += 1
            if x.rpartition(".")[2] != y.rpartition(".")[2]:
                break  # above a renamed part the pairing is ambiguous
            x, y = parent_name(x), parent_name(y)
    pairs: dict[str, str] = {}
    for x, names in votes.items():
        y = names.most_common(1)[0][0]
        if y not in pairs.values():
            pairs[x] = y
    wholes = [(x, find_whole(x, a, b, straight)) for x in sorted(fused[0])]
    wholes += [(find_whole(y, b, a, flipped), y) for y in sorted(fused[1])]
    for x, y in wholes:
        if x and y and x not in pairs and y not in pairs.values():
            pairs[x] = y
    pair_by_name(a, b, pairs)
    pair_by_order(a, b, pairs)
    return pairs


def find_fused(pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Return the modules of the first side with a fused tensor whose pieces lie in several modules
    of the other.

    Args:
        pairs: (name on the first side, on the other) of paired parameters; pieces of a fused tensor
            are named ``qkv.weight[1]``.
    """
    partners: dict[str, set[str]] = defaultdict(set)
    for x, y in pairs:
        whole, bracket, _ = x.partition("[")
        if bracket:
            partners[whole].add(parent_name(y))
    return {parent_name(whole) for whole, modules in partners.items() if len(modules) > 1}


def find_whole(
    x: str, a: Mapping[str, str], b: Mapping[str, str], pairs: Sequence[tuple[str, str]]
) -> str:
    """Return the module of ``b`` with the same parameters as ``x``, a module of ``a`` that has a
    fused tensor; empty if there is none.

    Empty also if ``x`` has no submodules: a fused layer alone computes less than the module that
    has its pieces and combines their results.
    """
    if not any(name.startswith(f"{x}.") for name in a):
        return ""
    modules = [parent_name(other) for name, other in pairs if name.startswith(f"{x}.")]
    parts = zip(*(name.split(".") for name in modules), strict=False)
    y = ".".join(words[0] for words in takewhile(lambda words: len({*words}) == 1, parts))
    inside = sum(other.startswith(f"{y}.") for _, other in pairs)
    return y if y in b and inside == len(modules) else ""


def pair_by_name(a: Mapping[str, str], b: Mapping[str, str], pairs: dict[str, str]) -> None:
    """Add to ``pairs``, in place, the modules of one type whose names below their nearest paired
    parents are equal, or else whose full names are."""
    for x in a:
        if x in pairs:
            continue
        above = parent_name(x)
        while above and above not in pairs:
            above = parent_name(above)
        tail = x[len(above) :].lstrip(".")
        below = f"{pairs[above]}.{tail}" if above in pairs else tail
        for y in (below, x):
            if y in b and y not in pairs.values() and canonical_type(a[x]) == canonical_type(b[y]):
                pairs[x] = y
                break


def pair_by_order(a: Mapping[str, str], b: Mapping[str, str], pairs: dict[str, str]) -> None:
    """Add to ``pairs``, in place, the remaining modules of each type in order, where both sides
    have the same number of them."""
    taken = set(pairs.values())
    for wanted in {canonical_type(t) for t in a.values()}:
        xs = [x for x, t in a.items() if x not in pairs and canonical_type(t) == wanted]
        ys = [y for y, t in b.items() if y not in taken and canonical_type(t) == wanted]
        if len(xs) == len(ys):
            pairs |= dict(zip(xs, ys, strict=True))


def module_name(output: str) -> str:
    """Return the module that gave an output: ``enc.0`` of ``enc.0#2[1]``."""
    return re.split(r"[#\[]", output, maxsplit=1)[0]
