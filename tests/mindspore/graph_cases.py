"""``python graph_cases.py CASE`` runs one case in a separate process, because MindSpore reads the
graph folder only once."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import rule_from
from dualml.algorithms.optim.schedule import LRSchedule
from dualml.backend import GradientAccess, PipelineStages, Segment, TrainingSpec
from dualml_ms.backend import MindSporeBackend
from dualml_ms.common.compiled import CompiledCell
from dualml_ms.common.graphs import graph_cache

BACKEND = MindSporeBackend("cpu", 1)
UPDATES, N, WORDS = 3, 24, 20
STEPS = LRSchedule(kind="step", every=1, gamma=0.5)


def recipe(name: str, rule: dict[str, Any], **options: Any) -> TrainingSpec:
    draw = np.random.default_rng(1)
    text = name.startswith("rnn")
    spec = model(name, **({"words": WORDS, "length": 5} if text else {}))
    x = draw.random((N, *spec.input_shape)).astype(np.float32)
    y = draw.integers(0, 10, N)
    if text:
        x, y = draw.integers(0, WORDS, (2, N, *spec.input_shape))
    return TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=rule_from(rule),
        x=x,
        y=y,
        updates=UPDATES,
        **options,
    )


def bits(*arrays: Any) -> str:
    content = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    return hashlib.sha256(content).hexdigest()[:16]


def train_bits(own: TrainingSpec) -> list[str]:
    """Return the bits of everything that a training computes, update by update."""
    training, seen = BACKEND.training(own), []
    for step in range(1, UPDATES + 1):
        batch = np.arange(8) + step
        trace = training.trace(batch, batch[:4])
        losses = [loss.asnumpy() for loss, _ in training.step(batch, step)]
        state = [a for named in training.state().values() for a in named.values()]
        seen.append(bits(trace.loss, *trace.activations.values(), *trace.gradients.values()))
        seen.append(bits(*losses, *training.weights().values(), *state))
    return [*seen, bits(*training.evaluate(own.x, own.y))]


def in_pieces(own: TrainingSpec) -> list[str]:
    """Return the bits of gradient, parameters and update by two gradient buckets."""
    training = BACKEND.training(own)
    names = list(training.weights())
    pieces = training.require_capability(GradientAccess).make_buckets([names[:3], names[3:]])
    _, flat = pieces.gradient(np.arange(8), 0.5)
    pieces.update(flat, 1)
    after = pieces.parameters()
    pieces.assign([2 * part for part in after])
    return [bits(*(a.asnumpy() for a in (*flat, *after))), bits(*training.weights().values())]


def in_segments(own: TrainingSpec) -> list[str]:
    """Return the bits of forward and backward passes of two segments, and of an update."""
    layers, depths = own.spec.layers, [0, *own.spec.open_branches().values()]
    parts = [Segment(layers[a:b], 1 + depths[a], {}) for a, b in ((0, 4), (4, len(layers)))]
    stage = BACKEND.require_capability(PipelineStages).stage(parts, own, first=True, last=True)
    stage.load(dict(own.weights), own.initial_state(), 0)
    index, seen = np.arange(8), []
    for step in range(1, UPDATES + 1):
        stage.zero_grad()
        middle = stage.forward(0, 0, (stage.samples(index),))
        stage.loss(0, middle, stage.labels(index))
        loss, flow = stage.loss_backward(0, 1.0)
        stage.backward(0, 0, flow)
        seen.append(bits(loss.asnumpy(), *stage.gradients().values()))
        stage.update(step)
    values, outputs = stage.infer(0, (stage.samples(index),))
    (logits,), more = stage.infer(1, values)
    looks = [a.asnumpy() for a in (*outputs, *more)]
    score = stage.evaluate(logits, stage.labels(index))
    return [*seen, bits(*stage.weights().values()), bits(*looks), bits(*score)]


def run_all_cases() -> list[str]:
    rules = ("gd", "sgd", "adam", "adamw", "adagrad", "rmsprop")
    seen = [train_bits(recipe("mlp", {"name": n, "lr": 0.01}, schedule=STEPS)) for n in rules]
    seen.append(train_bits(recipe("lenet", {"name": "sgd", "lr": 0.1, "momentum": 0.9}, chunk=3)))
    seen += [train_bits(recipe(n, {"name": "adam", "lr": 0.01})) for n in ("vit", "rnn_lm_dropout")]
    lenet = recipe("lenet", {"name": "adam", "lr": 0.01}, schedule=STEPS)
    return [*(one for several in seen for one in several), *in_pieces(lenet), *in_segments(lenet)]


class AddConstant(nn.Cell):
    """The cell x + n."""

    def __init__(self, n: float) -> None:
        super().__init__()
        self.n = n

    def construct(self, x):
        return x + self.n


class Times(AddConstant):
    """The cell x · n."""

    def construct(self, x):
        return x * self.n


def in_order(*cells: nn.Cell) -> list[Any]:
    x = ms.Tensor([1.0, 2.0, 3.0])
    return [CompiledCell(cell)(x).asnumpy().tolist() for cell in cells]


CASES = {
    "everything": run_all_cases,
    "sums": lambda: in_order(AddConstant(1.0), AddConstant(2.0)),
    "products": lambda: in_order(Times(1.0), Times(2.0), AddConstant(2.0), AddConstant(3.0)),
}

if __name__ == "__main__":
    result, store = CASES[sys.argv[1]](), graph_cache()
    counts = [store.loaded, store.compiled, store.skipped] if store else None
    print(json.dumps({"result": result, "graphs": counts}))
