"""Rules that pair the parameters of two models; each removes the pairs it finds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from dualml.parity.models.partners import Change, Tensor, TensorPair, canonical_name, find_change


class UnmatchedParameters:
    """Two models' parameters and buffers, of which some are not paired yet; each ``by_…`` method is
    a rule that adds the pairs it finds to ``pairs``.

    Args:
        a, b: all tensors of both sides.
        pairs: name in ``a`` → its pair, as far as known; changed in place.
    """

    def __init__(
        self, a: Sequence[Tensor], b: Sequence[Tensor], pairs: dict[str, TensorPair]
    ) -> None:
        self.a, self.b, self.pairs = a, b, pairs

    def remaining(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the tensors of ``a`` and of ``b`` that have no partner yet, in order."""
        taken = {pair.b for pair in self.pairs.values()}
        return (
            [one for one in self.a if one.name not in self.pairs],
            [one for one in self.b if one.name not in taken],
        )

    def add_pair(self, x: Tensor, y: Tensor, how: str, allowed: Sequence[Change]) -> None:
        """Add the pair of two tensors to ``pairs`` if one of the ``allowed`` conversions makes
        their shapes equal; else do nothing.

        Args:
            how: name of the rule that found the pair, stored with it.
        """
        change = find_change(x.shape, y.shape)
        if change is not None and change in allowed:
            self.pairs[x.name] = TensorPair(x.name, y.name, how, change)

    def by_key(
        self, how: str, key: Callable[[Tensor], Hashable], allowed: Sequence[Change]
    ) -> None:
        """Pair tensors without a partner whose key occurs exactly once on each side.

        Args:
            how: name of the rule, stored with its pairs.
            key: returns what a tensor is told apart by, such as its name.
            allowed: conversions that may make their shapes equal; ``""`` is none.
        """
        by_a, by_b = (group_by_key(side, key) for side in self.remaining())
        for word, xs in by_a.items():
            if len(xs) == 1 and len(by_b.get(word, ())) == 1:
                self.add_pair(xs[0], by_b[word][0], how, allowed)

    def by_mapping(self, how: str, pairs: Mapping[str, str], allowed: Sequence[Change]) -> None:
        """Pair tensors as a mapping from names in ``a`` to names in ``b`` says; names that are
        paired already or do not exist, and shapes that no ``allowed`` conversion makes equal, are
        ignored."""
        xs, ys = ({one.name: one for one in side} for side in self.remaining())
        for x, y in pairs.items():
            if x in xs and y in ys:
                self.add_pair(xs[x], ys[y], how, allowed)

    def by_ending(self, allowed: Sequence[Change]) -> None:
        """Pair tensors if one dotted name ends with the other (``layers.0.weight`` and
        ``0.weight``), an ``allowed`` conversion makes their shapes equal, and neither has another
        such partner."""
        rest_a, rest_b = self.remaining()
        pairs = [
            (x, y)
            for x in rest_a
            for y in rest_b
            if is_name_ending(canonical_name(x.name), canonical_name(y.name))
            and find_change(x.shape, y.shape) in allowed
        ]
        times = Counter(one.name for one, _ in pairs), Counter(one.name for _, one in pairs)
        for x, y in pairs:
            if times[0][x.name] == times[1][y.name] == 1:
                self.add_pair(x, y, "ending", allowed)

    def by_block(self, allowed: Sequence[Change]) -> None:
        """Pair the tensors of two outermost modules of different names, if these hold the same
        names with shapes that fit, and no third module does. Modules of which any tensor is paired
        are left out."""

        def blocks(whole: Sequence[Tensor], left: Sequence[Tensor]) -> dict[str, dict[str, Tensor]]:
            """Return the outermost modules without any paired tensor: first part of the name → rest
            → tensor.

            Args:
                whole: all tensors of a side.
                left: those without a partner.
            """
            named: dict[str, dict[str, Tensor]] = defaultdict(dict)
            for one in whole:
                head, _, tail = canonical_name(one.name).partition(".")
                named[head][tail] = one
            # A module is not considered if some of its parameters are paired already.
            free = {one.name for one in left}
            return {
                head: row
                for head, row in named.items()
                if all(one.name in free for one in row.values())
            }

        def same_contents(x: dict[str, Tensor], y: dict[str, Tensor]) -> bool:
            """Return whether two modules have the same names inside, with shapes that fit."""
            return x.keys() == y.keys() and all(
                find_change(x[tail].shape, y[tail].shape) in allowed for tail in x
            )

        sides = zip((self.a, self.b), self.remaining(), strict=True)
        of_a, of_b = (blocks(whole, left) for whole, left in sides)
        partners = {x: [y for y in of_b if same_contents(of_a[x], of_b[y])] for x in of_a}
        for x, ys in partners.items():
            if len(ys) == 1 and sum(ys[0] in others for others in partners.values()) == 1:
                for tail, one in of_a[x].items():
                    self.add_pair(one, of_b[ys[0]][tail], "block", allowed)

    def by_order(self, key: Callable[[Tensor], Hashable], allowed: Sequence[Change]) -> None:
        """Pair tensors without a partner in order, for each key and shape of which both sides have
        equally many. Axes of length 1 do not count, nor, if only ``transpose`` is allowed, the
        order of axes."""

        def kind(one: Tensor) -> Hashable:
            """Return key and shape of a tensor, without axes of length one."""
            shape = tuple(n for n in one.shape if n != 1)
            return key(one), tuple(sorted(shape)) if allowed == ["transpose"] else shape

        by_a, by_b = (group_by_key(side, kind) for side in self.remaining())
        for word, xs in by_a.items():
            ys = by_b.get(word, [])
            if len(xs) == len(ys):
                for x, y in zip(xs, ys, strict=True):
                    self.add_pair(x, y, "order", allowed)

    def by_sequence(self) -> None:
        """Pair the tensors without a partner along the longest common subsequence of shapes; ties
        are broken by similarity of names. One side may have more layers, or fewer biases."""
        xs, ys = self.remaining()
        best = np.zeros((len(xs) + 1, len(ys) + 1))
        score = np.full((len(xs), len(ys)), -1.0)
        for i in range(len(xs) - 1, -1, -1):
            for j in range(len(ys) - 1, -1, -1):
                if (
                    xs[i].trained == ys[j].trained
                    and find_change(xs[i].shape, ys[j].shape) is not None
                ):
                    score[i, j] = (
                        best[i + 1, j + 1] + 1 + 0.1 * name_similarity(xs[i].name, ys[j].name)
                    )
                best[i, j] = max(best[i + 1, j], best[i, j + 1], score[i, j])
        i = j = 0
        while i < len(xs) and j < len(ys):
            if score[i, j] == best[i, j]:
                self.add_pair(xs[i], ys[j], "order", ["", "transpose", "reshape"])
                i, j = i + 1, j + 1
            elif best[i + 1, j] >= best[i, j + 1]:
                i += 1
            else:
                j += 1


def name_similarity(x: str, y: str) -> float:
    """Return the share of dotted parts, in PyTorch's terms, that two names have in common: distinct
    common parts divided by all distinct parts, from 0 to 1."""
    a, b = (set(canonical_name(one).split(".")) for one in (x, y))
    return len(a & b) / len(a | b)


def is_name_ending(x: str, y: str) -> bool:
    """Return whether one of two dotted names ends with a dot and the other one; False for equal
    names."""
    return x.endswith(f".{y}") or y.endswith(f".{x}")


def group_by_key(
    side: Sequence[Tensor], key: Callable[[Tensor], Hashable]
) -> dict[Hashable, list[Tensor]]:
    """Return key → the tensors that have it, in the order of ``side``."""
    groups: dict[Hashable, list[Tensor]] = defaultdict(list)
    for one in side:
        groups[key(one)].append(one)
    return groups
