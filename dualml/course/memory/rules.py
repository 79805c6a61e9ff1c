"""ZeRO stage 1 with typical mistakes as options, for all ranks at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.mistakes import compute_mistaken


def zero_adam(
    options: Mapping[str, Any],
    arrays: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> list[Arrays]:
    """Compute each rank's ``3/parameters`` after update 3, for all updates, ``m`` and ``v`` at the
    end, and ``sent/NAME``, the elements of the last update's collectives.

    Args:
        options: ``steps``, and ``lr``, ``betas`` and ``eps`` in ``hyper``.
        arrays: each rank's parameters ``p`` and gradients ``g/3``, for all updates.
        flags: mistakes.
        number: dtype of the computation.
    """
    n, h = len(arrays), options["hyper"]
    b1, b2 = (number(b) for b in h["betas"])
    lr, eps = number(h["lr"]), number(h["eps"])
    length = len(arrays[0]["p"]) // n
    spans = [slice(r * length, (r + 1) * length) for r in range(n)]
    if "parts_reversed" in flags:
        spans = spans[::-1]
    now = [a["p"].astype(number) for a in arrays]
    m = [np.zeros(length, number) for _ in range(n)]
    v = [np.zeros(length, number) for _ in range(n)]
    out: list[dict[str, Any]] = [{} for _ in range(n)]
    for step in range(1, options["steps"] + 1):
        own = [a[f"g/{step}"].astype(number) for a in arrays]
        total = np.sum(own, axis=0, dtype=number)
        parts = []
        for r in range(n):
            place = slice(r * length, (r + 1) * length)
            g = own[r][place] if "own_gradient" in flags else total[place]
            if "summed" not in flags and "own_gradient" not in flags:
                g = g / number(n)
            if "divided_twice" in flags:
                g = g / number(n)
            m[r] = b1 * m[r] + (1 - b1) * g
            v[r] = b2 * v[r] + (1 - b2) * g * g
            t = 1 if "zero_step_frozen" in flags else step
            c1, c2 = number(1) - b1**t, number(1) - b2**t
            if "zero_uncorrected" in flags:
                c1 = c2 = number(1)
            with np.errstate(all="ignore"):
                change = lr * (m[r] / c1) / (np.sqrt(v[r] / c2) + eps)
            parts.append(now[r][spans[r]] - change)
        for r in range(n):
            now[r] = gather_parameters(now[r], parts, r, spans, flags)
            out[r][f"{step}/parameters"] = now[r]
    for r in range(n):
        out[r] |= {"m": m[r], "v": v[r], **collective_sizes(n, length, flags)}
    return list(out)


def gather_parameters(
    now: Any, parts: Sequence[Any], rank: int, spans: Sequence[slice], f: Flags
) -> Any:
    """Return the parameters of ``rank`` after the all-gather of the new ``parts``; the typical
    mistakes named in ``f`` keep some or all of the old ones, ``now``, or reverse the parts."""
    if "not_gathered" in f:
        new = now.copy()
        new[spans[rank]] = parts[rank]
        return new
    mistaken = {
        "gathered_backwards": lambda: np.concatenate(parts[::-1]),
        "changes_gathered": lambda: now,
    }
    return compute_mistaken(f, mistaken, lambda: np.concatenate(parts))


def collective_sizes(n: int, length: int, flags: Flags) -> dict[str, Any]:
    """Return ``sent/NAME``, the elements that one update passes to each collective, with the
    typical mistakes named in ``flags``: ``n`` · ``length`` to the reduce-scatter, ``length`` to the
    all-gather, none to the others."""
    sent = {
        "reduce_scatter": [n * length],
        "all_gather": [length],
        "all_reduce": [],
        "broadcast": [],
    }
    if "all_reduced" in flags:
        sent |= {"all_reduce": [n * length], "reduce_scatter": []}
    if "not_gathered" in flags:
        sent["all_gather"] = []
    return {f"sent/{name}": np.array(e, np.float64) for name, e in sent.items()}
