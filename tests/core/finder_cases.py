"""Fault scenes for the finder, made in this process: the reference against itself with a planted
fault.

The reference's code in single precision plays the framework: weights enter and results leave as
float32, so that there is rounding to tell apart from the fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU
from dualml.algorithms.model.layers import (
    GELU,
    LSTM,
    Attention,
    Embedding,
    LayerNorm,
    Linear,
    MaxPool2d,
    ReLU,
)
from dualml.algorithms.model.recurrent import GRU
from dualml.algorithms.optim import Adam
from dualml.backend.reference import training as reference
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.backend.reference.layers import PAIRS
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.split import NumpyStage
from dualml.backend.reference.training import NumpyTraining
from dualml.experiment.batches import BatchSampler
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.plan import Plan
from dualml.experiment.samples import load_samples
from dualml.experiment.schema import Experiment
from dualml.experiment.store.replays import ReplayRecord, States
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parity.finder.causes.layers import rational_tanh
from dualml.parity.finder.context import ReplayContext
from dualml.parity.finder.find import explain
from dualml.runner.worker.replay import DRAWS, TrialReplay
from dualml.runner.worker.setup import RankResources
from dualml.runner.worker.trial import TrialRunner

#: A planted fault: patches modules until the patch is undone.
Fault = Callable[[pytest.MonkeyPatch], None]
STEPS = (1, 2, 3)
ADAM = {"name": "adam", "lr": 0.002, "eps": 1e-3}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
IMAGES: dict[str, dict[str, Any]] = {
    "softmax": {"model": "softmax", "optimizer": {**SGD, "weight_decay": 0.01}},
    "adam": {"model": "mlp", "optimizer": ADAM},
    "adamw": {"model": "mlp", "optimizer": {**ADAM, "name": "adamw", "weight_decay": 0.1}},
    "nesterov": {
        "model": "softmax",
        "optimizer": {**SGD, "nesterov": True},
        "schedule": {"kind": "cosine", "warmup": 3},
    },
    "rmsprop": {"model": "softmax", "optimizer": {"name": "rmsprop", "lr": 3e-4, "eps": 1e-3}},
    "adagrad": {"model": "softmax", "optimizer": {"name": "adagrad", "lr": 0.02}},
    "lenet": {"model": "lenet", "optimizer": ADAM},
    "vit": {"model": "vit", "optimizer": ADAM},
    "nodes": {"model": "softmax", "optimizer": SGD, "world_size": 2},
    "pipeline": {
        "model": "mlp",
        "optimizer": SGD,
        "world_size": 2,
        "split": {"stages": 2, "micro_batches": 4},
    },
    # Arms of the mistakes that no cause lists (`unlisted_plants`).
    "plain": {"model": "mlp", "optimizer": {"name": "sgd", "lr": 0.05}},
    "dampened": {
        "model": "softmax",
        "optimizer": {**SGD, "dampening": 0.4, "weight_decay": 0.01},
    },
    "stepwise": {
        "model": "softmax",
        "optimizer": SGD,
        "schedule": {"kind": "step", "every": 1, "gamma": 0.5},
    },
    "cosine": {
        "model": "mlp",
        "optimizer": {"name": "adamw", "lr": 0.002, "eps": 1e-3, "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "floor": 0.1},
    },
    "adam-decay": {"model": "mlp", "optimizer": {**ADAM, "weight_decay": 0.05}},
    "rmsprop-all": {
        "model": "softmax",
        "optimizer": {
            "name": "rmsprop",
            "lr": 3e-4,
            "eps": 1e-3,
            "alpha": 0.9,
            "momentum": 0.8,
            "centered": True,
        },
    },
    "chunks": {"model": "mlp", "optimizer": SGD, "chunk": 3},
    "ring": {
        "model": "softmax",
        "optimizer": SGD,
        "world_size": 3,
        "aggregation": {"strategy": "ring"},
    },
    "bucketed": {
        "model": "mlp",
        "optimizer": SGD,
        "world_size": 2,
        "aggregation": {"strategy": "parameter_server", "bucket_bytes": 0},
    },
}
TEXTS = {
    "rnn": {"optimizer": {"name": "sgd", "lr": 0.5}},
    # So large a rate that inputs of tanh come close to ±5 within two updates.
    "gru": {
        "model": "rnn_lm",
        "recurrent": {"rnn_type": "gru"},
        "optimizer": {"name": "adam", "lr": 0.3},
    },
    "gpt": {"model": "gpt", "optimizer": ADAM},
    "llama": {"model": "gpt_llama", "optimizer": ADAM},
}
#: Cases of the decoders.
WIDTHS = {"width": 16, "blocks": 1, "heads": 4, "kv_heads": 2, "tied": False}


@functools.cache
def plan(text: bool) -> Plan:
    arms = TEXTS if text else IMAGES
    sizes = {"words": 100, "length": 6} if text else {}
    name = "sentences" if text else "digits"
    told = {
        "name": "cases",
        "title": {"en": "x"},
        "model": "rnn_lm_dropout" if text else "mlp",
        "data": {"name": name, "train": 30, "test": 10, **sizes},
        "evaluation": {"train_samples": 5},
        **({"sizes": WIDTHS} if text else {}),
        "arms": {n: {"batch_size": 8, "updates": 4, **arm} for n, arm in arms.items()},
    }
    return freeze(Experiment.model_validate(told), load_data(name, explicit=True, **sizes))


@functools.cache
def samples(text: bool) -> Any:
    return load_samples(plan(text))


class Single(TrialReplay):
    """A replay whose inputs and results are rounded to float32, as a float32 backend's are."""

    def replay_update(self, weights: Any, state: Any, *rest: Any) -> Any:
        narrow = {name: np.float32(w) for name, w in weights.items()}
        found = super().replay_update(narrow, state, *rest)
        return {k: np.float32(a) if a.dtype.kind == "f" else a for k, a in found.items()}


