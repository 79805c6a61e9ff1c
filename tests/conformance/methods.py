"""Every training method of a backend against the reference's own loop: same batches, same
updates.

`check` runs in one process, or on every rank of a group (see `dualml.launch.ranks`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from conformance.backends import REFEREE, create
from conformance.native import distance

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import rule_from
from dualml.backend import MemoryReport, TrainingSpec
from dualml.common.errors import Unsupported
from dualml.common.seeds import make_generator
from dualml.experiment.methods import METHODS
from dualml.experiment.methods.engine import EngineSupport
from dualml.experiment.methods.engine_loader import make_data_parallel

WORDS, LENGTH, SAMPLES = 40, 6, 44
SPEC = model("text_classifier", words=WORDS, length=LENGTH, classes=3)
RULE, WEIGHTS = rule_from({"name": "sgd", "lr": 0.2, "momentum": 0.9}), initial_weights(SPEC, 0)
#: Batches; the last one is smaller and has eleven samples, six and five for two ranks.
BATCHES = [np.arange(0, 16), np.arange(16, 32), np.arange(32, 43)]


def recipe() -> TrainingSpec:
    return recipe_with()


def recipe_with(**options: Any) -> TrainingSpec:
    """Return the training configuration: padded sentences of several lengths."""
    draw = make_generator(0, "conformance", "methods")
    x = draw.integers(2, WORDS, (SAMPLES, LENGTH)).astype(np.int32)
    x[np.arange(LENGTH) >= draw.integers(2, LENGTH + 1, SAMPLES)[:, None]] = 0
    y = draw.integers(0, 3, SAMPLES)
    options = {"updates": 3, "batch": 16, "global_batch": 16, **options}
    return TrainingSpec(spec=SPEC, weights=WEIGHTS, rule=RULE, x=x, y=y, **options)


def expected() -> dict[str, Any]:
    """Return the reference's losses and weights."""
    training = REFEREE.training(recipe())
    lazy = [training.step(batch, step) for step, batch in enumerate(BATCHES, start=1)]
    return {"losses": REFEREE.materialize_losses(lazy), "weights": training.weights()}


#: Methods whose engine compiles for minutes; `tests/methods/test_built_engines.py` runs them.
BUILT = ("deepspeed_nvme",)


def names(backend: str, ranks: int) -> list[str]:
    """Return the names of the methods for one process, or for several."""
    kinds = ("one", "any") if ranks == 1 else ("several", "any")
    return [
        name
        for name, info in METHODS.get(backend, {}).items()
        if info.ranks in kinds and not info.unsupported and name not in BUILT
    ]


def check(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return method → its distance from the reference and the memory it holds, or why it does not
    run here."""
    batches = BATCHES if comm is None else [np.array_split(b, comm.size) for b in BATCHES]
    backend, want = create(argument["backend"]), expected()
    driving = backend.require_capability(EngineSupport)
    found: dict[str, Any] = {}
    for name in argument["methods"]:
        try:
            training = driving.method(name, recipe(), comm)
        except Unsupported as reason:
            found[name] = {"unsupported": str(reason)}
            continue
        driven = training if comm is None else make_data_parallel(backend, training, comm)
        runs = []
        for _ in range(2):  # a second trial in the same process begins anew
            driven.load(WEIGHTS, recipe().initial_state(), 0)
            lazy = driven.run_steps(batches, 1)
            losses = backend.materialize_losses(lazy) if comm is None else driven.mean_losses(lazy)
            weights = training.weights()
            runs.append(
                {
                    "losses": distance({"": losses}, {"": want["losses"]}),
                    "first": float(abs(losses[0] / want["losses"][0] - 1)),
                    "weights": distance(weights, want["weights"]),
                    "moved": distance(weights, dict(WEIGHTS)),
                    "finite": all(bool(np.isfinite(w).all()) for w in weights.values()),
                }
            )
        measured = training.require_capability(MemoryReport) if comm is None else driven
        memory = asdict(measured.measure_memory(batches[0]))
        found[name] = {"runs": runs, "processes": training.processes, "memory": memory}
    return found
