"""Adam with typical mistakes as options; see `dualml.course.lab1.rules` for the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.course.exercise import Flags
from dualml.course.lab1.rules import State, add_weight_decay, take_step, transform_gradient
from dualml.course.mistakes import compute_mistaken


def adam(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after update ``t`` (from 1) of Adam by gradient ``g``, with
    hyperparameters ``h`` and the typical mistakes named in ``f``; ``s`` is the state, changed in
    place."""
    lr, kind = h["lr"], type(h["lr"])
    raw = g = transform_gradient(g, s, f)
    before = p
    p, g, late = decay_parameter(p, g, h, f)
    old_m, old_v = first_moments(s, before, g, raw, f)
    b1, b2 = pick_betas(h, f)
    if {"moments_aliased", "moments_aliased#2"} & f:
        old_m = raw  # m is the gradient's memory, into which every gradient is written
    new = raw if "first_undecayed" in f else g
    in_place = "moments_aliased#2" in f or ("moments_aliased" in f and h["decoupled"])
    if in_place:  # and what is added to it is read from there, after it has changed
        new = b1 * raw
    m = update_moment(old_m, new, b1, f, "first")
    if in_place:
        g = m
    power = {
        "second_undecayed": lambda: raw * raw,
        "v_not_squared": lambda: g,
        "v_of_absolute": lambda: abs(g),
        "v_of_first": lambda: m * m,
    }
    square = compute_mistaken(f, power, lambda: g * g)
    if "moments_shared" in f:
        old_v = m
    v = update_moment(old_v, square, b2, f, "second")
    if "moments_shared" in f:
        m = v
    if "v_maximum" in f:
        v = np.maximum(v, old_v)
    if "moments_of_gradient#9" in f and "m" not in s:
        m, v = raw, raw * raw
    c1, c2 = correct(b1, b2, t, kind, h, f)
    s["m"], s["v"] = (v, v) if "moments_shared#2" in f else (m, v)
    used_m, used_v = (old_m, old_v) if "old_moments" in f else (m, v)
    if "v_maximum#2" in f:
        used_v = s["v_max"] = np.maximum(s.get("v_max", v), v)
    if "corrected_kept" in f:
        s["m"], s["v"] = used_m / c1, used_v / c2
    if "corrected_kept#2" in f:
        s["m"] = used_m / c1
    if "corrected_kept#3" in f:
        s["v"] = used_v / c2
    d = direction(g, used_m, used_v, c1, c2, kind(1e-8) if "eps_ignored" in f else h["eps"], f)
    if "settings_changed" in f:  # the rate of the group is overwritten by the corrected one
        s["scale"] = s.get("scale", 1) * np.sqrt(c2) / c1
        d = s["scale"] * used_m / (np.sqrt(used_v) + h["eps"])
    p = take_step(p, d, lr, f)
    return p * (1 - lr * h["weight_decay"]) if late else p


def decay_parameter(p: Any, g: Any, h: Mapping[str, Any], f: Flags) -> tuple[Any, Any, bool]:
    """Return the parameter after decoupled decay, the gradient after coupled decay, by the typical
    mistakes named in ``f``, and whether the parameter decays after the step."""
    lr, decay, decoupled, before = h["lr"], h["weight_decay"], h["decoupled"], p
    if "always_coupled" in f:
        decoupled = False
    if "always_decoupled" in f:
        decoupled = True
    late = bool(decoupled and "decoupled_late" in f)
    if decoupled and not late and not {"decay_ignored", "decay_ignored#2"} & f:
        factors = {
            "decoupled_no_lr": lambda: 1 - decay,
            "decoupled_factor": lambda: 1 + lr * decay,
            "decoupled_initial_lr": lambda: 1 - h.get("first_lr", lr) * decay,
            "decoupled_factor#2": lambda: 1 - lr * lr * decay,
            "decoupled_factor#3": lambda: lr * decay,
        }
        p = p * compute_mistaken(f, factors, lambda: 1 - lr * decay)
    if not decoupled or "decoupled_twice" in f:
        g = add_weight_decay(p, g, decay, lr, f)
    elif "decoupled_twice#2" in f:
        g = add_weight_decay(before, g, decay, lr, f)
    return p, g, late