def replay_arm(
    arm: str, kind: type[TrialReplay], states: States | None = None
) -> tuple[States, ReplayRecord]:
    """Replay an arm on all of its ranks; without ``states``, collect them first."""
    text = arm in TEXTS
    own = plan(text)
    told: dict[int, Any] = {}

    def replay_rank(comm: Any = None) -> None:
        resources = RankResources(NumpyBackend(), samples(text), comm)
        trial = TrialRunner(own, arm, 0, resources, Path(), lambda **_: None)
        made = kind(trial, lambda: None)
        start = (trial.training.weights(), trial.trainer.state())
        given = made.collect_states(start, STEPS[0], STEPS[-1]) if states is None else states
        told[trial.ranks.rank] = (
            given,
            *made.replay_updates(given, DRAWS if kind is Single else 0),
        )

    size = own.experiment.arms[arm].world_size
    if size == 1:
        replay_rank()
    else:
        run_threads(size, replay_rank, 60)
    ranks = [told[r] for r in range(size)]
    return ranks[0][0], ReplayRecord("numpy", [r[1] for r in ranks], [r[2] for r in ranks])


@functools.cache
def finding_of_case(case: str) -> dict[str, Any]:
    """Return the finder's result for a case whose fault is on the side of torch."""
    arm, fault, *_ = CASES[case]
    return finding(arm, {"torch": fault})


@functools.cache
def referee(arm: str) -> tuple[States, ReplayRecord]:
    return replay_arm(arm, TrialReplay)


def scene(arm: str, faults: Mapping[str, Fault | None]) -> ReplayContext:
    """Return the scene: the reference, and one backend with each named fault."""
    states, right = referee(arm)
    sides = {"numpy": right}
    for name, fault in faults.items():
        with pytest.MonkeyPatch.context() as patch:
            if fault is not None:
                fault(patch)
            sides[name] = replace(replay_arm(arm, Single, states)[1], backend=name)
    return scene_of(arm, states, sides)


