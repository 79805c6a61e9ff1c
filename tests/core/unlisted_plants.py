"""Mistakes that no cause of the finder lists, as they happen in one's own rule, loss or strategy.

They were written before the search that has to explain them, and are halved by a hash of their
names: whoever works on the finder looks at the half `known` only. A plant of an optimizer is the
whole rule, in float32; others patch the reference that plays the framework (`finder_cases`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from finder_cases import Fault, gradient, ranks_sum, wrap_call

from dualml.algorithms.optim.base import RULES
from dualml.backend.reference import training as reference
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.split import NumpyStage
from dualml.backend.reference.training import NumpyTraining
from dualml.backend.training_spec import TrainingSpec
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.ring import Ring
from dualml.runner.worker.ranks import MultiRank

#: A rule as one would write it oneself: (specification, p, g, state, step, lr) → (p, state).
Update = Callable[[Any, Any, Any, Any, int, float], tuple[Any, dict[str, Any]]]
#: Cause → the details that it has to have, or none.
Answers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Plant:
    """One mistake.

    Attributes:
        arm: arm of `finder_cases` in which it is made.
        fault: patches the reference while it plays the framework.
        update: the whole rule, for a mistake in an optimizer.
        answers: causes that are right. A cause that changes a line of the rule is right if the
            changed rule computes what ``update`` does.
    """

    name: str
    arm: str
    fault: Fault
    answers: Answers
    update: Update | None = None

    @property
    def half(self) -> str:
        """Half to which it belongs: ``known`` or ``held-out``."""
        return ("known", "held-out")[hashlib.sha256(self.name.encode()).digest()[0] % 2]


PLANTS: dict[str, Plant] = {}


def add(name: str, arm: str, fault: Fault, answers: Answers, update: Update | None = None) -> None:
    PLANTS[name] = Plant(name, arm, fault, answers, update)


# --- optimizers -----------------------------------------------------------------------------------


def planted_rule(rule: str, update: Update) -> Fault:
    """Return the fault that replaces a rule's update by ``update``, computed in float32."""

    def narrow(array: Any) -> Any:
        return np.asarray(array, np.float32)

    def update_param(self: Any, p: Any, g: Any, s: Any, step: int, lr: float) -> Any:
        own = {slot: narrow(a) for slot, a in s.items()}
        new, after = update(self, narrow(p), narrow(g), own, step, lr)
        return np.float64(new), {slot: np.float64(a) for slot, a in after.items()}

    return lambda patch: patch.setattr(RULES[rule], "update_param", update_param)


def mistaken(rule: str, arm: str, **also: Mapping[str, Any]) -> Callable[[Update], Update]:
    """Plant a function as the rule of an arm; ``also``: listed causes that say the same."""

    def keep(update: Update) -> Update:
        name = update.__name__.replace("_", "-")
        answers = {cause.replace("_", "-"): detail for cause, detail in also.items()}
        add(name, arm, planted_rule(rule, update), answers, update)
        return update

    return keep


