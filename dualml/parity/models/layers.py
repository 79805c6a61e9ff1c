"""Which submodule of one model is which submodule of the other.

It follows from the parameters: where ``enc.0.weight`` is ``encoder.layers.0.weight``, the module
``enc`` is ``encoder.layers``. Modules without parameters (activations, pooling) are found by name
under their paired parent, then by their order among modules of one kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dualml.parity.models.mapping import Pairing

#: Kinds that the frameworks call otherwise; all else is compared in small letters.
KINDS = {"dense": "linear", "sequentialcell": "sequential", "celllist": "modulelist"}


def kind(type_name: str) -> str:
    word = type_name.lower()
    return KINDS.get(word, word)


def parent(name: str) -> str:
    return name.rpartition(".")[0]


def pair_modules(a: Mapping[str, str], b: Mapping[str, str], mapping: Pairing) -> dict[str, str]:
    """Name in ``a`` → name in ``b``; both are name → type, in the order of the framework."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in mapping.pairs:
        x, y = parent(pair.a), parent(pair.b)
        while x in a and y in b and x and y:
            votes[x][y] += 1
            if x.rpartition(".")[2] != y.rpartition(".")[2]:
                break  # above a renamed part nothing says which is which
            x, y = parent(x), parent(y)
    found: dict[str, str] = {}
    for x, names in votes.items():
        y = names.most_common(1)[0][0]
        if y not in found.values():
            found[x] = y
    take_by_name(a, b, found)
    take_by_order(a, b, found)
    return found


def take_by_name(a: Mapping[str, str], b: Mapping[str, str], found: dict[str, str]) -> None:
    """Equal names, or equal names below the nearest paired parent."""
    for x in a:
        if x in found:
            continue
        above = parent(x)
        while above and above not in found:
            above = parent(above)
        tail = x[len(above) :].lstrip(".")
        below = f"{found[above]}.{tail}" if above in found else tail
        for y in (below, x):
            if y in b and y not in found.values() and kind(a[x]) == kind(b[y]):
                found[x] = y
                break


def take_by_order(a: Mapping[str, str], b: Mapping[str, str], found: dict[str, str]) -> None:
    """The first with the first among modules of one kind, where both sides have equally many."""
    for x_kind in {kind(t) for t in a.values()}:
        xs = [x for x in rest(a, found) if kind(a[x]) == x_kind]
        ys = [y for y in rest(b, found.values()) if kind(b[y]) == x_kind]
        if len(xs) == len(ys):
            found |= dict(zip(xs, ys, strict=True))


def rest(modules: Mapping[str, str], taken: object) -> Sequence[str]:
    return [name for name in modules if name not in taken]  # type: ignore[operator]