def scene_of(arm: str, states: States, sides: dict[str, ReplayRecord]) -> ReplayContext:
    text = arm in TEXTS
    own, data = plan(text), samples(text)
    recipe = own.training_spec(own.experiment.arms[arm], 0, data.train_x, data.train_y)
    return ReplayContext(own, arm, recipe, states, sides, list(STEPS))


def finding(arm: str, faults: Mapping[str, Fault | None], margin: float = 10) -> dict[str, Any]:
    """Return the finder's result, with the evidence that `findings` adds."""
    found, _ = explain(scene(arm, faults), list(faults), margin)
    return {"arm": arm, "seed": 0, "a": "torch", "b": "mindspore", "margin": margin, **found}


# --- what is planted ------------------------------------------------------------------------------


def leave_out_last_bias(right: Any, self: Any, p: Any, g: Any, s: Any, *rest: Any) -> Any:
    """Return weights and state of ten classes' bias unchanged, others updated."""
    return (p, s) if p.shape == (10,) else right(self, p, g, s, *rest)


def wrap_call(owner: Any, name: str, change: Callable[..., Any]) -> Fault:
    """Return a fault that replaces a function by ``change(original, …)``."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **more: change(right, *args, **more))

    return fault


def rule(**fields: Any) -> Fault:
    def init(right: Any, self: Any, recipe: Any) -> None:
        right(self, replace(recipe, rule=replace(recipe.rule, **fields)))

    return wrap_call(NumpyTraining, "__init__", init)


def change_data(change: Callable[[Any, Any], tuple[Any, Any]]) -> Fault:
    """Return a fault that changes the training set."""

    def init(right: Any, self: Any, recipe: Any) -> None:
        x, y = change(recipe.x, recipe.y)
        right(self, replace(recipe, x=x, y=y))

    return wrap_call(NumpyTraining, "__init__", init)


def layer(kind: type, change: Callable[..., Any]) -> Fault:
    """Return a fault that replaces the output of a layer kind by ``change(forward, layer, x,
    params)``."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        right, back = PAIRS[kind]

        def forward(layer: Any, x: Any, params: Any) -> Any:
            return change(lambda *a: right(*a)[0], layer, x, params), right(layer, x, params)[1]

        patch.setitem(PAIRS, kind, (forward, back))

    return fault


def loss(change: Callable[..., Any]) -> Fault:
    """Return a fault that replaces the loss by ``change(loss, logits, labels)``, with the gradient
    unchanged."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        right = LOSSES["cross_entropy"]
        patch.setitem(
            LOSSES,
            "cross_entropy",
            lambda out, y: (change(lambda *a: right(*a)[0], out, y), right(out, y)[1]),
        )

    return fault


def gradient(change: Callable[[Any, Any], Any]) -> Fault:
    def changed(right: Any, self: Any, batch: Any) -> Any:
        value, grads = right(self, batch)
        return value, change(grads, batch)

    return wrap_call(NumpyTraining, "gradient", changed)


def ranks_sum(change: Callable[[Any, Any, int], Any]) -> Fault:
    """Return a fault that replaces a rank's all-reduced bucket by ``change(sum, x, rank)``."""
    return wrap_call(
        DataParallel,
        "reduce_bucket",
        lambda right, self, x, b: change(lambda x: right(self, x, b), np.array(x), self.comm.rank),
    )


def combine_faults(*faults: Fault) -> Fault:
    def fault(patch: pytest.MonkeyPatch) -> None:
        for one in faults:
            one(patch)

    return fault


def half_state(right: Any, self: Any, *args: Any) -> None:
    right(self, *args)
    self._state = {
        s: {n: np.float64(np.float16(a)) for n, a in named.items()}
        for s, named in self._state.items()
    }


def clipped(grads: Any, batch: Any) -> Any:
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    return {n: g * (0.5 / norm) for n, g in grads.items()}


def noisy(forward: Any, layer: Any, x: Any, params: Any) -> Any:
    y = forward(layer, x, params)
    return y + y.std() * np.random.default_rng(0).normal(size=y.shape)


