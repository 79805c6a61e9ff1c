"""Of explanations that are equally good, the simplest first."""

from __future__ import annotations

from typing import Any

from dualml.parity.causes.runs import Run

#: Functions that a framework may write out in others.
WRITTEN = {
    "gelu_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "erf"),
    "silu": ("silu", "sigmoid", "swish"),
    "quick_gelu": ("sigmoid",),
    "leaky_relu": ("leakyrelu", "relu", "select"),
    "mean": ("mean", "reducemean"),
    "sum": ("sum", "reducesum"),
    "square": ("square", "pow", "mul"),
    "normalize": ("div", "norm"),
    "standardize": ("layernorm", "sqrt", "rsqrt"),
    "center": ("sub",),
    "negative": ("neg",),
    "one_minus": ("sub", "subs"),
    "div": ("div", "realdiv", "divs"),
    "max_pool2d": ("maxpool",),
    "avg_pool2d": ("avgpool",),
    "amax": ("max", "reducemax", "amax"),
    "amin": ("min", "reducemin"),
}


def preference(names: set[str], run: Run) -> tuple[Any, ...]:
    """Simple explanations first, those that cover more of what is alike before single ones; last a
    function that the other side never calls."""
    kinds = (
        "attribute",
        "missing",
        "function",
        "optimizer",
        "mask",
        "gradient",
        "extra",
        "operand",
        "order",
        "layout",
        "constant",
        "parameters",
        "dtype",
    )
    change = run.changes[-1]
    word = change.value if change.action == "function" else None
    if change.kind in ("function", "extra") and isinstance(change.value, tuple):
        word = change.value[0]
    foreign = isinstance(word, str) and not called(word, names)
    return foreign, kinds.index(change.kind), -len(change.sites), run.comparison.worst


def called(word: str, names: set[str]) -> bool:
    """Whether the other side calls this function, or what it is written in."""
    options = (word.replace("_", ""), *WRITTEN.get(word, ()))
    return any(option in name for option in options for name in names)
