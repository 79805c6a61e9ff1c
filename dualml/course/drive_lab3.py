"""Functions that run a student's partitioning code many times at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.common.json_types import JsonMapping, JsonObject
from dualml.course.exercise import Arrays
from dualml.course.returned import read_items, read_tensor


def pack_lists(results: Sequence[Any], function: str = "") -> dict[str, Any]:
    """Pack lists of sample numbers, which ``function`` returned, into a few arrays. Raise
    `WrongReturn` for a list that is no array of booleans or numbers.

    Returns:
        ``values`` of all lists, concatenated, float64; ``sizes``, ``dims`` and ``kinds`` (letter of
        the dtype) of each list.
    """
    arrays = [read_tensor(r, np.asarray, function, expected="array of integers") for r in results]
    return {
        "values": np.concatenate([a.ravel().astype(np.float64) for a in arrays] or [np.zeros(0)]),
        "sizes": np.array([a.size for a in arrays], np.int64),
        "dims": np.array([a.ndim for a in arrays], np.int64),
        # The dtype of an empty list means nothing: np.array([]) is an array of floats.
        "kinds": np.array([ord(a.dtype.kind if a.size else "i") for a in arrays], np.int64),
    }


def sample_lists(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call a function of (n, ranks, rank, seed, epoch) for each of ``asks`` and pack its results;
    with ``again``, call it a second time, last one first.

    ``touched`` in the result says whether NumPy's global generator was changed.
    """
    hyper, asks = options["hyper"], [tuple(ask) for ask in options["asks"]]
    if options["again"]:
        asks += asks[::-1]
    function = getattr(module, target)
    before = advance_global_rng()
    results = [function(hyper["n"], hyper["ranks"], *ask) for ask in asks]
    return {**pack_lists(results, target), "touched": np.array(global_rng_state() != before)}


def label_parts(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call a function of (labels, ranks, alpha, seed) for each of ``asks``, then once more for
    each, and pack its results; ``counts`` is the number of parts of each call."""
    function, ranks = getattr(module, target), options["hyper"]["ranks"]
    before = advance_global_rng()
    results: list[Any] = []
    counts = []
    for alpha, seed in [*options["asks"], *options["asks"]]:
        returned = function(arrays["labels"].copy(), ranks, alpha, seed)
        made = read_items(returned, "list of arrays", target)
        results += made
        counts.append(len(made))
    more = {"touched": np.array(global_rng_state() != before), "counts": np.array(counts, np.int64)}
    return {**pack_lists(results, target), **more}


def run_samplers(make: Any, load: Any, options: JsonMapping) -> JsonObject:
    """Run samplers and pack their samples: ``first`` and ``again`` from two loops over each,
    ``fresh`` from one made for the epoch, ``loaded`` through the framework's loader if the option
    ``load`` is set, else empty lists; each with the keys of `pack_lists`, as ``first/values``.
    ``lengths`` are the values of ``len``; ``touched`` says whether NumPy's global generator was
    changed.

    Args:
        make: (rank, seed) → sampler.
        load: sampler → its samples in the order in which the loader returns them.
    """
    found: dict[str, list[Any]] = {"first": [], "again": [], "fresh": [], "loaded": []}
    lengths = []
    before = advance_global_rng()
    for rank, seed in options["asks"]:
        sampler = make(rank, seed)
        for epoch in options["epochs"]:
            sampler.set_epoch(epoch)
            other = make(rank, seed)
            other.set_epoch(epoch)
            first, again = [int(i) for i in sampler], [int(i) for i in sampler]
            lengths.append(len(sampler))
            steady = first == again and lengths[-1] == len(first)
            loaded = read_loader(sampler, load, steady) if options["load"] else []
            rows = zip(found, (first, again, [int(i) for i in other], loaded), strict=True)
            for name, row in rows:
                found[name].append(row)
    out: dict[str, Any] = {"lengths": np.array(lengths, np.int64)}
    for name, results in found.items():
        out |= {f"{name}/{key}": a for key, a in pack_lists(results).items()}
    return {**out, "touched": np.array(global_rng_state() != before)}


def read_loader(sampler: Any, load: Any, steady: bool) -> Any:
    """Return the samples that a loader takes from a sampler; an error of an unsteady sampler gives
    an empty list, because it adds no information, any other is raised."""
    try:
        return load(sampler)
    except Exception:
        if steady:
            raise
        return []


def advance_global_rng() -> bytes:
    """Advance NumPy's global generator and return its state, so that seeding it as in an earlier
    call does not restore this state."""
    np.random.random()
    return global_rng_state()


def global_rng_state() -> bytes:
    """Return the state of NumPy's global generator as bytes, to be compared."""
    name, keys, *rest = np.random.get_state()
    return repr((name, rest)).encode() + np.asarray(keys).tobytes()