def skip_rank1_sum(total: Any, x: Any, rank: int) -> Any:
    mine = x.copy()
    whole = total(x)
    return mine if rank == 1 else whole


def gates(forward: Any, layer: Any, x: Any, params: Any) -> Any:
    turned = {
        leaf: np.concatenate([np.split(a, 4)[i] for i in (0, 2, 1, 3)])
        for leaf, a in params.items()
    }
    return forward(layer, x, turned)


def smoothed(loss: Any, out: Any, y: Any) -> Any:
    every = np.mean([loss(out, np.full_like(y, c)) for c in range(out.shape[-1])])
    return 0.9 * loss(out, y) + 0.1 * every


def bare(forward: Any, layer: Any, x: Any, params: Any) -> Any:
    return forward(layer, x, {"weight": np.ones_like(params["weight"])})


def neighbours(forward: Any, layer: Any, x: Any, params: Any) -> Any:
    """Apply rotary position embedding as in the paper, with complex numbers of neighbouring
    entries."""
    b, length, _ = x.shape
    parts = x.reshape(b, length, -1, layer.width).copy()
    angle = np.arange(length)[:, None] * layer.base ** (-np.arange(0, layer.width, 2) / layer.width)
    number = np.arange(parts.shape[2]) % (layer.heads_per_group + 2)
    for head in np.flatnonzero(
        number <= layer.heads_per_group
    ):  # queries and the key of every group
        turn = (parts[:, :, head, ::2] + 1j * parts[:, :, head, 1::2]) * np.exp(1j * angle)
        parts[:, :, head, ::2], parts[:, :, head, 1::2] = turn.real, turn.imag
    return forward(replace(layer, base=0.0), parts.reshape(x.shape), params)


