"""The NumPy reference against PyTorch: an update of every kind of model, on the same threads.

    python benchmarks/reference.py [--quick]        prints rows as JSON

The reference computes in float64, PyTorch in float32: twice the bytes, and half as many numbers per
instruction.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ourparallel import Order
from ratio_rows import RatioRow, make_row

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec, backends
from dualml.common.machine import default_threads
from dualml.interface.bench.timing import time_interleaved

SECTION = "the float64 reference against PyTorch, float32"
#: Model and samples of a batch.
WORK = [("lenet", 64), ("lenet", 256), ("mlp", 64), ("vit", 64), ("rnn_lm", 64)]
TARGET = 3.0  # largest ratio that is good
SAMPLES, STEPS = 2048, 6


def samples(spec: ModelSpec) -> tuple[Any, Any]:
    """Return random samples; the time of an update does not depend on them."""
    draw = np.random.default_rng(0)
    if spec.takes_tokens:
        text = draw.integers(0, 2000, (SAMPLES, spec.input_shape[0] + 1))
        return text[:, :-1].copy(), text[:, 1:].copy()
    x = draw.normal(size=(SAMPLES, *spec.input_shape)).astype(np.float32)
    return x, draw.integers(0, 10, SAMPLES)


def updates(backend: str, name: str, batch: int) -> Callable[[], float]:
    """Return a round: the milliseconds of an update."""
    spec = model(name)
    x, y = samples(spec)
    recipe = TrainingSpec(
        spec=spec, weights=initial_weights(spec, 0), rule=SGD(lr=0.01), x=x, y=y, updates=STEPS
    )
    engine = backends()[backend].create("cpu", default_threads())
    training, order, step = engine.training(recipe), Order(SAMPLES, batch), 0

    def run() -> float:
        nonlocal step
        begin, lazy = time.perf_counter(), []
        for _ in range(STEPS):
            step += 1
            lazy.append(training.step(order(), step))
        engine.materialize_losses(lazy)
        return (time.perf_counter() - begin) * 1e3 / STEPS

    return run


def rows(rounds: int) -> list[RatioRow]:
    compared = []
    for name, batch in WORK:
        variants = {backend: updates(backend, name, batch) for backend in ("numpy", "torch")}
        times = time_interleaved(variants, rounds)
        what = f"an update, {name}, {batch} samples"
        compared.append(make_row(SECTION, what, "torch", times, "numpy", "torch", target=TARGET))
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    compared = rows(rounds=7 if quick else 25)
    print(json.dumps([r.describe() for r in compared]))


if __name__ == "__main__":
    main()
