"""Small trainings with activation recomputation, in one process and on ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from conformance import methods
from conformance.backends import create

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.model.gpt import DECODERS, GPTSizes
from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.optim import SGD
from dualml.backend import ActivationRecomputation, GradientAccess, TrainingSpec
from dualml.common.errors import Unsupported
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation

BATCH, CHUNK, SAMPLES = np.arange(24), 16, 40
#: Decoders with a key per head and with shared keys, with and without rotary embedding.
SIZES = {
    "gpt": GPTSizes(width=8, dropout=0.5),
    "gpt shared": GPTSizes(width=8, kv_heads=2, tied=False),
    "gpt_llama": GPTSizes(width=16, kv_heads=2, tied=False),
    "gpt_llama own": GPTSizes(width=16),
    "gpt_llama one": GPTSizes(width=16, kv_heads=1),
}


def spec_of(name: str) -> ModelSpec:
    if name in SIZES:
        return DECODERS[name.split()[0]][0](50, 7, SIZES[name])
    return model(name, words=50, length=7) if name.startswith(("text", "rnn")) else model(name)


def data(spec: ModelSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return the data; half of the padded sentences are short."""
    draw = np.random.default_rng(0)
    if not spec.takes_tokens:
        x = draw.normal(size=(SAMPLES, *spec.input_shape)).astype(np.float32)
        return x, draw.integers(0, 10, SAMPLES)
    x = draw.integers(1, 50, (SAMPLES, *spec.input_shape)).astype(np.int32)
    if spec.needs_padding_mask:
        x[: SAMPLES // 2, 4:] = 0
    return x, draw.integers(0, 6, SAMPLES if spec.needs_padding_mask else x.shape)


def recipe(name: str, setting: Any, **options: Any) -> TrainingSpec:
    spec = spec_of(name)
    (x, y), weights = data(spec), initial_weights(spec, 0)
    given = {"rule": SGD(lr=0.1, momentum=0.9), "updates": 4, "seed": 3, "chunk": CHUNK, **options}
    again = recompute_groups(spec, setting)
    return TrainingSpec(spec=spec, weights=weights, x=x, y=y, recompute=again, **given)


def train(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return losses, final weights and saved-activation bytes of this rank, or why it does not
    run."""
    backend = create(comm.backend)
    own = methods.recipe_with(recompute=recompute_groups(methods.SPEC, argument["recompute"]))
    training = backend.training(own)
    try:
        training.require_capability(ActivationRecomputation)
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    pieces = training.require_capability(GradientAccess).make_buckets(
        bucket_layout(methods.SPEC.parameters(), 2**12)
    )
    together = parallel_trainer_class(Aggregation())(backend, training, pieces, comm, Aggregation())
    together.load(methods.WEIGHTS, own.initial_state(), 0)
    lazy = [together.step(batch, t) for t, batch in enumerate(methods.BATCHES, start=1)]
    return {
        "losses": together.mean_losses(lazy).tolist(),
        "weights": {name: w.tolist() for name, w in training.weights().items()},
        "kept": together.measure_memory(methods.BATCHES[0]).activations,
    }