@mistaken("sgd", "dampened", dampening={})
def first_gradient_dampened(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    g = g + o.weight_decay * p
    b = o.momentum * s["momentum_buffer"] + (1 - o.dampening) * g
    return p - lr * b, {"momentum_buffer": b}


@mistaken("sgd", "nesterov")
def nesterov_with_old_buffer(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * (g + o.momentum * s["momentum_buffer"]), {"momentum_buffer": b}


@mistaken("sgd", "nesterov")
def nesterov_roles_swapped(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * (b + o.momentum * g), {"momentum_buffer": b}


@mistaken("sgd", "nesterov")
def rate_in_buffer(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = lr * g if step == 1 else o.momentum * s["momentum_buffer"] + lr * g
    return p - (lr * g + o.momentum * b), {"momentum_buffer": b}


# p − η(b + λp) is p(1 − ηλ) − ηb: the decay is decoupled.
@mistaken("sgd", "softmax", decay_coupling={"as": "decoupled"})
def decay_after_momentum(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * (b + o.weight_decay * p), {"momentum_buffer": b}


@mistaken("sgd", "softmax", other_decay={"weight_decay": -0.01})
def decay_subtracted(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    g = g - o.weight_decay * p
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": b}


@mistaken("sgd", "softmax")
def decay_of_signs(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    g = g + o.weight_decay * np.sign(p)
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": b}


@mistaken("sgd", "stepwise")
def buffer_never_stored(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": s["momentum_buffer"]}


@mistaken("sgd", "stepwise")
def old_buffer_applied(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * s["momentum_buffer"], {"momentum_buffer": b}


@mistaken("sgd", "stepwise")
def buffer_averaged(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + (1 - o.momentum) * g
    return p - lr * b, {"momentum_buffer": b}


@mistaken("sgd", "plain", flipped_sign={"factor": -1})
def ascends(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    return p + lr * g, {}


@mistaken("sgd", "plain")
def rate_squared(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    return p - lr * lr * g, {}


@mistaken("sgd", "plain", **{"changed-gradient": {"function": "sign"}})
def only_signs(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    return p - lr * np.sign(g), {}


@mistaken("sgd", "plain", **{"changed-gradient": {"function": "normalised"}})
def normalised_gradient(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    return p - lr * g / np.sqrt((g * g).sum()), {}


@mistaken(
    "sgd",
    "plain",
    **{"scaled-tensors": {"tensors": ["fc1.bias", "fc2.bias", "fc3.bias"], "factor": 2}},
)
def biases_twice_as_fast(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    return p - (2 * lr if p.ndim == 1 else lr) * g, {}


def adam_step(o, p, m, v, step, lr):  # type: ignore[no-untyped-def]
    return p - lr * (m / (1 - o.betas[0] ** step)) / (np.sqrt(v / (1 - o.betas[1] ** step)) + o.eps)


def adam_moments(o, g, s):  # type: ignore[no-untyped-def]
    m = o.betas[0] * s["exp_avg"] + (1 - o.betas[0]) * g
    return m, o.betas[1] * s["exp_avg_sq"] + (1 - o.betas[1]) * g * g


@mistaken("adam", "adam")
def square_of_average(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, _ = adam_moments(o, g, s)
    v = o.betas[1] * s["exp_avg_sq"] + (1 - o.betas[1]) * m * m
    return adam_step(o, p, m, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def only_first_corrected(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    d = m / (1 - o.betas[0] ** step) / (np.sqrt(v) + o.eps)
    return p - lr * d, {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def only_second_corrected(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    d = m / (np.sqrt(v / (1 - o.betas[1] ** step)) + o.eps)
    return p - lr * d, {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def one_correction_for_both(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    c = 1 - o.betas[0] ** step
    return p - lr * (m / c) / (np.sqrt(v / c) + o.eps), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def correction_times_step(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    c = 1 - o.betas[0] * step
    return p - lr * (m / c) / (np.sqrt(v / (1 - o.betas[1] ** step)) + o.eps), {
        "exp_avg": m,
        "exp_avg_sq": v,
    }


@mistaken("adam", "adam")
def root_forgotten(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    d = (m / (1 - o.betas[0] ** step)) / (v / (1 - o.betas[1] ** step) + o.eps)
    return p - lr * d, {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam", other_betas={})
def betas_swapped(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    o = replace(o, betas=(o.betas[1], o.betas[0]))
    m, v = adam_moments(o, g, s)
    return adam_step(o, p, m, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def average_not_weighted(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    _, v = adam_moments(o, g, s)
    m = o.betas[0] * s["exp_avg"] + g
    return adam_step(o, p, m, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def maximum_of_squares(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    v = np.maximum(s["exp_avg_sq"], v)
    return adam_step(o, p, m, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def old_average_applied(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    return adam_step(o, p, s["exp_avg"], v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def gradient_not_average_applied(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    return adam_step(o, p, g, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam")
def corrected_average_stored(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    return adam_step(o, p, m, v, step, lr), {
        "exp_avg": m / (1 - o.betas[0] ** step),
        "exp_avg_sq": v,
    }


@mistaken("adam", "adam")
def look_ahead(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    ahead = o.betas[0] * m + (1 - o.betas[0]) * g
    return adam_step(o, p, ahead, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adam", "adam-decay")
def decay_only_in_average(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, _ = adam_moments(o, g + o.weight_decay * p, s)
    _, v = adam_moments(o, g, s)
    return adam_step(o, p, m, v, step, lr), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adamw", "adamw")
def decay_after_step(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    new = adam_step(o, p, m, v, step, lr)
    return new * (1 - lr * o.weight_decay), {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adamw", "adamw", decay_without_rate={"decay": 0.1})
def decay_without_rate(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    new = adam_step(o, p * (1 - o.weight_decay), m, v, step, lr)
    return new, {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adamw", "cosine")
def decay_with_base_rate(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    new = adam_step(o, p * (1 - o.lr * o.weight_decay), m, v, step, lr)
    return new, {"exp_avg": m, "exp_avg_sq": v}


@mistaken("adamw", "adamw", other_decay={"weight_decay": -0.1})
def decay_grows(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    m, v = adam_moments(o, g, s)
    new = adam_step(o, p * (1 + lr * o.weight_decay), m, v, step, lr)
    return new, {"exp_avg": m, "exp_avg_sq": v}


def rmsprop_all(o, g, s):  # type: ignore[no-untyped-def]
    v = o.alpha * s["square_avg"] + (1 - o.alpha) * g * g
    return v, o.alpha * s["grad_avg"] + (1 - o.alpha) * g


@mistaken("rmsprop", "rmsprop-all")
def rmsprop_rate_in_buffer(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v, mean = rmsprop_all(o, g, s)
    b = o.momentum * s["momentum_buffer"] + lr * g / (np.sqrt(v - mean * mean) + o.eps)
    return p - b, {"square_avg": v, "grad_avg": mean, "momentum_buffer": b}


@mistaken("rmsprop", "rmsprop-all")
def centred_by_old_mean(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v, mean = rmsprop_all(o, g, s)
    root = np.sqrt(v - s["grad_avg"] * s["grad_avg"])
    b = o.momentum * s["momentum_buffer"] + g / (root + o.eps)
    return p - lr * b, {"square_avg": v, "grad_avg": mean, "momentum_buffer": b}


@mistaken("rmsprop", "rmsprop-all")
def centre_not_squared(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v, mean = rmsprop_all(o, g, s)
    b = o.momentum * s["momentum_buffer"] + g / (np.sqrt(np.abs(v - mean)) + o.eps)
    return p - lr * b, {"square_avg": v, "grad_avg": mean, "momentum_buffer": b}


@mistaken("rmsprop", "rmsprop")
def squares_not_weighted(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v = o.alpha * s["square_avg"] + g * g
    return p - lr * g / (np.sqrt(v) + o.eps), {"square_avg": v}


@mistaken("rmsprop", "rmsprop", other_alpha={"alpha": 0.01})
def alpha_on_the_other_side(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v = (1 - o.alpha) * s["square_avg"] + o.alpha * g * g
    return p - lr * g / (np.sqrt(v) + o.eps), {"square_avg": v}


# A sum that begins anew at every update is the square alone.
@mistaken("adagrad", "adagrad", state_lost={})
def sum_forgotten(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v = g * g
    return p - lr * g / (np.sqrt(v) + o.eps), {"sum": v}


@mistaken("adagrad", "adagrad")
def magnitudes_summed(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v = s["sum"] + np.abs(g)
    return p - lr * g / (np.sqrt(v) + o.eps), {"sum": v}


@mistaken("adagrad", "adagrad")
def mean_of_squares(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    v = s["sum"] + g * g
    return p - lr * g / (np.sqrt(v / step) + o.eps), {"sum": v}


# --- rates and single updates ---------------------------------------------------------------------


def rates(name: str, arm: str, rate: Callable[[Any, int], float], **schedule: Any) -> None:
    """Plant another learning rate: ``rate(recipe, step)``."""
    answers = {"rates-of-updates": {}, "other-schedule": schedule or {"kind": "none"}}
    fault = wrap_call(TrainingSpec, "learning_rate", lambda right, self, step: rate(self, step))
    add(name, arm, fault, answers)


def cosine_of(o: Any, step: int, total: float, floor: float) -> float:
    wave = (1 + np.cos(np.pi * (step - 1) / total)) / 2
    return float(o.rule.lr * (floor + (1 - floor) * wave))


rates("cosine-twice-as-long", "cosine", lambda o, t: cosine_of(o, t, 8, 0.1), total=8)
rates("cosine-floor-forgotten", "cosine", lambda o, t: cosine_of(o, t, 4, 0.0), floor=0.0)
rates("linear-not-cosine", "cosine", lambda o, t: o.rule.lr * (1 - 0.9 * (t - 1) / 4))
rates("drops-piled-up", "stepwise", lambda o, t: o.rule.lr * 0.5 ** (t * (t - 1) // 2))
rates("warmup-of-squares", "nesterov", lambda o, t: o.rule.lr * (t / 3) ** 2)
rates("second-rate-halved", "plain", lambda o, t: o.rule.lr * (0.5 if t == 2 else 1))


def skip_update(number: int) -> Fault:
    def update(right: Any, self: Any, grads: Any, step: int) -> None:
        if step == number:
            self.step_count = step
        else:
            right(self, grads, step)

    return wrap_call(NumpyTraining, "update", update)


add(
    "second-update-skipped",
    "softmax",
    skip_update(2),
    {"frozen-parameters": {"parameters": "all", "updates": [2]}},
)


@mistaken("sgd", "softmax", missing_decay={"updates": [2, 3]})
def decay_in_first_update_only(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    g = g + o.weight_decay * p if step == 1 else g
    b = g if step == 1 else o.momentum * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": b}


@mistaken("sgd", "stepwise", other_momentum={"momentum": 0.5})
def momentum_warms_up(o, p, g, s, step, lr):  # type: ignore[no-untyped-def]
    b = g if step == 1 else 0.5 * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": b}


# --- gradients, one tensor or all -----------------------------------------------------------------


def one_tensor(name: str, factor: float) -> Callable[[Any, Any], Any]:
    return lambda grads, _: {**grads, name: factor * grads[name]}


def scaled(tensors: list[str], factor: float) -> Answers:
    return {"scaled-tensors": {"tensors": tensors, "factor": factor}}


add("first-weight-twice", "adam", gradient(one_tensor("fc1.weight", 2)), scaled(["fc1.weight"], 2))
add("last-bias-negated", "plain", gradient(one_tensor("fc2.bias", -1)), scaled(["fc2.bias"], -1))
add("last-bias-summed", "plain", gradient(one_tensor("fc2.bias", 8)), scaled(["fc2.bias"], 8))
add(
    "biases-a-tenth",
    "adam",
    gradient(lambda grads, _: {n: g / 10 if n.endswith("bias") else g for n, g in grads.items()}),
    scaled(["fc1.bias", "fc2.bias", "fc3.bias"], 0.1),
)
add(
    "clipped-one-by-one",
    "plain",
    gradient(
        lambda grads, _: {n: g * min(1.0, 0.2 / np.sqrt((g * g).sum())) for n, g in grads.items()}
    ),
    {"clipped-tensors": {"norm": 0.2}},
)
add(
    "clipped-by-element",
    "plain",
    gradient(lambda grads, _: {n: np.clip(g, -0.01, 0.01) for n, g in grads.items()}),
    {"clipped-gradient": {"value": 0.01}},
)
add(
    "gradient-centred",
    "plain",
    gradient(lambda grads, _: {n: g - g.mean() if g.ndim > 1 else g for n, g in grads.items()}),
    {"centred-gradient": {}, "changed-gradient": {"function": "centred"}},
)


def weigh_samples(weights: Callable[[int], Any]) -> Fault:
    """Return the fault of a loss and a gradient that are the mean of samples with weights."""

    def weighted_gradient(right: Any, self: Any, batch: Any) -> Any:
        value, total = 0.0, dict[str, Any]()
        for i, w in enumerate(weights(len(batch))):
            loss, grads = right(self, batch[i : i + 1])
            value += w * loss
            total = {n: total.get(n, 0) + w * g for n, g in grads.items()}
        return value, total

    return wrap_call(NumpyTraining, "gradient", weighted_gradient)


def sample_weights(n: int, special: int, weight: float, total: float) -> Any:
    w = np.ones(n)
    w[special] = weight
    return w / total


add(
    "last-sample-ignored",
    "plain",
    weigh_samples(lambda n: sample_weights(n, -1, 0, n)),
    {"sample-weights": {"samples": [7], "factor": 0}, "dropped-samples": {"samples": [7]}},
)
add(
    "first-sample-twice",
    "adam",
    weigh_samples(lambda n: sample_weights(n, 0, 2, n)),
    {
        "sample-weights": {"samples": [0], "factor": 2},
        "padded-duplicates": {"samples": [0], "weights": [2]},
    },
)
add(
    "mean-over-one-less",
    "plain",
    weigh_samples(lambda n: np.full(n, 1 / (n - 1))),
    {"scaled-loss": {"factor": 8 / 7}},
)


def unweighted_chunks(right: Any, batch: Any, chunk: Any) -> Any:
    parts = list(right(batch, chunk))
    return [(part, 1 / len(parts)) for part, _ in parts]


add(
    "chunks-averaged-alike",
    "chunks",
    lambda patch: wrap_call(reference, "split_into_chunks", unweighted_chunks)(patch),
    {"mean-weights": {"of": "chunks"}},
)
add(
    "last-chunk-forgotten",
    "chunks",
    lambda patch: wrap_call(reference, "split_into_chunks", lambda right, *a: list(right(*a))[:-1])(
        patch
    ),
    {"mean-weights": {"of": "chunks"}, "dropped-samples": {"samples": [6, 7]}},
)
add(
    "last-micro-batch-twice",
    "pipeline",
    wrap_call(
        NumpyStage,
        "loss_backward",
        lambda right, self, micro, share: right(self, micro, share * (2 if micro == 3 else 1)),
    ),
    {
        "mean-weights": {"of": "micro-batches"},
        "lost-micro-batch": {"micro-batches": [3], "weights": [2]},
    },
)


# --- losses ---------------------------------------------------------------------------------------


def own_loss(change: Callable[[Any, Any], tuple[float, Any]]) -> Fault:
    """Return the fault of another loss, with its gradient."""
    return lambda patch: patch.setitem(LOSSES, "cross_entropy", change)


def softmax(out: Any) -> Any:
    e = np.exp(out - out.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def one_hot(out: Any, y: Any) -> Any:
    return np.eye(out.shape[1])[y]


def loss_of_targets(targets: Callable[[Any, Any], Any], weights: Any = None) -> Fault:
    """Return the fault of a cross-entropy with these targets, and with weights of the samples."""

    def change(out: Any, y: Any) -> tuple[float, Any]:
        p, t = softmax(out), targets(out, y)
        w = (np.ones(len(y)) if weights is None else weights(y)) / len(y)
        return float(-(w[:, None] * t * np.log(p)).sum()), w[:, None] * (
            p * t.sum(axis=1, keepdims=True) - t
        )

    return own_loss(change)


add(
    "loss-over-classes",
    "adam",
    own_loss(lambda out, y: (lambda v, g: (v / 10, g / 10))(*CROSS_ENTROPY(out, y))),
    {"scaled-loss": {"factor": 0.1}, "mean-over-classes": {}},
)
add(
    "class-three-twice",
    "adam",
    loss_of_targets(one_hot, lambda y: np.where(y == 3, 2.0, 1.0)),
    {"class-weights": {"class": 3, "factor": 2}},
)
add(
    "smoothed-over-others",
    "adam",
    loss_of_targets(lambda out, y: np.where(one_hot(out, y) == 1, 0.9, 0.1 / 9)),
    {"label-smoothing": {"smoothing": 1 / 9}},
)


def focal(out: Any, y: Any) -> tuple[float, Any]:
    p, t = softmax(out), one_hot(out, y)
    at = (p * t).sum(axis=1, keepdims=True)
    slope = 2 * (1 - at) * np.log(at) * at - (1 - at) ** 2
    return float((-((1 - at) ** 2) * np.log(at)).mean()), slope * (t - p) / len(y)


def log_in_bits(out: Any, y: Any) -> tuple[float, Any]:
    value, grads = CROSS_ENTROPY(out, y)
    return value / np.log(2), grads / np.log(2)


CROSS_ENTROPY = LOSSES["cross_entropy"]
add("focal", "adam", own_loss(focal), {"focal-loss": {"gamma": 2}})
add(
    "bits-not-nats",
    "plain",
    own_loss(log_in_bits),
    {"scaled-loss": {"factor": 1 / np.log(2)}, "other-logarithm": {"base": 2}},
)
add(
    "temperature-two",
    "adam",
    own_loss(lambda out, y: (lambda v, g: (v, g / 2))(*CROSS_ENTROPY(out / 2, y))),
    {"temperature": {"temperature": 2}},
)
add(
    "gradient-of-sum-only-last-layer",
    "plain",
    gradient(
        lambda grads, b: {n: g * (len(b) if n.startswith("fc2") else 1) for n, g in grads.items()}
    ),
    scaled(["fc2.weight", "fc2.bias"], 8),
)


# --- ranks ----------------------------------------------------------------------------------------


def factors(change: Callable[[int, int, float], float]) -> Fault:
    """Return the fault of ranks that weight their gradients by ``change(rank, size, share)``."""
    return wrap_call(
        DataParallel,
        "gradient_factor",
        lambda right, self, share: change(self.comm.rank, self.comm.size, share),
    )


def weights(*w: float) -> Answers:
    return {"mean-weights": {"weights": list(w)}}


def doubled(rank: int, weight: float) -> Answers:
    detail = {"ranks": [rank], "weights": [weight]}
    return {"doubled-rank": detail, "lost-rank": detail}


add(
    "uneven-parts-averaged-alike",
    "ring",
    factors(lambda r, n, s: 1 / n),
    weights(1 / 3, 1 / 3, 1 / 3),
)
add(
    "weights-in-reverse",
    "ring",
    factors(lambda r, n, s: [2, 3, 3][r] / 8),
    weights(0.25, 0.375, 0.375),
)
add(
    "divided-by-one-less",
    "nodes",
    factors(lambda r, n, s: s * n / (n - 1)),
    {"scaled-gradient": {"factor": 2}, "sum-not-mean": {"factor": "ranks"}},
)
add(
    "own-gradient-twice",
    "nodes",
    ranks_sum(lambda total, x, rank: x.copy() + total(x)),
    {"own-rank-weight": {"own": 2, "others": 1}},
)
add(
    "rank-zero-twice",
    "nodes",
    ranks_sum(lambda total, x, rank: total(x * 2 if rank == 0 else x)),
    doubled(0, 2),
)
add(
    "rank-one-negated",
    "nodes",
    ranks_sum(lambda total, x, rank: total(-x if rank == 1 else x)),
    doubled(1, -1),
)
add(
    "server-forgets-itself",
    "bucketed",
    ranks_sum(lambda total, x, rank: total(0 * x if rank == 0 else x)),
    doubled(0, 0),
)
add(
    "average-then-weight",
    "ring",
    ranks_sum(lambda total, x, rank: total(x * [3, 3, 2][rank] / 8)),
    {"rank-factors": {"factors": [0.375, 0.375, 0.25]}},
)


def second_bucket_halved(right: Any, self: Any, x: Any, bucket: str) -> Any:
    total = right(self, x, bucket)
    return total / 2 if bucket == "bucket1" else total


add(
    "one-bucket-halved",
    "bucketed",
    wrap_call(DataParallel, "reduce_bucket", second_bucket_halved),
    {"scaled-tensors": {"factor": 0.5}},
)


def change_ring(change: Callable[[list[list[Any]]], Any]) -> Fault:
    """Return the fault of a ring whose messages are changed, step by step."""

    def schedule(right: Any, self: Any, n: int) -> Any:
        own = right(self, n)
        steps = change([list(step) for step in own.steps])
        return replace(own, steps=tuple(tuple(step) for step in steps))

    return wrap_call(Ring, "schedule", schedule)


def with_step(number: int, **fields: Any) -> Callable[[list[list[Any]]], Any]:
    return lambda steps: [
        [replace(t, **fields) for t in step] if i == number else step
        for i, step in enumerate(steps)
    ]


add(
    "ring-last-step-missing",
    "ring",
    change_ring(lambda steps: steps[:-1]),
    {"changed-message": {"change": "left out", "step": 4}},
)
add(
    "ring-step-replaces",
    "ring",
    change_ring(with_step(1, op="put")),
    {"changed-message": {"change": "replaces", "step": 2}},
)
add(
    "ring-gather-adds",
    "ring",
    change_ring(with_step(2, op="add")),
    {"changed-message": {"change": "added", "step": 3}},
)
add(
    "ring-step-twice",
    "ring",
    change_ring(lambda steps: [*steps[:1], *steps]),
    {"changed-message": {"change": "repeated", "step": 1}},
)
add(
    "ring-one-message-lost",
    "ring",
    change_ring(lambda steps: [steps[0], [t for t in steps[1] if t.source != 2], *steps[2:]]),
    {"changed-message": {"change": "left out", "step": 2, "source": 2}},
)


def parts(change: Callable[[Any, int], Any]) -> Fault:
    """Return the fault of a training whose ranks get other parts: ``change(parts, step)``."""
    return wrap_call(MultiRank, "batch", lambda right, self, step: change(right(self, step), step))


def shift_borders(own: Any, step: int) -> Any:
    whole = np.concatenate(own) if isinstance(own, list) else own
    cut = (len(whole) + 1) // 2
    return [whole[:cut], whole[cut - 1 :]]


add(
    "parts-overlap",
    "nodes",
    parts(shift_borders),
    {
        "overlapping-parts": {},
        "shifted-parts": {"by": -1},
        "repeated-part": {},
        "other-samples": {},
    },
)
add(
    "parts-swapped",
    "nodes",
    parts(lambda own, step: (own if isinstance(own, list) else np.array_split(own, 2))[::-1]),
    {"other-rank": {}},
)


# --- data -----------------------------------------------------------------------------------------


def fetched(change: Callable[[Any, Any], tuple[Any, Any]]) -> Fault:
    """Return the fault of batches that reach the model as ``change(x, y)``."""
    return wrap_call(
        NumpyTraining, "fetch_batch", lambda right, self, batch: change(*right(self, batch))
    )


add("labels-rolled", "adam", fetched(lambda x, y: (x, np.roll(y, 1))), {"rolled-labels": {"by": 1}})
add("images-mirrored", "adam", fetched(lambda x, y: (x[..., ::-1], y)), {"mirrored-images": {}})
add(
    "images-inverted",
    "adam",
    fetched(lambda x, y: (1 - x, y)),
    {"other-normalisation": {"scale": -1, "offset": 1}},
)
add(
    "images-halved",
    "softmax",
    fetched(lambda x, y: (x / 2, y)),
    {"other-normalisation": {"scale": 0.5, "offset": 0}},
)
add(
    "last-sample-repeats-first",
    "adam",
    fetched(lambda x, y: (np.concatenate([x[:-1], x[:1]]), np.concatenate([y[:-1], y[:1]]))),
    {"other-samples": {"positions": [7], "are": [0]}},
)
