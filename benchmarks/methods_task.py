"""The task of the method benchmarks: a text classifier, Adam, random sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import rule_from
from dualml.algorithms.precision import FULL, Precision
from dualml.backend import Backend, TrainingSpec
from dualml.common.seeds import make_generator
from dualml.interface.bench.timing import Times, time_interleaved

TIE = "a tie: the same updates, and rounds of two processes differ by a tenth"
WORDS, LENGTH, CLASSES, SAMPLES, BATCH = 4000, 32, 6, 2048, 64
STEPS = 8  # of a round
#: Updates per round on several ranks: as many as a short epoch, after which a trial reads its
#: losses.
SHARED_STEPS = 32


def sentences(words: int = WORDS) -> tuple[Any, Any]:
    """Return tokens (SAMPLES, LENGTH) of ``words`` words, padded with 0, and classes (SAMPLES,)."""
    draw = make_generator(0, "benchmark", "methods")
    x = draw.integers(2, words, (SAMPLES, LENGTH)).astype(np.int32)
    x[np.arange(LENGTH) >= draw.integers(3, LENGTH + 1, SAMPLES)[:, None]] = 0
    return x, draw.integers(0, CLASSES, SAMPLES)


def recipe(precision: Precision = FULL) -> TrainingSpec:
    """Return the training configuration: the text classifier with Adam."""
    spec = model("text_classifier", words=WORDS, length=LENGTH, classes=CLASSES)
    x, y = sentences()
    return TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=rule_from({"name": "adam", "lr": 0.001}),
        x=x,
        y=y,
        updates=1,
        chunk=BATCH,
        precision=precision,
    )


class Batches:
    """Random batches, and each rank's part of them."""

    def __init__(self) -> None:
        self.draw, self.now = np.random.default_rng(0), 0

    def parts(self, ranks: int) -> list[Any]:
        self.now += 1
        return np.array_split(self.draw.integers(0, SAMPLES, BATCH), ranks)


def steps(ranks: int) -> int:
    """Return the number of updates of a round."""
    return SHARED_STEPS if ranks > 1 else STEPS


def run_updates(training: Any, batches: Batches, ranks: int, read: Callable[[Any], Any]) -> None:
    """Run a round of updates as a trial does."""
    parts = [batches.parts(ranks) for _ in range(steps(ranks))]
    given = parts if ranks > 1 else [part for (part,) in parts]
    read(training.run_steps(given, batches.now - len(parts) + 1))


def precision_variants(backend: Backend) -> dict[str, Callable[[], None]]:
    """Return dualml's own training in every precision."""
    precisions = {"float32": FULL, "bf16": Precision("bf16"), "fp16": Precision("fp16")}
    return {
        name: partial(
            run_updates,
            backend.training(recipe(precision)),
            Batches(),
            1,
            backend.materialize_losses,
        )
        for name, precision in precisions.items()
    }


def milliseconds(
    calls: Mapping[str, Callable[[], None]], rounds: int, updates: int = STEPS
) -> Times:
    """Return the milliseconds of an update, if each call makes ``updates`` of them."""

    def time_call(call: Callable[[], None]) -> float:
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3 / updates

    return time_interleaved(
        {name: partial(time_call, call) for name, call in calls.items()}, rounds
    )
