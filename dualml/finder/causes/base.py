"""A guess, how well it explains what was recorded, and common ways in which numbers go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.scene import Scene

Arrays = Mapping[str, NDArray[Any]]
TINY = 1e-300
#: (‖a − b‖ / ‖b‖)² from which on a tensor is another one.
DISTURBED = 1e-8


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
        start, arrays = f"{step}/{self.phase}/", self.scene.referee.ranks[rank]
        return {key[len(start) :]: self.scene.right(self.backend, rank, key)
                for key in arrays if key.startswith(start)}  # fmt: skip


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
    predict: Callable[[int, int], Arrays]
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
        seen, right = suspect.seen(step, rank), suspect.right(step, rank)
        predicted = guess.predict(step, rank)
        for name, found in seen.items():
            # What comes after a layer follows from it: its output is what there is to explain.
            if name not in right or (suspect.phase == "forward" and name != suspect.tensor):
                continue
            told = predicted.get(name, right[name])
            off, rest = squares(found, right[name]), squares(found, told)
            total, left = total + off, left + rest
    return float(np.sqrt(left / total)) if total > 0 else 1.0


def disturbs(suspect: Suspect, guess: Guess) -> bool:
    """Whether the guess changes much at updates where nothing is wrong. A fault may come and go;
    but of two guesses that explain alike, the one that leaves these alone is the better one."""
    return any(
        squares(told, suspect.right(step, rank)[name]) > DISTURBED
        for step, rank in suspect.clean
        for name, told in guess.predict(step, rank).items()
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
        both = np.isfinite(a) != np.isfinite(b)
        return 1e6 if both.any() else 0.0
    return min(off / max(size, TINY), 1e6) if off else 0.0


def fit(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    """c with the least Σ‖a − c·b‖² over pairs (a, b)."""
    up = sum(float(np.vdot(b.astype(np.float64), a.astype(np.float64))) for a, b in pairs)
    down = sum(float(np.square(b.astype(np.float64)).sum()) for _, b in pairs)
    return up / down if down else 0.0


def rounded(a: NDArray[Any], kind: str) -> NDArray[Any]:
    """As float16 or bfloat16 keeps it, to the nearest."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return a.astype(np.float16).astype(np.float64)
    bits = a.astype(np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + 0x7FFF
    return ((bits + even.astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32).astype(float)


def narrow(suspect: Suspect, names: Sequence[str] | None = None) -> Iterator[Guess]:
    """The phase's tensors passed through half precision."""
    for kind in ("float16", "bfloat16"):

        def predict(step: int, rank: int, kind: str = kind) -> Arrays:
            right = suspect.right(step, rank)
            return {n: rounded(a, kind) for n, a in right.items() if names is None or n in names}

        yield Guess("half-precision", predict, {"type": kind})


def scaled(suspect: Suspect, cause: str, known: Mapping[str, float]) -> Iterator[Guess]:
    """All tensors times one number: a named one, or a fitted one."""
    pairs = [(found, suspect.right(step, rank)[name])
             for step, rank in suspect.looks
             for name, found in suspect.seen(step, rank).items()
             if name in suspect.right(step, rank)
             and suspect.right(step, rank)[name].shape == found.shape]  # fmt: skip
    factor = fit(pairs)

    def times(c: float) -> Callable[[int, int], Arrays]:
        return lambda step, rank: {n: c * a for n, a in suspect.right(step, rank).items()}

    for name, c in known.items():
        yield Guess(name, times(c), {"factor": c})
    yield Guess(cause, times(factor), {"factor": factor}, free=1)
