"""A guess, how well it explains what was recorded, and common ways in which numbers go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.scene import Scene

Arrays = Mapping[str, NDArray[Any]]
#: (update, rank) → tensors of the phase as they would be.
Predict = Callable[[int, int], Arrays]
TINY = 1e-300
#: (‖a − b‖ / ‖b‖)² from which on a tensor is another one.
DISTURBED = 1e-8
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Suspect:
    """The tensors that a guess has to explain.

    Attributes:
        looks: (update, rank) that are out of the rule in this phase, and in none before it.
        clean: (update, rank) that are within it: what a guess should leave as they are.
        tensor: the first one that is.
    """

    scene: Scene
    backend: str
    phase: str
    tensor: str
    looks: Sequence[tuple[int, int]]
    clean: Sequence[tuple[int, int]] = ()

    def seen(self, step: int, rank: int) -> dict[str, NDArray[Any]]:
        return tensors(self.scene.sides[self.backend].ranks[rank], step, self.phase)

    def right(self, step: int, rank: int) -> dict[str, NDArray[Any]]:
        return {name: self.scene.right(self.backend, rank, f"{step}/{self.phase}/{name}")
                for name in self.referee(step, rank, self.phase)}  # fmt: skip

    def referee(self, step: int, rank: int, phase: str) -> dict[str, NDArray[Any]]:
        return tensors(self.scene.referee.ranks[rank], step, phase)

    def pairs(self) -> Iterator[tuple[int, str, NDArray[Any], NDArray[Any]]]:
        """Of everything to explain that has the right shape: update, name, seen, right."""
        for step, rank in self.looks:
            right = self.right(step, rank)
            for name, seen in self.seen(step, rank).items():
                if name in right and right[name].shape == seen.shape:
                    yield step, name, seen, right[name]

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Predict:
        """Every tensor of the phase, changed."""
        return lambda step, rank: {n: change(a) for n, a in self.right(step, rank).items()}

    def times(self, factor: float) -> Predict:
        return self.each(lambda a: factor * a)

    @property
    def ranks(self) -> int:
        return len(self.scene.referee.ranks)

    @property
    def lone(self) -> list[int]:
        """The ranks that are off."""
        return sorted({rank for _, rank in self.looks})

    def share(self, step: int, rank: int) -> float:
        """What a rank's mean gradient is multiplied with before all are added up."""
        return len(self.scene.part(step, rank)) / len(self.scene.batch(step))

    def gradient_before(self, step: int) -> Mapping[str, NDArray[Any]]:
        """What the update before was made with; empty where its start is not known."""
        if step - 1 not in self.scene.states:
            return {}
        return self.scene.gradient(step - 1, self.scene.batch(step - 1))[1]


@dataclass(frozen=True)
class Guess:
    """What would be if.

    Attributes:
        cause: its name in ``words/LANG/causes.toml``.
        predict: ``predict(step, rank)`` → tensors of the phase that the cause changes.
        detail: numbers that were tried or fitted, for the report.
        free: how many of them were fitted: of two guesses that explain as much, the one with fewer
            is the better one.
    """

    cause: str
    predict: Predict
    detail: dict[str, Any] = field(default_factory=dict)
    free: int = 0


def tensors(arrays: Arrays, step: int, phase: str) -> dict[str, NDArray[Any]]:
    start = f"{step}/{phase}/"
    return {key[len(start) :]: a for key, a in arrays.items() if key.startswith(start)}


def unexplained(suspect: Suspect, guess: Guess) -> float:
    """What is left of the difference: 0 nothing, 1 all of it; more where it makes things worse.

    Every tensor counts by the share of its own size that it is off. One that the guess does not
    mention stays as the rule has it.
    """
    left = total = 0.0
    for step, rank in suspect.looks:
        right, predicted = suspect.right(step, rank), guess.predict(step, rank)
        for name, seen in suspect.seen(step, rank).items():
            # What comes after a layer follows from it: its output is what there is to explain.
            if name in right and (suspect.phase != "forward" or name == suspect.tensor):
                total += squares(seen, right[name])
                left += squares(seen, predicted.get(name, right[name]))
    return float(np.sqrt(left / total)) if total > 0 else 1.0


def disturbs(suspect: Suspect, guess: Guess) -> bool:
    """Whether the guess changes much at updates where nothing is wrong. A fault may come and go;
    but of two guesses that explain alike, the one that leaves these alone is the better one."""
    return any(
        squares(predicted, suspect.right(step, rank)[name]) > DISTURBED
        for step, rank in suspect.clean
        for name, predicted in guess.predict(step, rank).items()
        if name in suspect.right(step, rank)
    )


def squares(a: NDArray[Any], b: NDArray[Any]) -> float:
    """(‖a − b‖ / ‖b‖)², at most 1e6; of other shapes that."""
    if a.shape != b.shape:
        return 1e6
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        off, size = float(np.square(a - b).sum()), float(np.square(b).sum())
    if not np.isfinite(off):
        return 1e6 if (np.isfinite(a) != np.isfinite(b)).any() else 0.0
    return min(off / max(size, TINY), 1e6) if off else 0.0


def fit(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    """c with the least Σ‖a − c·b‖² over pairs (a, b)."""
    up = sum(float(np.vdot(b.astype(np.float64), a.astype(np.float64))) for a, b in pairs)
    down = sum(float(np.square(b.astype(np.float64)).sum()) for _, b in pairs)
    return up / down if down else 0.0


def quarters(columns: Sequence[NDArray[Any]], target: NDArray[Any]) -> NDArray[Any]:
    """The weights of columns that add up best to a target, as numbers that people would write."""
    weights = np.linalg.lstsq(np.stack(columns, 1), target, rcond=None)[0]
    rounded: NDArray[Any] = np.round(weights * 4) / 4 + 0.0  # no -0
    return rounded


def flat(named: Arrays) -> NDArray[np.float64]:
    return np.concatenate([a.astype(np.float64).ravel() for a in named.values()])


def norm_of(named: Arrays) -> float:
    return float(np.sqrt(sum(np.square(a.astype(np.float64)).sum() for a in named.values())))


def clipped(named: Mapping[str, NDArray[Any]], norm: float) -> dict[str, NDArray[Any]]:
    """All of it so much smaller that its norm is ``norm`` at most."""
    size = norm_of(named)
    return {n: a * min(1.0, norm / size) if size else a for n, a in named.items()}


def rounded(a: NDArray[Any], kind: str) -> NDArray[Any]:
    """As float16 or bfloat16 keeps it, to the nearest."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return a.astype(np.float16).astype(np.float64)
    bits = a.astype(np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + 0x7FFF
    return ((bits + even.astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32).astype(float)


def narrow(suspect: Suspect) -> Iterator[Guess]:
    """The phase's tensors passed through half precision."""
    for kind in HALVES:
        yield Guess("half-precision", suspect.each(partial(rounded, kind=kind)), {"type": kind})


def scaled(suspect: Suspect, cause: str) -> Guess:
    """All tensors times a fitted number."""
    factor = fit([(seen, right) for _, _, seen, right in suspect.pairs()])
    return Guess(cause, suspect.times(factor), {"factor": factor}, free=1)
