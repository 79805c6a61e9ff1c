"""Pair the submodules of two models.

Pairs follow from the parameters: if ``enc.0.weight`` is ``encoder.layers.0.weight``, the module
``enc`` is ``encoder.layers``. Modules without parameters (activations, pooling) are paired by name
under their paired parent, then by their order among modules of the same type.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from dualml.parity.models.partners import Pairing

#: MindSpore's type names → PyTorch's; all others are compared in lower case.
KINDS = {"dense": "linear", "sequentialcell": "sequential", "celllist": "modulelist"}


def canonical_type(type_name: str) -> str:
    """Return a module's type name in lower case, in PyTorch's terms."""
    word = type_name.lower()
    return KINDS.get(word, word)


def parent_name(name: str) -> str:
    """Return the dotted name of the enclosing module; empty at the top."""
    return name.rpartition(".")[0]


def pair_modules(a: Mapping[str, str], b: Mapping[str, str], mapping: Pairing) -> dict[str, str]:
    """Pair the modules of two models; return name in ``a`` → name in ``b``.

    Args:
        a, b: name → type, in the framework's order.
        mapping: the parameters of both models, paired.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in mapping.pairs:
        x, y = parent_name(pair.a), parent_name(pair.b)
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
    pair_by_name(a, b, pairs)
    pair_by_order(a, b, pairs)
    return pairs


def pair_by_name(a: Mapping[str, str], b: Mapping[str, str], pairs: dict[str, str]) -> None:
    """Add to ``pairs`` the modules of one type with equal names below their nearest paired parents,
    or else with equal full names."""
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
    """Add to ``pairs`` the remaining modules of one type in order, where both sides have the same
    number of them."""
    taken = set(pairs.values())
    for wanted in {canonical_type(t) for t in a.values()}:
        xs = [x for x, t in a.items() if x not in pairs and canonical_type(t) == wanted]
        ys = [y for y, t in b.items() if y not in taken and canonical_type(t) == wanted]
        if len(xs) == len(ys):
            pairs |= dict(zip(xs, ys, strict=True))


def module_name(output: str) -> str:
    """Return the module that gave an output: ``enc.0`` of ``enc.0#2[1]``."""
    return re.split(r"[#\[]", output, maxsplit=1)[0]
