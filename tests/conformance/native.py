"""The framework's own gradient sum against the sum of the ranks' separate gradients.

`check` runs on every rank (see `dualml.launch.ranks`).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from conformance.backends import adapter_of, create

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import rule_from
from dualml.backend import (
    Backend,
    CommOverlap,
    FrameworkDataParallel,
    GradientAccess,
    Training,
    TrainingSpec,
)
from dualml.common.seeds import make_generator
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.native import NativeDataParallel
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.settings import Aggregation

SAMPLES, CHUNK = 40, 4
#: Samples of each rank; a third rank always has three. Few sizes: MindSpore compiles each.
PARTS = {
    "equal": (4, 4),
    "uneven": (3, 4),
    "nothing on rank 0": (0, 4),
    "nothing on rank 1": (4, 0),
    "chunks": (7, 4),
    "chunks and nothing": (0, 7),
    "more chunks": (3, 11),
}
UPDATES = ("uneven", "equal", "nothing on rank 1")
SPEC = model("mlp")
#: Buckets: the first matrix alone, then two buckets of several tensors.
BUCKETS = bucket_layout(SPEC.parameters(), 135_000)
RULE, WEIGHTS = rule_from({"name": "sgd", "lr": 0.1, "momentum": 0.9}), initial_weights(SPEC, 0)


def recipe() -> TrainingSpec:
    """Return the training configuration: a small model on random data."""
    draw = make_generator(0, "conformance", "native")
    x = draw.normal(size=(SAMPLES, *SPEC.input_shape)).astype(np.float32)
    y = draw.integers(0, 10, SAMPLES)
    return TrainingSpec(spec=SPEC, weights=WEIGHTS, rule=RULE, x=x, y=y, updates=3, chunk=CHUNK)


def samples(case: str, rank: int) -> Any:
    """Return this rank's part of the batch."""
    length = (*PARTS[case], 3)[rank]
    return make_generator(0, "part", case, rank).integers(0, SAMPLES, length)


def check(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return case → largest error relative to the largest entry, and further results.

    Args:
        argument: ``kind`` is ``native`` or ``overlapping``.
    """
    backend, own_settings = create(comm.backend), adapter_of(comm.backend).settings
    training, before = backend.training(recipe()), own_settings()
    plain, native = (
        training.require_capability(GradientAccess).make_buckets(BUCKETS),
        argument["kind"] == "native",
    )
    if native:
        summing = training.require_capability(FrameworkDataParallel).make_framework_buckets(comm)
    else:
        summing = training.require_capability(CommOverlap).make_reducing_buckets(BUCKETS, comm)
    first, factor = summing.parameters(), 0.3 + 0.4 * comm.rank

    def total(case: str) -> dict[str, Any]:
        """Return the float64 sum of the ranks' own gradients."""
        named = plain.unflatten(plain.gradient(samples(case, comm.rank), factor)[1])
        gathered = {n: comm.all_gather(comm.tensor(g)) for n, g in named.items()}
        return {n: sum(np.float64(comm.numpy(g)) for g in all_) for n, all_ in gathered.items()}

    errors = {}
    for case in PARTS:
        expected = total(case)
        _, gradients = summing.gradient(samples(case, comm.rank), factor)
        errors[case] = distance(
            dict(summing.unflatten(summing.wait_reduction(gradients))), expected
        )
        again = distance(total(case), expected)  # and what the plain pieces say is the same again
        errors[f"{case}, plain afterwards"] = again

    settings = Aggregation(strategy="native") if native else Aggregation(overlap=True)
    own = train(comm, backend, training, NativeDataParallel, summing, settings)
    theirs = train(comm, backend, training, DataParallel, plain, Aggregation())
    summing.assign(first)
    return {
        "detail": own.pop("detail"),
        "buckets": len(summing.parameters()),
        "errors": errors,
        "losses": (own["losses"], theirs["losses"]),
        "digest": hashlib.sha256(b"".join(map(bytes, own["weights"].values()))).hexdigest(),
        "traced": distance(own["trace"], theirs["trace"]),
        "trained": distance(own["weights"], theirs["weights"]),
        "moved": distance(own["weights"], WEIGHTS),
        "assigned": distance(training.weights(), WEIGHTS),
        "settings": [dict(before), dict(own_settings())],
    }


def train(
    comm: Any,
    backend: Backend,
    training: Training,
    kind: type[DataParallel],
    pieces: Any,
    settings: Aggregation,
) -> dict[str, Any]:
    """Train three updates; return traced gradients, losses, weights and the wrapper's name."""
    parallel = kind(backend, training, pieces, comm, settings)
    parallel.load(WEIGHTS, recipe().initial_state(), 0)
    batches = [[samples(case, r) for r in range(comm.size)] for case in UPDATES]
    trace = parallel.trace(batches[0], np.arange(2))
    lazy = [parallel.step(batch, step) for step, batch in enumerate(batches, start=1)]
    return {
        "trace": trace.gradients,
        "losses": parallel.mean_losses(lazy).tolist(),
        "weights": dict(training.weights()),
        "detail": getattr(pieces, "detail", ""),
    }


def distance(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return the largest difference, relative to the largest entry of each tensor."""
    assert found.keys() == expected.keys()
    return max(
        float(np.abs(found[n] - want).max() / max(np.abs(want).max(), 1e-30))
        for n, want in expected.items()
    )
