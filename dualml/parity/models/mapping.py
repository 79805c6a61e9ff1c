"""Which parameter of one model is which parameter of the other.

Pairs are found in this order, each way only where it leaves no choice: as the user says; what the
two models do with them (`dualml.parity.models.roles`), where names alone do not pair all; equal
names; equal names once both frameworks' words are one (``gamma`` → ``weight``); equal endings
(``layers.0.weight`` and ``0.weight``); equal contents of a module that is called otherwise
(``head.weight``, ``head.bias`` and ``fc.weight``, ``fc.bias``); and last, among equal shapes, the
same order of their use, or of the lists. Within each way a shape may also be transposed (a matrix
stored as (in, out)), have more axes of length one (MindSpore's Conv1d) or several axes in one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError, nearest

Shape = tuple[int, ...]
Change = Literal["", "transpose", "reshape"]
#: What a user may write for a partner.
Asked = Mapping[str, "str | Sequence[str]"]
#: MindSpore's words for what PyTorch calls otherwise; the last part of a name.
WORDS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
    "w": "weight",  # PReLU
}
#: Of torch's buffers: a counter that MindSpore does not keep.
COUNTERS = ("num_batches_tracked",)
#: Share of the trained parameters of the smaller model that must have partners.
LEAST = 0.5
NEAREST = 3  # shapes of the other side that an error names


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer as its framework lists it.

    Attributes:
        name: dotted, as the framework calls it.
        trained: whether the optimizer changes it; running statistics and constants are not.
    """

    name: str
    shape: Shape
    trained: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "trained": self.trained}


