"""The update rules as the arms used them: formulas in LaTeX, built from the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Hyper = Mapping[str, Any]


@dataclass(frozen=True)
class Principle:
    """Formulas of one rule with the options it ran with, and where they come from."""

    name: str
    formulas: tuple[str, ...]
    source: str


def principle(optimizer: Hyper) -> Principle | None:
    """The formulas of ``{"name": "adam", "lr": …}``; None for a rule this report does not know."""
    name = str(optimizer.get("name"))
    if name not in _RULES:
        return None
    make, source = _RULES[name]
    return Principle(name, tuple(make(optimizer)), source)


def _gd(h: Hyper) -> list[str]:
    return [
        r"g_t = \frac{1}{N} \sum_{i=1}^{N} \nabla \ell_i ( \theta_{t-1} )",
        r"\theta_t = \theta_{t-1} - \eta \, g_t",
    ]


def _batch(h: Hyper) -> list[str]:
    """The mini-batch gradient, with coupled weight decay where it is used."""
    decay = r" + \lambda \, \theta_{t-1}" if h.get("weight_decay") and not _decoupled(h) else ""
    return [r"g_t = \frac{1}{B} \sum_{i \in B_t} \nabla \ell_i ( \theta_{t-1} )" + decay]


def _sgd(h: Hyper) -> list[str]:
    lines = _batch(h)
    if not h.get("momentum"):
        return [*lines, r"\theta_t = \theta_{t-1} - \eta \, g_t"]
    share = r"(1 - \tau) \, " if h.get("dampening") else ""
    lines.append(r"b_t = \mu \, b_{t-1} + " + share + r"g_t \quad b_1 = g_1")
    step = r"( g_t + \mu \, b_t )" if h.get("nesterov") else "b_t"
    return [*lines, r"\theta_t = \theta_{t-1} - \eta \, " + step]


def _adam(h: Hyper) -> list[str]:
    lines = [
        *_batch(h),
        r"m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t",
        r"v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2",
    ]
    old = r"(1 - \eta \lambda ) \, \theta_{t-1}" if _decoupled(h) else r"\theta_{t-1}"
    if h.get("bias_correction") is False:
        return [*lines, rf"\theta_t = {old} - \eta \frac{{m_t}}{{\sqrt{{v_t}} + \varepsilon}}"]
    if h.get("eps_form") == "hat":
        scale = r"\frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}"
        return [
            *lines,
            rf"\theta_t = {old} - \eta {scale} \cdot \frac{{m_t}}{{\sqrt{{v_t}} + \varepsilon}}",
        ]
    return [
        *lines,
        r"\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \quad \hat{v}_t = \frac{v_t}{1 - \beta_2^t}",
        rf"\theta_t = {old} - \eta \frac{{\hat{{m}}_t}}{{\sqrt{{\hat{{v}}_t}} + \varepsilon}}",
    ]


def _decoupled(h: Hyper) -> bool:
    return h.get("name") == "adamw" and bool(h.get("weight_decay", 0.01))


def _adagrad(h: Hyper) -> list[str]:
    rate = r"\frac{\eta}{1 + (t-1) \, \gamma}" if h.get("lr_decay") else r"\eta"
    return [
        *_batch(h),
        r"G_t = G_{t-1} + g_t^2",
        rf"\theta_t = \theta_{{t-1}} - {rate} \cdot \frac{{g_t}}{{\sqrt{{G_t}} + \varepsilon}}",
    ]


def _rmsprop(h: Hyper) -> list[str]:
    lines = [*_batch(h), r"v_t = \alpha v_{t-1} + (1 - \alpha) \, g_t^2"]
    root = "v_t"
    if h.get("centered"):
        lines.append(r"\bar{g}_t = \alpha \bar{g}_{t-1} + (1 - \alpha) \, g_t")
        root = r"v_t - \bar{g}_t^2"
    d = rf"\frac{{g_t}}{{\sqrt{{{root}}} + \varepsilon}}"
    if h.get("momentum"):
        return [*lines, rf"b_t = \mu \, b_{{t-1}} + {d}", r"\theta_t = \theta_{t-1} - \eta \, b_t"]
    return [*lines, rf"\theta_t = \theta_{{t-1}} - \eta {d}"]


_RULES: dict[str, tuple[Callable[[Hyper], list[str]], str]] = {
    "gd": (_gd, "Cauchy 1847; Nocedal & Wright, Numerical Optimization, ch. 3"),
    "sgd": (_sgd, "Robbins & Monro 1951; Polyak 1964; Sutskever et al. 2013, eqs. 1–4"),
    "adam": (_adam, "Kingma & Ba 2015, Adam: A Method for Stochastic Optimization, Algorithm 1"),
    "adamw": (_adam, "Loshchilov & Hutter 2019, Decoupled Weight Decay Regularization, Alg. 2"),
    "adagrad": (_adagrad, "Duchi, Hazan & Singer 2011, Adaptive Subgradient Methods, Figure 1"),
    "rmsprop": (_rmsprop, "Tieleman & Hinton 2012, Lecture 6.5; Graves 2013, eqs. 38–41"),
}