def first_moments(s: State, p: Any, g: Any, raw: Any, f: Flags) -> tuple[Any, Any]:
    """Return the moments before an update: those in the state ``s``, else zeros, as the typical
    mistakes named in ``f`` begin them.

    Args:
        p: parameter before the update.
        g, raw: gradient with and without weight decay.
    """
    if "m" in s and "v" in s:
        return s["m"], s["v"]
    zero, one = g * 0, g * 0 + 1
    first = {
        "moments_of_gradient#6": raw,
        "moments_of_gradient#7": raw,
        "moments_of_gradient": g,
        "moments_of_gradient#2": g,
        "moments_of_gradient#4": g,
        "moments_of_parameter": p,
        "moments_of_parameter#2": p,
        "moments_of_parameter#4": one,
        "moments_of_parameter#5": one,
    }
    second = {
        "moments_of_gradient#6": raw * raw,
        "moments_of_gradient#8": raw * raw,
        "moments_of_gradient": g * g,
        "moments_of_gradient#3": g * g,
        "moments_of_gradient#4": g,
        "moments_of_gradient#5": g,
        "moments_of_parameter": p,
        "moments_of_parameter#3": p,
        "moments_of_parameter#4": one,
        "moments_of_parameter#6": one,
    }
    begun = [next((a for flag, a in made.items() if flag in f), zero) for made in (first, second)]
    return s.get("m", begun[0]), s.get("v", begun[1])


def pick_betas(h: Mapping[str, Any], f: Flags) -> tuple[Any, Any]:
    """Return β₁ and β₂ of the moments, as the typical mistakes named in ``f`` change them."""
    b1, b2 = h["betas"]
    kind = type(h["lr"])
    mistaken = {
        "betas_swapped": lambda: (b2, b1),
        "betas_fixed": lambda: (kind(0.9), kind(0.999)),
        "betas_alike": lambda: (b1, b1),
        "betas_alike#2": lambda: (b2, b2),
        "betas_alike#3": lambda: (b1, b1),
        "betas_alike#4": lambda: (b2, b2),
    }
    picked: tuple[Any, Any] = compute_mistaken(f, mistaken, lambda: (b1, b2))
    return picked


def update_moment(old: Any, new: Any, beta: Any, f: Flags, which: str) -> Any:
    """Return beta · ``old`` + (1 − beta) · ``new``, as the typical mistakes named in ``f`` change
    it; ``which`` moment is ``first`` or ``second``."""
    forgotten = {"first": "moments_forgotten#2", "second": "moments_forgotten#3"}
    if "moments_forgotten" in f or forgotten[which] in f:
        old = old * 0
    added = {"first": "moments_added#2", "second": "moments_added#3"}
    more = {"first": "moments_added#4", "second": "moments_added#5"}
    mistaken = {
        "moments_added": lambda: old + (1 - beta) * new,
        added[which]: lambda: old + (1 - beta) * new,
        f"{which}_weight_squared": lambda: beta * old + (1 - beta) ** 2 * new,
        f"{which}_no_complement": lambda: beta * old + new,
        f"{which}_complement_swapped": lambda: (1 - beta) * old + beta * new,
        more[which]: lambda: old + new,
    }
    return compute_mistaken(f, mistaken, lambda: beta * old + (1 - beta) * new)


