"""Hypotheses about an aggregated gradient, when each rank's own gradient is correct."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dualml.finder.causes.base import (
    HALVES,
    Arrays,
    Guess,
    Suspect,
    flat,
    narrow,
    quarters,
    rounded,
    scaled,
)


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the aggregation."""
    size = suspect.ranks
    for factor in (float(size), 1 / size):
        cause = "sum-not-mean" if factor > 1 else "averaged-twice"
        yield Guess(cause, suspect.times(factor), {"factor": factor})
    yield from unsynchronised(suspect)
    if all(suspect.referee(s, q, "gradient") for s, _ in suspect.looks for q in range(size)):
        yield from by_rank(suspect)
        yield from sent_narrow(suspect)
        yield from of_parameters(suspect)
    yield Guess("stale-gradient", lambda s, r: suspect.gradient_before(s))
    yield from narrow(suspect)
    yield scaled(suspect, "scaled-gradient")
    yield Guess("not-aggregated", suspect.times(0), {"found": "zeros"})


def own_gradients(suspect: Suspect, step: int) -> list[Arrays]:
    """Return the gradient of each rank before the aggregation."""
    return [suspect.referee(step, rank, "gradient") for rank in range(suspect.ranks)]


def unsynchronised(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: ranks continue with their own gradient, scaled for the sum or not."""
    for for_sum in (True, False):

        def predict(step: int, rank: int, for_sum: bool = for_sum) -> Arrays:
            whole = 1.0 if for_sum else suspect.share(step, rank)
            return {n: a / whole for n, a in suspect.referee(step, rank, "gradient").items()}

        yield Guess("unsynchronised-rank", predict, {"ranks": suspect.lone})


def by_rank(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the ranks' gradients are summed with other weights, which are fitted."""
    fitted = {}
    for step, rank in suspect.looks:
        seen, parts = suspect.seen(step, rank), own_gradients(suspect, step)
        if not all(np.isfinite(a).all() and parts[0][n].shape == a.shape for n, a in seen.items()):
            return
        columns = [flat({name: part[name] for name in seen}) for part in parts]
        fitted[step, rank] = quarters(columns, flat(seen))

    def predict(step: int, rank: int) -> Arrays:
        if (step, rank) not in fitted:
            return {}
        parts = list(zip(fitted[step, rank], own_gradients(suspect, step), strict=True))
        return {n: sum(w * part[n] for w, part in parts) for n in parts[0][1]}

    first = fitted[suspect.looks[0]]
    if len(set(first.tolist())) == 1:
        return
    usual = float(np.median(first)) if suspect.ranks > 2 else 1.0
    odd = [q for q, w in enumerate(first) if w != usual]
    cause = "lost-rank" if all(first[q] < usual for q in odd) else "doubled-rank"
    detail = {"ranks": odd, "weights": [float(first[q]) for q in odd]}
    yield Guess(cause, predict, detail, free=1)


def sent_narrow(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: every rank sends its gradient in half precision; the sum is also rounded, or
    not."""

    def predict(step: int, rank: int, kind: str, again: bool) -> Arrays:
        parts = own_gradients(suspect, step)
        total = {n: np.asarray(sum(rounded(p[n], kind) for p in parts)) for n in parts[0]}
        return {n: rounded(a, kind) if again else a for n, a in total.items()}

    for kind in HALVES:
        for again in (True, False):
            yield Guess("half-precision", partial(predict, kind=kind, again=again), {"type": kind})


def of_parameters(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: some tensors are not aggregated."""
    step, rank = suspect.looks[0]
    alone, whole, off = suspect.referee(step, rank, "gradient"), suspect.right(step, rank), []
    for name, seen in suspect.seen(step, rank).items():
        same = seen.shape == alone[name].shape
        if same and np.abs(seen - alone[name]).sum() < np.abs(seen - whole[name]).sum():
            off.append(name)
    if off and len(off) < len(whole):

        def predict(step: int, rank: int) -> Arrays:
            own = suspect.referee(step, rank, "gradient")
            return {name: own[name] for name in off}

        yield Guess("not-aggregated", predict, {"parameters": off})