@dataclass(frozen=True)
class Pair:
    """Two names of one tensor.

    Attributes:
        how: ``asked``, ``role``, ``name``, ``word``, ``ending``, ``block`` or ``order``.
        change: what turns ``b``'s array into ``a``'s, and back.
    """

    a: str
    b: str
    how: str
    change: Change = ""

    def describe(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class Pairing:
    """All pairs, in the order of ``a``, and what has no partner and needs none.

    Attributes:
        left: names of buffers that only one side has (a mask, a table of positions), by side.
        alone: names of trained parameters that only one side has (a bias, an untied head), by side.
    """

    pairs: tuple[Pair, ...]
    left: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    alone: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def canonical(name: str) -> str:
    """The name with PyTorch's word at its end: ``norm.gamma`` → ``norm.weight``."""
    head, dot, last = name.rpartition(".")
    return head + dot + WORDS.get(last, last)


def fit(a: Shape, b: Shape) -> Change | None:
    """How an array of shape ``b`` becomes one of shape ``a``; None if it cannot.

    Example:
        >>> fit((8, 4), (4, 8)), fit((6, 6, 3), (6, 6, 1, 3)), fit((2, 6), (12,)), fit((2,), (3,))
        ('transpose', 'reshape', 'reshape', None)
    """
    if a == b:
        return ""
    if len(a) == len(b) == 2 and a == b[::-1]:
        return "transpose"
    return "reshape" if math.prod(a) == math.prod(b) and (merged(a, b) or merged(b, a)) else None


def merged(whole: Shape, parts: Shape) -> bool:
    """Whether every axis of one shape is a product of neighbouring axes of the other."""
    rest = [n for n in parts if n != 1]
    for length in (n for n in whole if n != 1):
        product = 1
        while product < length and rest:
            product *= rest.pop(0)
        if product != length:
            return False
    return not rest


def changed(array: NDArray[Any], change: Change, shape: Shape) -> NDArray[Any]:
    """An array in the other side's ``shape``; every change is its own way back."""
    if change == "transpose":
        return np.ascontiguousarray(array.T)
    return array.reshape(shape) if change == "reshape" else array


def match(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    asked: Asked | None = None,
    sides: tuple[str, str] = ("torch", "mindspore"),
    roles: Mapping[str, str] | None = None,
    guesses: Mapping[str, str] | None = None,
) -> Pairing:
    """Pair the tensors of two models.

    Args:
        roles: name in ``a`` → name in ``b``, of tensors with which the two do the same.
        guesses: the same of tensors that are used in the same order.
        asked: name in ``a`` → name in ``b``, or ``(name, "transpose")``; goes before everything.

    Raises:
        UserError: a name in ``asked`` that is not there or has another shape; trained parameters
            left over, with their shapes and the nearest on the other side.
    """
    a = [one for one in a if one.name.rpartition(".")[2] not in COUNTERS]
    b = [one for one in b if one.name.rpartition(".")[2] not in COUNTERS]
    rest = Rest(a, b, explicit(a, b, asked or {}, sides))
    ways: list[list[Change]] = [["", "reshape"], ["transpose"]]
    for allowed in ways:
        rest.as_told("role", roles or {}, allowed)
    for allowed in ways:
        rest.by_key("name", lambda one: one.name, allowed)
        rest.by_key("word", lambda one: canonical(one.name), allowed)
    for way in (rest.by_ending, rest.by_block):
        for allowed in ways:
            way(allowed)
    for allowed in ways:
        rest.as_told("order", guesses or {}, allowed)
    for allowed in ways:
        rest.by_order(lambda one: canonical(one.name).rpartition(".")[2], allowed)
        rest.by_order(lambda one: one.trained, allowed)
    if all(any(one.trained for one in side) for side in rest.left()):
        rest.by_sequence()
    left = rest.left()
    trained = [[one for one in side if one.trained] for side in left]
    # A difference of the models, as long as most of one of them has partners.
    paired = sum(one.trained for one in a if one.name in rest.pairs)
    fewest = paired + min(map(len, trained))
    pieces = [sum(one.size for one in side) for side in trained]
    # The same numbers in other pieces: three matrices and one that holds all of them.
    if any(trained) and (paired < fewest * LEAST or pieces[0] == pieces[1]):
        raise UserError(leftovers(left, (a, b), sides))
    order = {one.name: i for i, one in enumerate(a)}
    pairs = tuple(sorted(rest.pairs.values(), key=lambda pair: order[pair.a]))
    buffers = [tuple(x.name for x in side if not x.trained) for side in left]
    alone = [tuple(x.name for x in side) for side in trained]
    return Pairing(pairs, (buffers[0], buffers[1]), (alone[0], alone[1]))


def named(a: Sequence[Tensor], b: Sequence[Tensor], asked: Asked | None = None) -> bool:
    """Whether names alone pair everything that one side trains: then no other way is asked."""
    asked = asked or {}
    taken = {value if isinstance(value, str) else value[0] for value in asked.values()}
    left = (
        {canonical(one.name): one.shape for one in a if one.trained and one.name not in asked},
        {canonical(one.name): one.shape for one in b if one.trained and one.name not in taken},
    )
    fewer, more = sorted(left, key=len)
    return bool(fewer or not more) and all(
        name in more and fit(shape, more[name]) is not None for name, shape in fewer.items()
    )


def likeliest(
    one: Tensor, a: Sequence[Tensor], arrays: Mapping[str, NDArray[Any]]
) -> NDArray[Any] | None:
    """What to start a parameter with that only the second side has: a table that is tied on the
    first side has the same shape. None if nothing has."""
    return next((arrays[x.name] for x in a if x.trained and x.shape == one.shape), None)


def explicit(
    a: Sequence[Tensor], b: Sequence[Tensor], asked: Asked, sides: tuple[str, str]
) -> dict[str, Pair]:
    shapes = [{one.name: one.shape for one in side} for side in (a, b)]
    pairs: dict[str, Pair] = {}
    for name, partner in asked.items():
        other, *how = [partner] if isinstance(partner, str) else list(partner)
        for word, known, side in ((name, shapes[0], sides[0]), (other, shapes[1], sides[1])):
            if word not in known:
                raise UserError(f"map: {side} has no parameter {word!r}{nearest(word, known)}")
        if how not in ([], ["transpose"]):
            raise UserError(f"map: after the name only 'transpose'; received {how} for {name!r}")
        change: Change | None = fit(shapes[0][name], shapes[1][other])
        if how and shapes[0][name] == shapes[1][other][::-1]:
            change = "transpose"  # also of a square matrix, which fits both ways
        if change is None or (how and change != "transpose"):
            raise UserError(
                f"map: {name} {shapes[0][name]} cannot be {' '.join([other, *how])} "
                f"{shapes[1][other]}: the shapes differ"
            )
        if other in {pair.b for pair in pairs.values()}:
            raise UserError(f"map: {other!r} is named twice")
        pairs[name] = Pair(name, other, "asked", change)
    return pairs


class Rest:
    """What has no partner yet; each way takes away what it can pair."""

    def __init__(self, a: Sequence[Tensor], b: Sequence[Tensor], pairs: dict[str, Pair]) -> None:
        self.a, self.b, self.pairs = a, b, pairs

    def left(self) -> tuple[list[Tensor], list[Tensor]]:
        taken = {pair.b for pair in self.pairs.values()}
        return (
            [one for one in self.a if one.name not in self.pairs],
            [one for one in self.b if one.name not in taken],
        )

    def pair(self, x: Tensor, y: Tensor, how: str, allowed: Sequence[Change]) -> None:
        change = fit(x.shape, y.shape)
        if change is not None and change in allowed:
            self.pairs[x.name] = Pair(x.name, y.name, how, change)

    def by_key(
        self, how: str, key: Callable[[Tensor], Hashable], allowed: Sequence[Change]
    ) -> None:
        """Where exactly one tensor of each side has a key."""
        by_a, by_b = (grouped(side, key) for side in self.left())
        for word, xs in by_a.items():
            if len(xs) == 1 and len(by_b.get(word, ())) == 1:
                self.pair(xs[0], by_b[word][0], how, allowed)

    def as_told(self, how: str, pairs: Mapping[str, str], allowed: Sequence[Change]) -> None:
        xs, ys = ({one.name: one for one in side} for side in self.left())
        for x, y in pairs.items():
            if x in xs and y in ys:
                self.pair(xs[x], ys[y], how, allowed)

    def by_ending(self, allowed: Sequence[Change]) -> None:
        """``layers.0.weight`` and ``0.weight``: one name is the end of the other, and no second."""
        rest_a, rest_b = self.left()
        pairs = [
            (x, y)
            for x in rest_a
            for y in rest_b
            if ends(canonical(x.name), canonical(y.name)) and fit(x.shape, y.shape) in allowed
        ]
        times = Counter(one.name for one, _ in pairs), Counter(one.name for _, one in pairs)
        for x, y in pairs:
            if times[0][x.name] == times[1][y.name] == 1:
                self.pair(x, y, "ending", allowed)

    def by_block(self, allowed: Sequence[Change]) -> None:
        """Outermost modules with other names and equal contents, where no two are alike."""

        def blocks(side: Sequence[Tensor]) -> dict[str, dict[str, Tensor]]:
            named: dict[str, dict[str, Tensor]] = defaultdict(dict)
            for one in side:
                head, _, tail = canonical(one.name).partition(".")
                named[head][tail] = one
            return named

        def alike(x: dict[str, Tensor], y: dict[str, Tensor]) -> bool:
            return x.keys() == y.keys() and all(
                fit(x[tail].shape, y[tail].shape) in allowed for tail in x
            )

        of_a, of_b = (blocks(side) for side in self.left())
        partners = {x: [y for y in of_b if alike(of_a[x], of_b[y])] for x in of_a}
        for x, ys in partners.items():
            if len(ys) == 1 and sum(ys[0] in others for others in partners.values()) == 1:
                for tail, one in of_a[x].items():
                    self.pair(one, of_b[ys[0]][tail], "block", allowed)

    def by_order(self, key: Callable[[Tensor], Hashable], allowed: Sequence[Change]) -> None:
        """The first with the first, where both sides have equally many of one shape and kind."""

        def kind(one: Tensor) -> Hashable:
            shape = tuple(n for n in one.shape if n != 1)
            return key(one), tuple(sorted(shape)) if allowed == ["transpose"] else shape

        by_a, by_b = (grouped(side, kind) for side in self.left())
        for word, xs in by_a.items():
            ys = by_b.get(word, [])
            if len(xs) == len(ys):
                for x, y in zip(xs, ys, strict=True):
                    self.pair(x, y, "order", allowed)

    def by_sequence(self) -> None:
        """The longest common sequence of shapes, of several the one whose names are most alike:
        one side has more layers, or fewer biases."""
        xs, ys = self.left()
        best = np.zeros((len(xs) + 1, len(ys) + 1))
        score = np.full((len(xs), len(ys)), -1.0)
        for i in range(len(xs) - 1, -1, -1):
            for j in range(len(ys) - 1, -1, -1):
                if xs[i].trained == ys[j].trained and fit(xs[i].shape, ys[j].shape) is not None:
                    score[i, j] = best[i + 1, j + 1] + 1 + 0.1 * likeness(xs[i].name, ys[j].name)
                best[i, j] = max(best[i + 1, j], best[i, j + 1], score[i, j])
        i = j = 0
        while i < len(xs) and j < len(ys):
            if score[i, j] == best[i, j]:
                self.pair(xs[i], ys[j], "order", ["", "transpose", "reshape"])
                i, j = i + 1, j + 1
            elif best[i + 1, j] >= best[i, j + 1]:
                i += 1
            else:
                j += 1


def likeness(x: str, y: str) -> float:
    """Share of common parts of two names, in PyTorch's words."""
    a, b = (set(canonical(one).split(".")) for one in (x, y))
    return len(a & b) / len(a | b)


def ends(x: str, y: str) -> bool:
    return x.endswith(f".{y}") or y.endswith(f".{x}")


def grouped(
    side: Sequence[Tensor], key: Callable[[Tensor], Hashable]
) -> dict[Hashable, list[Tensor]]:
    groups: dict[Hashable, list[Tensor]] = defaultdict(list)
    for one in side:
        groups[key(one)].append(one)
    return groups


def leftovers(
    left: tuple[Sequence[Tensor], Sequence[Tensor]],
    all_: tuple[Sequence[Tensor], Sequence[Tensor]],
    sides: tuple[str, str],
) -> str:
    """Everything without a partner, with shapes, and what is nearest on the other side."""
    parts = []
    for i, side in enumerate(sides):
        other = left[1 - i] or all_[1 - i]
        alone = []
        for one in (x for x in left[i] if x.trained):
            near = sorted(other, key=partial(apart, one))[:NEAREST]
            shown = ", ".join(f"{y.name} {y.shape}" for y in near) or "none"
            alone.append(f"{one.name} {one.shape} (nearest: {shown})")
        total = sum(one.trained for one in all_[i])
        listed = ": " + ", ".join(alone) if alone else ""
        parts.append(f"{len(alone)} of {total} in {side}{listed}")
    return (
        f"parameters without a partner: {'; '.join(parts)}; these are two models, or they keep the "
        "same numbers in other pieces: cut one of them like the other to compare them"
    )


def apart(x: Tensor, y: Tensor) -> tuple[float, int]:
    """How unlike two shapes are: another number of axes first, then the ratio of their lengths."""
    if len(x.shape) != len(y.shape):
        return 1e9, abs(len(x.shape) - len(y.shape))
    ways = (y.shape, y.shape[::-1])
    return min(
        sum(abs(np.log((m + 1) / (n + 1))) for m, n in zip(x.shape, way, strict=True))
        for way in ways
    ), 0
