"""Training methods in MindSpore, called by dualml and by hand.

    python benchmarks/methods_mindspore.py [--quick]     prints rows as JSON

The text classifier, Adam, 64 sentences an update.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore as ms
from methods_task import (
    SHARED_STEPS,
    STEPS,
    TIE,
    Batches,
    milliseconds,
    precision_variants,
    recipe,
    run_updates,
    steps,
)
from mindspore import amp, nn
from ranks import on_ranks, paced, slowest, tie
from ratio_rows import RatioRow, make_row

from dualml.algorithms.model.recompute import layer_spans, residual_blocks
from dualml.backend import Backend, backends
from dualml.experiment.methods import METHODS
from dualml.experiment.methods.engine import EngineDataParallel
from dualml.interface.bench.timing import Times, time_interleaved
from dualml_ms.algorithms.model import LOSSES, Network
from dualml_ms.algorithms.model.network import LayerBlock
from dualml_ms.algorithms.optim import optimizer
from dualml_ms.experiment.methods import make_method

SECTION = "training methods, mindspore"
ALONE = ("single", "recompute", "amp_o2", "amp_o3", "amp_auto")
#: Methods whose modules are complete loops of a script and are used unchanged.
FILES = ("model_train",)
RANKS = ("reducer", "data_parallel", "accumulate")


class Update(nn.Cell):
    """One update of a script, compiled as a whole."""

    def __init__(self, name: str) -> None:
        super().__init__(auto_prefix=False)
        its = recipe()
        self.model = Network(its.spec)
        self.model.load(its.weights)
        self.model.set_train()
        parts = (
            layer_spans(its.spec.layers, residual_blocks(its.spec)) if name == "recompute" else ()
        )
        self.parts = [LayerBlock(self.model, some) for some in parts]
        self.scaler = None
        if level := METHODS["mindspore"][name].options.get("level"):
            self.model = amp.auto_mixed_precision(self.model, level)
            self.scaler = amp.DynamicLossScaler(2**16, 2, 2000)
        self.optimizer = optimizer(its.rule, self.model.trainable_params())
        self.criterion = LOSSES[its.loss]()
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)

    def loss(self, x, y):
        value = x if self.parts else self.model(x)
        here = self.model.padding_mask(x)
        for part in self.parts:
            value = (part(value, here) if part.takes_padding_mask else part(value))[0]
        loss = self.criterion(value, y)
        return loss if self.scaler is None else self.scaler.scale(loss), loss

    def construct(self, x, y):
        (_, loss), gradients = self.gradient(x, y)
        if self.scaler is None:
            self.optimizer(gradients)
        else:
            gradients = self.scaler.unscale(gradients)
            finite = amp.all_finite(gradients)
            if finite:
                self.optimizer(gradients)
            self.scaler.adjust(finite)
        return loss


class ByHand:
    """The loop of a script: data in memory, losses read at the end."""

    def __init__(self, name: str) -> None:
        its = recipe()
        self.x, self.y = its.x, its.y.astype("int32")
        self.update, self.batches = Update(name), Batches()

    def __call__(self) -> None:
        losses = []
        for _ in range(STEPS):
            index = self.batches.parts(1)[0]
            x, y = (ms.Tensor.from_numpy(a[index]) for a in (self.x, self.y))
            losses.append(self.update(x, y))
        for loss in losses:
            loss.asnumpy()


class MethodLoop:
    """The module of a method in the loop of a script, without anything of dualml's around it."""

    def __init__(self, name: str, backend: Backend, comm: Any = None) -> None:
        its, self.batches = recipe(), Batches()
        made = make_method(name, its, comm)
        self.rank, self.ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        if comm is None:  # compiled, in the mode that it sets
            run_updates(made, self.batches, 1, backend.materialize_losses)
        else:
            several = EngineDataParallel(backend, made, comm)
            run_updates(several, self.batches, comm.size, several.mean_losses)
        self.method, self.x, self.y = made.method, its.x, its.y.astype("int32")

    def __call__(self) -> None:
        parts = (self.batches.parts(self.ranks)[self.rank] for _ in range(steps(self.ranks)))
        for loss in self.method.run_steps([(self.x[part], self.y[part]) for part in parts]):
            loss.asnumpy()


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update on each rank, by variant."""
    ms.set_context(mode=ms.GRAPH_MODE)
    backend, calls = backends()["mindspore"].create("cpu", 1), dict[str, Callable[[], None]]()
    for name in RANKS:
        made = EngineDataParallel(backend, make_method(name, recipe(), comm), comm)
        calls[name] = partial(run_updates, made, Batches(), comm.size, made.mean_losses)
        calls[f"{name} by hand"] = MethodLoop(name, backend, comm)
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / SHARED_STEPS for t in found] for name, found in times.items()}


def rows(rounds: int) -> list[RatioRow]:
    backend, calls = backends()["mindspore"].create("cpu", 1), dict[str, Callable[[], None]]()
    for name in ALONE:
        made = make_method(name, recipe(), None)
        calls[name] = partial(run_updates, made, Batches(), 1, backend.materialize_losses)
        calls[f"{name} by hand"] = ByHand(name)
    for name in FILES:
        calls[name] = partial(
            run_updates, make_method(name, recipe(), None), Batches(), 1, backend.materialize_losses
        )
        calls[f"{name} by hand"] = MethodLoop(name, backend)
    times = milliseconds(calls | precision_variants(backend), rounds)
    ranks = slowest(on_ranks("mindspore", 2, "methods_mindspore:train", {"rounds": rounds}))
    return [
        *(
            tie(
                make_row(
                    SECTION,
                    f"text_classifier{where}, {name}",
                    "the same loop by hand",
                    found,
                    name,
                    f"{name} by hand",
                    target=1.02,
                ),
                TIE,
            )
            for where, found in (("", times), (", 2 ranks", ranks))
            for name in found
            if f"{name} by hand" in found
        ),
        make_row(SECTION, "text_classifier, amp_o2", "float32", times, "amp_o2", "single"),
        *(
            make_row(
                SECTION, f'text_classifier, precision = "{name}"', "float32", times, name, "float32"
            )
            for name in ("bf16", "fp16")
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    print(json.dumps([r.describe() for r in rows(5 if asked.quick else 21)]))


if __name__ == "__main__":
    main()
