"""GD, SGD and Adam with typical mistakes as options: mutations of `dualml.algorithms.optim`.

A rule is a function of one parameter ``p``, its gradient ``g``, its state ``s`` (changed in place),
its number of updates ``t`` (from 1), the hyperparameters ``h`` and the mistakes ``f``; it returns
the new parameter. Without mistakes it equals the rule of `dualml.algorithms.optim`, as the tests
check. Every number has the dtype of ``p``: tolerances are derived from the effect of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Array, Arrays, Flags
from dualml.course.mistakes import compute_mistaken

State = dict[str, Any]
Rule = Callable[[Any, Any, State, int, Mapping[str, Any], Flags], Any]


def gd(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after gradient descent by gradient ``g``, with hyperparameters ``h``
    and the mistakes ``f``; ``s`` is the state, changed in place."""
    if "accumulated" in f:
        s["sum"] = g = g + s.get("sum", 0)
    return p - signed_step_size(h["lr"], f) * g


def signed_step_size(lr: Any, f: Flags) -> Any:
    """Return the factor of the step, the learning rate ``lr``, as these mistakes change it: 1
    without the rate, negative with the wrong sign."""
    return (-1 if "sign" in f else 1) * (1 if "no_lr" in f else lr)


def add_weight_decay(p: Any, g: Any, decay: Any, f: Flags) -> Any:
    """Return the gradient ``g`` plus ``decay`` · ``p``, as the mistakes ``f`` change it."""
    mistaken = {
        "decay_ignored": lambda: g,
        "decay_sign": lambda: g - decay * p,
        "decay_l1": lambda: g + decay * np.sign(p),
        "decay_alone": lambda: g + decay,
        "decay_double": lambda: g + 2 * decay * p,
    }
    return compute_mistaken(f, mistaken, lambda: g + decay * p)


