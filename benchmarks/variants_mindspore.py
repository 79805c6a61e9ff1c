"""An update of a trial in MindSpore against every way of writing it that an expert would try.

    python benchmarks/variants_mindspore.py [--quick] [--gpt]    prints rows as JSON

LeNet, the MLP, the transformer and the LSTM of the zoo, SGD, batches of 1, 64 and 256. All variants
take turns, with losses read at the end of a round. The fastest variant is chosen in every other
round and its times are taken from the rounds in between, because the smallest of many medians is
partly luck. PyNative loops and `Model.train` are in training_mindspore.py. With --gpt the language
model `gpt` replaces the others. `run.py` starts this file with the environment of a trial's worker.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from handwritten_mindspore import execution_mode, lenet
from mindspore import nn, ops
from ratio_rows import RatioRow, fastest_variant, make_row

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec, backends
from dualml.common.machine import default_threads
from dualml.interface.bench.timing import Times, time_interleaved
from dualml_ms.algorithms.model import Network

SECTION, TARGET, LR = "training in MindSpore, every way of writing it", 1.02, 0.01
OF_GPT = "training loops of gpt, mindspore"
#: Samples per batch → updates per round.
BATCHES = {1: 12, 64: 3, 256: 1}
#: Number of processes for batches of one sample: the time of a graph of small kernels differs from
#: process to process for every variant, and of six graphs in one process some are lucky.
PROCESSES, ALONE = 5, 1
LIMIT_S = 300  # of one of them
#: Settings that a text model is made for.
SIZES = {name: {"words": 500, "length": 20} for name in ("rnn_lm", "gpt")}
NETS = ("lenet", "mlp", "vit", "rnn_lm")
NAMES = {
    "cell": "one compiled cell",
    "O0": "one compiled cell, jit_level O0",
    "O1": "one compiled cell, jit_level O1",
    "jit": "ms.jit of a step function",
    "flat": "one compiled cell, flat gradients",
}


def mlp() -> nn.SequentialCell:
    return nn.SequentialCell(
        nn.Flatten(),
        nn.Dense(784, 256),
        nn.Tanh(),
        nn.Dense(256, 128),
        nn.Tanh(),
        nn.Dense(128, 10),
    )


#: Hand-written nets; the other models are the zoo's, whose layers are written as an expert would.
BY_HAND = {"lenet": lenet, "mlp": mlp}


class Mean(nn.Cell):
    """Mean loss over all positions."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net, self.loss = net, nn.CrossEntropyLoss()

    def construct(self, x, y):
        logits = self.net(x)
        return self.loss(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


class Step(nn.Cell):
    """Forward, backward and update as one graph, if the mode or a level says so."""

    def __init__(self, net: nn.Cell, level: str | None = None) -> None:
        super().__init__()
        self.loss = Mean(net)
        self.optimizer = nn.SGD(self.loss.trainable_params(), LR)
        self.gradient = ops.value_and_grad(self.loss, None, self.optimizer.parameters)
        if level:
            self.set_jit_config(ms.JitConfig(jit_level=level))

    def construct(self, x, y):
        loss, gradients = self.gradient(x, y)
        return ops.depend(loss, self.optimizer(gradients))


class Flat(nn.Cell):
    """A step whose gradients are one flat tensor that is scaled at once."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.loss = Mean(net)
        self.own = ms.ParameterTuple(self.loss.trainable_params())
        self.gradient = ops.value_and_grad(self.loss, None, self.own)
        self.shapes = tuple(tuple(p.shape) for p in self.own)
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()
        self.spans = tuple(zip([0, *ends[:-1]], ends, strict=True))

    def construct(self, x, y):
        loss, gradients = self.gradient(x, y)
        parts = ()
        for gradient in gradients:
            parts += (gradient.reshape(-1),)
        flat = ops.cat(parts) * LR
        for i, (start, stop) in enumerate(self.spans):
            part = flat[start:stop].reshape(self.shapes[i])
            loss = ops.depend(loss, ops.assign_sub(self.own[i], part))
        return loss


def jitted(net: nn.Cell) -> Callable[..., Any]:
    """Return a function compiled by `ms.jit`, as PyNative scripts use it."""
    loss = Mean(net)
    optimizer = nn.SGD(loss.trainable_params(), LR)
    gradient = ops.value_and_grad(loss, None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        value, gradients = gradient(x, y)
        return ops.depend(value, optimizer(gradients))

    return step


class ByHand:
    """A loop around a step; returns the milliseconds of an update."""

    def __init__(self, step: Callable[..., Any], x: Any, y: Any, mode: int) -> None:
        self.step, self.x, self.y, self.mode = step, x, y, mode

    def __call__(self, batch: Any, updates: int) -> float:
        with execution_mode(self.mode):
            begin, losses = time.perf_counter(), []
            for _ in range(updates):
                x = ms.Tensor.from_numpy(self.x[batch])
                losses.append(self.step(x, ms.Tensor.from_numpy(self.y[batch])))
            for loss in losses:
                loss.asnumpy()
            return (time.perf_counter() - begin) * 1e3 / updates


class TrainingSteps:
    """Time the loop around `Training.step`, which a trial calls."""

    def __init__(self, backend: Any, recipe: TrainingSpec) -> None:
        self.backend, self.training = backend, backend.training(recipe)
        self.training.load(recipe.weights, recipe.initial_state(), 0)
        self.done = 0

    def __call__(self, batch: Any, updates: int) -> float:
        begin, losses = time.perf_counter(), []
        for _ in range(updates):
            self.done += 1
            losses.append(self.training.step(batch, self.done))
        self.backend.materialize_losses(losses)
        return (time.perf_counter() - begin) * 1e3 / updates


def variants(backend: Any, name: str) -> dict[str, Callable[[Any, int], float]]:
    spec, draw, n = model(name, **SIZES.get(name, {})), np.random.default_rng(0), max(BATCHES)
    if spec.takes_tokens:
        size = SIZES[name]
        x, y = draw.integers(0, size["words"], (2, n, size["length"])).astype(np.int32)
    else:
        x = draw.normal(size=(n, 1, 28, 28)).astype(np.float32)
        y = draw.integers(0, 10, n).astype(np.int32)

    def net() -> nn.Cell:
        return BY_HAND[name]() if name in BY_HAND else Network(spec)

    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=SGD(lr=LR),
        x=x,
        y=y.astype(np.int64),
        updates=1,
    )
    steps = {
        "cell": Step(net()),
        "O0": Step(net(), "O0"),
        "O1": Step(net(), "O1"),
        "jit": jitted(net()),
        "flat": Flat(net()),
    }
    return {"ours": TrainingSteps(backend, recipe)} | {
        key: ByHand(step, x, y, ms.PYNATIVE_MODE if key == "jit" else ms.GRAPH_MODE)
        for key, step in steps.items()
    }


def race(calls: Mapping[str, Any], size: int, rounds: int) -> Times:
    batch = np.arange(size)
    turns = {key: lambda call=call: call(batch, BATCHES[size]) for key, call in calls.items()}
    return time_interleaved(turns, rounds)


def pooled(name: str, rounds: int) -> Times:
    """Return the pooled rounds of several processes, for batches of one sample."""
    command = [sys.executable, __file__, "--alone", name, "--rounds", str(rounds)]
    times = dict[str, list[float]]()
    for _ in range(PROCESSES):
        made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        for key, each in json.loads(made.stdout.strip().splitlines()[-1]).items():
            times.setdefault(key, []).extend(each)
    return times


def rows(rounds: int, gpt: bool) -> list[RatioRow]:
    backend = backends()["mindspore"].create("cpu", default_threads())
    measured = []
    for name in ("gpt",) if gpt else NETS:
        calls = variants(backend, name)
        for size in BATCHES:
            times = pooled(name, rounds) if size == ALONE else race(calls, size, rounds)
            choosing, counting = ({key: each[k::2] for key, each in times.items()} for k in (0, 1))
            best, what = fastest_variant(choosing, list(NAMES)), f"{name}, batch {size}"
            measured.append(
                make_row(
                    OF_GPT if gpt else SECTION,
                    what,
                    NAMES[best],
                    counting,
                    "ours",
                    best,
                    target=TARGET,
                )
            )
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--gpt", action="store_true", help="of gpt alone")
    parser.add_argument("--alone", metavar="MODEL", help="times of batches of one sample")
    parser.add_argument("--rounds", type=int, help="of every variant")
    asked = parser.parse_args()
    rounds = asked.rounds or (8 if asked.quick else 20)
    if asked.alone:
        backend = backends()["mindspore"].create("cpu", default_threads())
        print(json.dumps(race(variants(backend, asked.alone), ALONE, rounds)))
        return
    made = rows(rounds, asked.gpt)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
