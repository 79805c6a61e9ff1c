"""Functions that run a student's partitioning code many times at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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
    """Call a student's function of (n, ranks, rank, seed, epoch) for each (rank, seed, epoch) of
    the option ``asks`` and pack its results (`pack_lists`); with ``again``, call it a second time
    for each, last one first.

    ``touched`` in the result says whether NumPy's or Python's global generator was changed.
    """
    hyper, asks = options["hyper"], [tuple(ask) for ask in options["asks"]]
    if options["again"]:
        asks += asks[::-1]
    function = getattr(module, target)
    before = advance_global_rng(), global_python_state()
    results = [function(hyper["n"], hyper["ranks"], *ask) for ask in asks]
    touched = (global_rng_state(), global_python_state()) != before
    return {**pack_lists(results, target), "touched": np.array(touched)}


def label_parts(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Call a student's function of (labels, ranks, alpha, seed) for each (alpha, seed) of the
    option ``asks``, then once more for each, and pack its results (`pack_lists`).

    ``counts`` in the result is the number of parts of each call, ``changed`` the number of calls
    that changed the labels, ``touched`` whether a global generator was changed.
    """
    function, ranks = getattr(module, target), options["hyper"]["ranks"]
    before = advance_global_rng(), global_python_state()
    changed = 0
    results: list[Any] = []
    counts = []
    for alpha, seed in [*options["asks"], *options["asks"]]:
        labels = arrays["labels"].copy()
        made = read_items(function(labels, ranks, alpha, seed), "list of arrays", target)
        changed += not np.array_equal(labels, arrays["labels"])
        results += made
        counts.append(len(made))
    more = {
        "touched": np.array((global_rng_state(), global_python_state()) != before),
        "counts": np.array(counts, np.int64),
        "changed": np.array(changed),
    }
    return {**pack_lists(results, target), **more}


#: Loops over samplers: ``first``; ``again`` over the same one, after one that was left early;
#: ``fresh`` over one made for the epoch; ``apart`` over one on which another epoch was set; and
#: ``loaded`` by the framework's loader.
LOOPS = ("first", "again", "fresh", "apart", "loaded")
#: How far the epoch of the loop ``apart`` is from the others'.
EPOCHS_APART = 100


def run_samplers(
    make: Any, load: Any, options: JsonMapping, random_state: Callable[[], bytes] = bytes
) -> JsonObject:
    """Run samplers and pack the samples of their `LOOPS`, each with the keys of `pack_lists`, as
    ``first/values``; ``loaded`` has empty lists unless the option ``load`` is set.

    ``lengths`` are the values of ``len``; ``touched`` says whether a global random generator was
    changed; ``unwritten``, if the option ``lengths`` is set, whether there is no loop yet.

    Args:
        make: (rank, seed) → sampler.
        load: sampler → its samples in the order in which the loader returns them.
        random_state: function that returns the state of the framework's global generator.
    """
    found: dict[str, list[Any]] = {name: [] for name in LOOPS}
    lengths = []
    touched = unwritten = False
    before = advance_global_rng()
    for rank, seed in options["asks"]:
        sampler = make(rank, seed)
        for epoch in options["epochs"]:
            others = global_python_state(), random_state()
            sampler.set_epoch(epoch)
            lengths.append(len(sampler))
            try:
                loops = loop_over_samplers(sampler, make, rank, seed, epoch)
            except NotImplementedError:
                if not options["lengths"]:
                    raise
                loops, unwritten = {}, True
            touched |= others != (global_python_state(), random_state())
            if options["load"]:
                first = loops["first"]
                steady = first == loops["again"] and lengths[-1] == len(first)
                loops["loaded"] = read_loader(sampler, load, steady)
            for name in LOOPS:
                found[name].append(loops.get(name, []))
    out: dict[str, Any] = {
        "lengths": np.array(lengths, np.int64),
        "unwritten": np.array(unwritten),
        "touched": np.array(touched or global_rng_state() != before),
    }
    for name, results in found.items():
        out |= {f"{name}/{key}": a for key, a in pack_lists(results).items()}
    return out


def loop_over_samplers(sampler: Any, make: Any, rank: int, seed: int, epoch: int) -> dict[str, Any]:
    """Return the samples of all loops but the loader's, by name, as lists of integers."""
    other = make(rank, seed)
    other.set_epoch(epoch + EPOCHS_APART)
    loops = {"first": [int(i) for i in sampler]}
    next(iter(sampler), None)
    loops["again"] = [int(i) for i in sampler]
    loops["apart"] = [int(i) for i in other]
    return {**loops, "fresh": loop_over_new_sampler(make, rank, seed, epoch)}


def loop_over_new_sampler(make: Any, rank: int, seed: int, epoch: int) -> list[int]:
    """Return the samples of a sampler made for an epoch. The first epoch is not set, because it is
    0 at first; a sampler that fails without gives an empty list."""
    fresh = make(rank, seed)
    if epoch:
        fresh.set_epoch(epoch)
        return [int(i) for i in fresh]
    try:
        return [int(i) for i in fresh]
    except Exception:
        return []


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


def global_python_state() -> bytes:
    """Return the state of Python's global generator as bytes, to be compared."""
    return repr(random.getstate()).encode()


def global_rng_state() -> bytes:
    """Return the state of NumPy's global generator as bytes, to be compared."""
    name, keys, *rest = np.random.get_state()
    return repr((name, rest)).encode() + np.asarray(keys).tobytes()