#: Cause → arm, kind of layer, and its replacement.
DECODERS: dict[str, tuple[str, type, Callable[..., Any]]] = {
    "rmsnorm-eps": ("llama", RMSNorm, lambda f, own, x, p: f(replace(own, eps=1e-2), x, p)),
    "missing-gain": ("llama", RMSNorm, bare),
    "shifted-gain": ("llama", RMSNorm, lambda f, own, x, p: f(own, x, {"weight": 1 + p["weight"]})),
    "centred-norm": ("llama", RMSNorm,
                     lambda f, own, x, p: f(own, x - x.mean(-1, keepdims=True), p)),
    "length-not-mean": ("llama", RMSNorm, lambda f, own, x, p: f(own, x, p) / own.features**0.5),
    "swapped-gate": ("llama", SwiGLU,
                     lambda f, own, x, p: f(own, np.roll(x, x.shape[-1] // 2, -1), p)),
    "other-gate": ("llama", SwiGLU,
                   lambda f, own, x, p: np.maximum(*np.broadcast_arrays(np.split(x, 2, -1)[0], 0))
                   * np.split(x, 2, -1)[1]),
    "woven-gate": ("llama", SwiGLU,
                   lambda f, own, x, p: f(own, np.concatenate([x[..., ::2], x[..., 1::2]], -1), p)),
    "missing-rotation": ("llama", GroupedAttention,
                         lambda f, own, x, p: f(replace(own, base=0.0), x, p)),
    "rotary-base": ("llama", GroupedAttention,
                    lambda f, own, x, p: f(replace(own, base=500_000.0), x, p)),
    "rotary-pairs": ("llama", GroupedAttention, neighbours),
    "gelu-form": ("gpt", GELU, lambda f, own, x, p: 0.5 * x * (
        1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
}  # fmt: skip
#: Case → first update that shows it, if it is not the first: weights start at one.
LATE = {"missing-gain": 2, "saturated": 2}
#: Name → arm, planted fault, phase, tensor (None: any), cause.
CASES: dict[str, tuple[str, Fault, str, str | None, str]] = {
    "labels": ("adam", change_data(lambda x, y: (x, (y + 1) % 10)), "data", "y", "shifted-labels"),
    "axes": ("softmax", change_data(lambda x, y: (x.swapaxes(-1, -2), y)), "data", "x",
             "image-layout"),
    "dropped": ("softmax", combine_faults(*(
        wrap_call(NumpyTraining, name, lambda right, self, batch: right(self, batch[:-1]))
        for name in ("fetch_batch", "gradient"))), "data", "x", "dropped-samples"),
    "next": ("nodes",
             wrap_call(BatchSampler, "parts", lambda right, self, step: right(self, step + 1)),
             "data", "x", "other-update"),
    "leaky": ("lenet", layer(ReLU, lambda f, own, x, p: np.where(x > 0, x, 0.2 * x)), "forward",
              "relu1", "leaky-relu"),
    "pool": ("lenet", layer(MaxPool2d, lambda f, own, x, p: -f(own, -x, p)), "forward", "pool1",
             "minimum-pool"),
    "bias": ("adam", layer(Linear, lambda f, own, x, p: f(own, x, {**p, "bias": 0 * p["bias"]})),
             "forward", "fc1", "missing-bias"),
    "eps": ("vit", layer(LayerNorm, lambda f, own, x, p: f(replace(own, eps=1e-2), x, p)),
            "forward", None, "layernorm-eps"),
    "causal": ("vit", layer(Attention, lambda f, own, x, p: f(replace(own, causal=True), x, p)),
               "forward", None, "attention-mask"),
    "wide": ("rnn", layer(Embedding, lambda f, own, x, p: f(own, x, p) * np.sqrt(own.features)),
             "forward", None, "scaled-embedding"),
    "gates": ("rnn", layer(LSTM, gates), "forward", None, "gate-order"),
    "saturated": ("gru", layer(GRU, lambda f, own, x, p: f(own, x, p, rational_tanh)), "forward",
                  None, "tanh-approximation"),
    **{cause: (arm, layer(kind, change), "forward", None, cause)
       for cause, (arm, kind, change) in DECODERS.items()},
    "smoothing": ("adam", loss(smoothed), "loss", "batch", "label-smoothing"),
    "sum": ("softmax", loss(lambda f, out, y: f(out, y) * len(y)), "loss", "batch", "sum-not-mean"),
    "eval": ("rnn", lambda patch: patch.setattr(reference, "extra_inputs", lambda *_: {}), "loss",
             "batch", "eval-mode"),
    "clipped": ("adam", gradient(clipped), "gradient", None, "clipped-gradient"),
    "frozen": ("adam", gradient(lambda g, _: {**g, "fc1.weight": 0 * g["fc1.weight"]}), "gradient",
               "fc1.weight", "frozen-parameters"),
    "idle": ("adam", wrap_call(Adam, "update_param", leave_out_last_bias), "update", None,
             "frozen-parameters"),
    "ranks": ("nodes", wrap_call(DataParallel, "gradient_factor", lambda *_: 1.0), "gradient", None,
              "sum-not-mean"),
    "micro": ("pipeline", wrap_call(
        NumpyStage, "loss_backward", lambda right, self, micro, share: right(
            self, micro, 0.0 if micro == 2 else share)), "gradient", None, "lost-micro-batch"),
    "alone": ("nodes", ranks_sum(skip_rank1_sum), "aggregation", None, "unsynchronised-rank"),
    "lost": ("nodes", ranks_sum(lambda f, x, rank: f(0 * x if rank == 1 else x)), "aggregation",
             None, "lost-rank"),
    "twice": ("nodes", ranks_sum(lambda f, x, rank: f(x) / 2), "aggregation", None,
              "averaged-twice"),
    "hat": ("adam", rule(eps_form="hat"), "update", None, "adam-epsilon"),
    "decay": ("adamw", rule(weight_decay=0.0), "update", None, "missing-decay"),
    "nesterov": ("nesterov", rule(nesterov=False), "update", None, "nesterov"),
    "alpha": ("rmsprop", rule(alpha=0.9), "update", None, "other-alpha"),
    "state": ("softmax", wrap_call(NumpyTraining, "update", half_state), "state", None,
              "half-precision"),
}  # fmt: skip