def correct(b1: Any, b2: Any, t: int, kind: Any, h: Mapping[str, Any], f: Flags) -> tuple[Any, Any]:
    """Return the divisors of the two moments by the typical mistakes named in ``f``: 1 − βᵗ, or 1
    without bias correction.

    Args:
        b1, b2: β₁ and β₂ of the moments.
        t: number of the update.
        kind: dtype of the computation.
    """
    if {"betas_alike", "betas_alike#2"} & f:  # the moments alone have the wrong β
        b1, b2 = h["betas"]
    at = {
        "step_from_zero": t - 1,
        "step_late": t + 1,
        "step_frozen": 1,
        "compiled_constant": 1,
        "step_doubled": 2 * t,
        "step_doubled#2": 2 * t - 1,
    }
    now = next((n for flag, n in at.items() if flag in f), t)
    power: dict[str, Callable[[Any], Any]] = {
        "power_as_product": lambda beta: 1 - beta * kind(now),
        "correction_formula": lambda beta: beta**now,
        "correction_formula#2": lambda beta: (1 - beta) ** now,
        "correction_formula#4": lambda beta: 1 + beta**now,
        "correction_formula#3": lambda beta: 1 - beta ** kind(1 / max(now, 1)),
    }
    divisor = next((power[n] for n in power if n in f), lambda beta: kind(1) - beta**now)
    c1, c2 = divisor(b1), divisor(b2)
    single: dict[str, Callable[[], tuple[Any, Any]]] = {
        "power_missing": lambda: (kind(1) - b1, c2),
        "power_missing#2": lambda: (c1, kind(1) - b2),
        "correction_formula#5": lambda: (b1**now, c2),
        "correction_formula#6": lambda: (c1, b2**now),
        "correction_formula#7": lambda: ((1 - b1) ** now, c2),
        "correction_formula#8": lambda: (c1, (1 - b2) ** now),
        "step_late#2": lambda: (c1, kind(1) - b2 ** (t + 1)),
        "step_late#3": lambda: (kind(1) - b1 ** (t + 1), c2),
        "correction_betas": lambda: (c1, kind(1) - b1**now),
        "correction_betas#2": lambda: (kind(1) - b2**now, c2),
        "correction_betas#3": lambda: (c2, c1),
    }
    c1, c2 = compute_mistaken(f, single, lambda: (c1, c2))
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
    return c1, c2


def direction(g: Any, m: Any, v: Any, c1: Any, c2: Any, eps: Any, f: Flags) -> Any:
    """Return m̂/(√v̂ + ε), by the typical mistakes named in ``f``.

    Args:
        g: gradient.
        m, v: moments.
        c1, c2: divisors of the bias correction.
        eps: ε.
    """
    m_hat, v_hat = m / c1, v / c2
    mistaken: dict[str, Callable[[], Any]] = {
        "eps_inside": lambda: m_hat / np.sqrt(v_hat + eps),
        "eps_misplaced": lambda: m_hat / np.sqrt(v_hat) + eps,
        "eps_misplaced#2": lambda: m_hat / (np.sqrt(v_hat + eps) + eps),
        "eps_misplaced#3": lambda: m_hat / (np.sqrt(v_hat) - eps),
        "eps_misplaced#4": lambda: m_hat / np.sqrt(v_hat + eps * eps),
        "eps_misplaced#5": lambda: (m_hat + eps) / np.sqrt(v_hat),
        "eps_misplaced#6": lambda: m_hat / (np.sqrt(v_hat) * eps),
        "eps_before_correction": lambda: np.sqrt(c2) / c1 * m / (np.sqrt(v) + eps),
        "correction_root_missing": lambda: c2 / c1 * m / (np.sqrt(v) + eps),
        "correction_multiplied#2": lambda: c1 / np.sqrt(c2) * m / (np.sqrt(v) + eps),
        "root_missing": lambda: m_hat / (v_hat + eps),
        "denominator_form": lambda: m_hat / (np.sqrt(np.sqrt(v_hat)) + eps),
        "denominator_form#2": lambda: np.sqrt(m_hat / (v_hat + eps)),
        "corrected_after_root": lambda: m_hat / (np.sqrt(v) / c2 + eps),
        "first_missing": lambda: g / (np.sqrt(v_hat) + eps),
        "denominator_form#3": lambda: m_hat,
        "denominator_form#4": lambda: m_hat * (np.sqrt(v_hat) + eps),
        "moments_swapped": lambda: v_hat / (np.sqrt(m_hat) + eps),
        "moments_swapped#2": lambda: m_hat / (np.sqrt(m_hat) + eps),
        "moments_swapped#3": lambda: m_hat / (abs(m_hat) + eps),
    }
    return compute_mistaken(f, mistaken, lambda: m_hat / (np.sqrt(v_hat) + eps))
