"""Wrong optimizers, written once for NumPy arrays and PyTorch tensors.

Each takes (hyperparameters, parameter, gradient, state, step, rate) and returns the new parameter
and state. `unlisted_torch` runs them in place of PyTorch's rule; `unlisted` compares a cause that
the finder names with them. MindSpore compiles its own source: `unlisted_mindspore`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

State = dict[str, Any]
Update = Callable[[Any, Any, Any, State, int, float], tuple[Any, State]]

#: Plant → the rule that it changes, and the update in its place.
RULES: dict[str, tuple[str, Update]] = {}


def instead_of(rule: str) -> Callable[[Update], Update]:
    """Register a function as the plant of its name in a rule."""

    def register(update: Update) -> Update:
        RULES[update.__name__.replace("_", "-")] = rule, update
        return update

    return register


# --- SGD with momentum ----------------------------------------------------------------------------


@instead_of("sgd")
def first_gradient_dampened(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    g = g + o.weight_decay * p
    b = o.momentum * s["momentum_buffer"] + (1 - o.dampening) * g
    return p - lr * b, {"momentum_buffer": b}


@instead_of("sgd")
def nesterov_with_old_buffer(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    b = o.momentum * s["momentum_buffer"] + g
    return p - lr * (g + o.momentum * s["momentum_buffer"]), {"momentum_buffer": b}


@instead_of("sgd")
def buffer_reset_at_two(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    g = g + o.weight_decay * p
    b = g if step == 2 else o.momentum * s["momentum_buffer"] + g
    return p - lr * b, {"momentum_buffer": b}


@instead_of("sgd")
def momentum_times_sum(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    g = g + o.weight_decay * p
    b = o.momentum * (s["momentum_buffer"] + g)
    return p - lr * b, {"momentum_buffer": b}


# --- Adam -----------------------------------------------------------------------------------------


def adam_moments(o: Any, g: Any, s: State) -> tuple[Any, Any]:
    """Return both averages after the gradient ``g``."""
    m = o.betas[0] * s["exp_avg"] + (1 - o.betas[0]) * g
    return m, o.betas[1] * s["exp_avg_sq"] + (1 - o.betas[1]) * g * g


def adam_step(o: Any, p: Any, m: Any, v: Any, step: int, lr: float) -> tuple[Any, State]:
    """Return the parameter after Adam's step with these averages, and the state."""
    c1, c2 = 1 - o.betas[0] ** step, 1 - o.betas[1] ** step
    new = p - lr * (m / c1) / ((v / c2) ** 0.5 + o.eps)
    return new, {"exp_avg": m, "exp_avg_sq": v}


@instead_of("adam")
def average_with_beta2(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    _, v = adam_moments(o, g, s)
    m = o.betas[1] * s["exp_avg"] + (1 - o.betas[1]) * g
    return adam_step(o, p, m, v, step, lr)


@instead_of("adam")
def square_of_average(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    m, _ = adam_moments(o, g, s)
    v = o.betas[1] * s["exp_avg_sq"] + (1 - o.betas[1]) * m * m
    return adam_step(o, p, m, v, step, lr)


@instead_of("adam")
def only_first_corrected(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    m, v = adam_moments(o, g, s)
    new = p - lr * (m / (1 - o.betas[0] ** step)) / (v**0.5 + o.eps)
    return new, {"exp_avg": m, "exp_avg_sq": v}


@instead_of("adam")
def second_corrected_twice(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    m, v = adam_moments(o, g, s)
    c1, c2 = 1 - o.betas[0] ** step, 1 - o.betas[1] ** step
    new = p - lr * (m / c1) / ((v / c2 / c2) ** 0.5 + o.eps)
    return new, {"exp_avg": m, "exp_avg_sq": v}


@instead_of("adam")
def decay_only_in_average(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    m, _ = adam_moments(o, g + o.weight_decay * p, s)
    _, v = adam_moments(o, g, s)
    return adam_step(o, p, m, v, step, lr)


@instead_of("adamw")
def decay_after_step(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    new, after = adam_step(o, p, *adam_moments(o, g, s), step, lr)
    return new * (1 - lr * o.weight_decay), after


# --- RMSprop and Adagrad --------------------------------------------------------------------------


@instead_of("rmsprop")
def corrected_squares(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    v = o.alpha * s["square_avg"] + (1 - o.alpha) * g * g
    d = g / ((v / (1 - o.alpha**step)) ** 0.5 + o.eps)
    b = o.momentum * s["momentum_buffer"] + d
    return p - lr * b, {"square_avg": v, "momentum_buffer": b}


@instead_of("adagrad")
def root_around_epsilon(o: Any, p: Any, g: Any, s: State, step: int, lr: float) -> Any:
    total = s["sum"] + g * g
    return p - lr * g / (total + o.eps) ** 0.5, {"sum": total}
