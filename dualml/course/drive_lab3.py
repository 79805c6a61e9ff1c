"""Runs what a student has written about the dealing of samples, many times at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import Arrays


def packed(results: Sequence[Any]) -> dict[str, Any]:
    """Lists of sample numbers as a few arrays.

    Returns:
        ``values`` one after the other; of each list its ``sizes``, ``dims`` and ``kinds`` (the
        letter of its type).
    """
    arrays = [np.asarray(result) for result in results]
    for result, a in zip(results, arrays, strict=True):
        if a.dtype.kind not in "biuf":
            raise TypeError(f"expected an array of integers, received {type(result).__name__}")
    return {
        "values": np.concatenate([a.ravel().astype(np.float64) for a in arrays] or [np.zeros(0)]),
        "sizes": np.array([a.size for a in arrays], np.int64),
        "dims": np.array([a.ndim for a in arrays], np.int64),
        # Of nothing the type says nothing: np.array([]) is one of floats.
        "kinds": np.array([ord(a.dtype.kind if a.size else "i") for a in arrays], np.int64),
    }


def sample_lists(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """What a function of (n, ranks, rank, seed, epoch) returns for every one of ``asks``, packed,
    and, where ``again``, for all of them a second time, the last one first.

    ``touched``: whether NumPy's global generator is another one than before.
    """
    hyper, asks = options["hyper"], [tuple(ask) for ask in options["asks"]]
    if options["again"]:
        asks += asks[::-1]
    function = getattr(module, target)
    before = fresh_state()
    results = [function(hyper["n"], hyper["ranks"], *ask) for ask in asks]
    return {**packed(results), "touched": np.array(state() != before)}


def label_parts(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """What a function of (labels, ranks, alpha, seed) returns for every one of ``asks``, which is
    made twice; ``counts``: how many parts each time."""
    function, ranks = getattr(module, target), options["hyper"]["ranks"]
    before = fresh_state()
    results: list[Any] = []
    counts = []
    for alpha, seed in [*options["asks"], *options["asks"]]:
        made = list(function(arrays["labels"].copy(), ranks, alpha, seed))
        results += made
        counts.append(len(made))
    more = {"touched": np.array(state() != before), "counts": np.array(counts, np.int64)}
    return {**packed(results), **more}


def samplers(make: Any, load: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What samplers give: ``first`` and ``again`` from two loops over each, ``fresh`` from one that
    is made for the epoch, ``loaded`` through the framework's loader where ``load`` asks for it, all
    packed; ``lengths``: what ``len`` says.

    Args:
        make: (rank, seed) → sampler.
        load: sampler → its samples in the order in which the loader hands them out.
    """
    found: dict[str, list[Any]] = {"first": [], "again": [], "fresh": [], "loaded": []}
    lengths = []
    before = fresh_state()
    for rank, seed in options["asks"]:
        sampler = make(rank, seed)
        for epoch in options["epochs"]:
            sampler.set_epoch(epoch)
            other = make(rank, seed)
            other.set_epoch(epoch)
            first, again = [int(i) for i in sampler], [int(i) for i in sampler]
            lengths.append(len(sampler))
            steady = first == again and lengths[-1] == len(first)
            loaded = handed_out(sampler, load, steady) if options["load"] else []
            rows = zip(found, (first, again, [int(i) for i in other], loaded), strict=True)
            for name, row in rows:
                found[name].append(row)
    out: dict[str, Any] = {"lengths": np.array(lengths, np.int64)}
    for name, results in found.items():
        out |= {f"{name}/{key}": a for key, a in packed(results).items()}
    return {**out, "touched": np.array(state() != before)}


def handed_out(sampler: Any, load: Any, steady: bool) -> Any:
    """What a loader makes of a sampler; of one that is not steady an error says nothing new."""
    try:
        return load(sampler)
    except Exception:
        if steady:
            raise
        return []


def fresh_state() -> bytes:
    """NumPy's global generator, moved on: whoever seeds it as in an earlier call does not bring it
    back to where it is."""
    np.random.random()
    return state()


def state() -> bytes:
    """NumPy's global generator, as it is."""
    name, keys, *rest = np.random.get_state()
    return repr((name, rest)).encode() + np.asarray(keys).tobytes()