def sgd(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after update ``t`` (from 1) of SGD with momentum by gradient ``g``,
    with hyperparameters ``h`` and the mistakes ``f``; ``s`` is the state, changed in place."""
    lr, mu, decay = h["lr"], h["momentum"], h["weight_decay"]
    raw = g
    if "decay_decoupled" in f:
        p = p * (1 - lr * decay)
    elif "decay_afterwards" in f:
        pass
    elif "decay_no_lr" in f:
        p = p * (1 - decay)
    else:
        g = add_weight_decay(p, g, decay, f)
    d = g
    if mu:
        start = p if "buffer_of_parameter" in f else g * 0
        old = s.get("b", start)
        if "momentum_ignored" in f:
            old = g * 0
        if "aliased" in f and "b" in s:
            old = raw  # the buffer is the gradient's memory, which has been written to since
        share = {"dampened": 1 - mu, "lr_in_buffer": lr}
        share_now = next((v for flag, v in share.items() if flag in f), 1)
        b = mu * old + share_now * g
        if "aliased#2" in f and "b" in s:
            g = b = 2 * mu * raw  # buffer and gradient are one tensor, changed in place
        if "first_lost" in f and t == 1:
            b = g * 0
        s["b"] = b
        d = (lr * g if "lr_in_buffer" in f else g) + mu * b if h["nesterov"] else b
        if "first_skipped" in f and t == 1:
            d = g * 0
        if h["nesterov"]:
            mistaken = {
                "nesterov_ignored": lambda: b,
                "nesterov_alone": lambda: mu * b,
                "nesterov_again": lambda: g + mu * (mu * b + g),
                "nesterov_undecayed": lambda: raw + mu * b,
                "nesterov_twice": lambda: b + mu * b,
            }
            d = compute_mistaken(f, mistaken, lambda: d)
            if "nesterov_kept" in f:
                s["b"] = d
        if "lr_in_buffer" in f:
            lr = 1
    p = p - signed_step_size(lr, f) * d
    return p * (1 - h["lr"] * decay) if "decay_afterwards" in f else p


def adam(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after update ``t`` (from 1) of Adam by gradient ``g``, with
    hyperparameters ``h`` and the mistakes ``f``; ``s`` is the state, changed in place."""
    lr, eps, decay, kind = h["lr"], h["eps"], h["weight_decay"], type(h["lr"])
    b1, b2 = h["betas"][::-1] if "betas_swapped" in f else h["betas"]
    if "betas_fixed" in f:
        b1, b2 = kind(0.9), kind(0.999)
    if "eps_ignored" in f:
        eps = kind(1e-8)
    decoupled = h["decoupled"]
    if "always_coupled" in f:
        decoupled = False
    if "always_decoupled" in f:
        decoupled = True
    late, raw, before = decoupled and "decoupled_late" in f, g, p
    if decoupled and not late and "decay_ignored" not in f:
        p = p * (1 - (decay if "decoupled_no_lr" in f else lr * decay))
    if not decoupled or "decoupled_twice" in f:
        g = add_weight_decay(p, g, decay, f)
    elif "decoupled_twice#2" in f:
        g = add_weight_decay(before, g, decay, f)
    old_m, old_v = s.get("m", g * 0), s.get("v", g * 0)
    m = update_moment(old_m, g, b1, f, "first")
    power = {
        "second_undecayed": raw * raw,
        "v_not_squared": g,
        "v_of_absolute": abs(g),
        "v_of_first": m * m,
    }
    square = next((v for flag, v in power.items() if flag in f), g * g)
    if "moments_shared" in f:
        old_v = m
    v = update_moment(old_v, square, b2, f, "second")
    if "moments_shared" in f:
        m = v
    if "v_maximum" in f:
        v = np.maximum(v, old_v)
    at = {"step_from_zero": t - 1, "step_late": t + 1, "step_frozen": 1, "compiled_constant": 1}
    now = next((n for flag, n in at.items() if flag in f), t)
    c1, c2 = kind(1) - b1**now, kind(1) - b2**now
    if "power_as_product" in f:
        c1, c2 = kind(1) - b1 * kind(now), kind(1) - b2 * kind(now)
    if "power_missing" in f:
        c1 = kind(1) - b1
    if "power_missing#2" in f:
        c2 = kind(1) - b2
    if "correction_betas" in f:
        c2 = kind(1) - b1**now
    if "correction_betas#2" in f:
        c1 = kind(1) - b2**now
    if "correction_betas#3" in f:
        c1, c2 = c2, c1
    if not h["bias_correction"] and "always_corrected" not in f:
        c1 = kind(1)
        c2 = c2 if "always_corrected#2" in f else kind(1)
    if h["bias_correction"] and "never_corrected" in f:
        c1 = c2 = kind(1)
    if "first_uncorrected" in f:
        c1 = kind(1)
    if "second_uncorrected" in f:
        c2 = kind(1)
    if "correction_multiplied" in f:
        c1, c2 = kind(1) / c1, kind(1) / c2
    s["m"], s["v"] = m, v
    used_m, used_v = (old_m, old_v) if "old_moments" in f else (m, v)
    m_hat, v_hat = used_m / c1, used_v / c2
    if "corrected_kept" in f:
        s["m"], s["v"] = m_hat, v_hat
    mistaken = {
        "eps_inside": lambda: m_hat / np.sqrt(v_hat + eps),
        "eps_before_correction": lambda: np.sqrt(c2) / c1 * used_m / (np.sqrt(used_v) + eps),
        "correction_root_missing": lambda: c2 / c1 * used_m / (np.sqrt(used_v) + eps),
        "root_missing": lambda: m_hat / (v_hat + eps),
        "corrected_after_root": lambda: m_hat / (np.sqrt(used_v) / c2 + eps),
        "first_missing": lambda: g / (np.sqrt(v_hat) + eps),
    }
    d = compute_mistaken(f, mistaken, lambda: m_hat / (np.sqrt(v_hat) + eps))
    p = p - signed_step_size(lr, f) * d
    if late:
        p = p * (1 - lr * decay)
    return p


def update_moment(old: Any, new: Any, beta: Any, f: Flags, which: str) -> Any:
    """Return beta · ``old`` + (1 − beta) · ``new``, as the mistakes ``f`` change it; ``which``
    moment is ``first`` or ``second``."""
    forgotten = {"first": "moments_forgotten#2", "second": "moments_forgotten#3"}
    if "moments_forgotten" in f or forgotten[which] in f:
        old = old * 0
    mistaken = {
        f"{which}_weight_squared": lambda: beta * old + (1 - beta) ** 2 * new,
        f"{which}_no_complement": lambda: beta * old + new,
        f"{which}_complement_swapped": lambda: (1 - beta) * old + beta * new,
    }
    return compute_mistaken(f, mistaken, lambda: beta * old + (1 - beta) * new)


RULES: dict[str, Rule] = {"GD": gd, "SGD": sgd, "Adam": adam}


def trajectory(
    target: str,
    options: Mapping[str, Any],
    arrays: Arrays,
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> dict[str, Array]:
    """Compute ``3/w``, parameter w after update 3, for all parameters and updates; a parameter that
    an update leaves out keeps its value.

    Args:
        options: ``hyper``; ``steps``; ``groups``, parameter → its own hyperparameters; ``rates``,
            the learning rate of each update.
        arrays: ``p/w`` parameters, ``g/3/w`` gradients; a parameter may have none.
        number: dtype of the computation.
    """
    rule = RULES[target]
    now = {key[2:]: a.astype(number) for key, a in arrays.items() if key.startswith("p/")}
    # With state shared by mistake, parameters of one shape have the same state.
    owner = {n: str(a.shape) if "shared_state" in flags else n for n, a in now.items()}
    states: dict[str, State] = {key: {} for key in owner.values()}
    counts, calls, out = dict.fromkeys(states, 0), 0, dict[str, Array]()
    first = next(iter(now))
    groups = options.get("groups", {})
    for step in range(1, options["steps"] + 1):
        there = [name for name in now if f"g/{step}/{name}" in arrays]
        ended = False
        for name in now:
            g = arrays.get(f"g/{step}/{name}")
            if g is not None and "zero_as_missing" in flags and not np.any(g):
                g = None
            # A group's own parameters are the only ones in it.
            alone = name in groups
            ended = ended or (g is None and not alone and "missing_ends" in flags)
            last = alone or name == [*there, *(n for n in there if n not in groups)][-1]
            if (
                ("last_parameter" in flags and not last)
                or ("first_group_alone" in flags and alone)
                or (ended and not alone)
            ):
                out[f"{step}/{name}"] = now[name]
                continue
            if g is None and "missing_as_zero" in flags:
                g = now[name] * 0
            only_first = "first_parameter" in flags and name != first
            if g is None or "nothing" in flags or only_first:
                out[f"{step}/{name}"] = now[name]
                continue
            counts[owner[name]] += 1
            calls += 1
            own = groups.get(name, {})
            h = cast_hyperparameters(
                {**options["hyper"], **({} if "first_group" in flags else own)}, number
            )
            if "rates" in options and "initial_lr" not in flags:
                h["lr"] = number(options["rates"][step - 1])
            if "decay_exempt" in flags and ("beta" in name or "gamma" in name):
                h["weight_decay"] = number(0)
            t = calls if "step_per_parameter" in flags else counts[owner[name]]
            t = step if "step_global" in flags else t
            state = states[owner[name]]
            with np.errstate(all="ignore"):
                for _ in range(2 if "twice" in flags else 1):
                    now[name] = np.asarray(rule(now[name], g.astype(number), state, t, h, flags))
            out[f"{step}/{name}"] = now[name]
    return out


def cast_hyperparameters(h: Mapping[str, Any], number: type[np.floating[Any]]) -> dict[str, Any]:
    """Return a copy of the hyperparameters with numbers of this dtype; lists become tuples,
    booleans stay."""

    def cast_value(value: Any) -> Any:
        """Convert one value; leave booleans unchanged."""
        if isinstance(value, list | tuple):
            return tuple(number(v) for v in value)
        return value if isinstance(value, bool) else number(value)

    return {name: cast_value(value) for name, value in h.items()}
