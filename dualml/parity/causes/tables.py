"""Tables of functions and settings that are tried in place of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Transform = tuple[Any, ...]
EPSILONS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
SLOPES = (0.01, 0.1, 0.2, 0.25, 0.3)
FRACTIONS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 0.95, 0.99, 1.0)
FILLS = (0.0, -1.0, -100.0, -1e3, -1e4, -1e5, -1e9, float("-inf"))
WORDS: Mapping[str, tuple[str, ...]] = {
    "reduction": ("mean", "sum"),
    "approximate": ("none", "tanh"),
    "mode": (
        "nearest",
        "nearest-exact",
        "bilinear",
        "bicubic",
        "linear",
        "area",
        "constant",
        "reflect",
        "replicate",
        "circular",
    ),
    "padding_mode": ("zeros", "border", "reflection", "reflect", "replicate", "circular"),
    "padding": ("same", "valid"),
    "rounding_mode": ("floor", "trunc"),
}
#: Values to try for settings that are None.
UNSET: Mapping[str, tuple[Any, ...]] = {
    "align_corners": (True,),
    "attn_mask": (),
    "dim": (0, 1, -1),
    "correction": (0, 1),
    "padding_idx": (0, 1, 2),
    "divisor_override": (1,),
    "rounding_mode": ("floor", "trunc"),
    "max": (1.0, 6.0),
    "min": (0.0, -1.0),
}
#: Settings that do not change the result.
IDLE = frozenset({"inplace", "dtype", "layout", "device", "pin_memory", "memory_format", "sparse",
                  "out", "requires_grad", "return_indices", "generator", "size_average", "reduce",
                  "copy", "non_blocking", "enable_gqa", "cudnn_enable", "has_biases",
                  "train"})  # fmt: skip
#: Settings that tell a kernel how many parameters there are: it would read invalid memory.
COUNTS = dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), ("num_layers", "bidirectional"))
AXES = frozenset({"dim", "dim0", "dim1", "start_dim", "end_dim", "axis", "dims"})
ACTIVATIONS: tuple[Transform, ...] = (
    ("relu",),
    ("relu6",),
    ("gelu",),
    ("gelu_tanh",),
    ("silu",),
    ("sigmoid",),
    ("tanh",),
    ("softplus",),
    ("elu",),
    ("selu",),
    ("mish",),
    ("hardswish",),
    ("hardsigmoid",),
    ("leaky_relu", 0.01),
    ("leaky_relu", 0.1),
    ("leaky_relu", 0.2),
    ("quick_gelu",),
    ("softsign",),
    ("logsigmoid",),
    ("hardtanh",),
    ("abs",),
    ("identity",),
)
EXTRAS: tuple[Transform, ...] = (
    *ACTIVATIONS[:-1], ("softmax", -1), ("softmax", 1), ("softmax", 0), ("log_softmax", -1),
    ("log_softmax", 1), ("normalize", -1), ("normalize", 1), ("standardize", -1), ("exp",),
    ("log",), ("sqrt",), ("square",), ("reciprocal",), ("negative",), ("one_minus",), ("log1p",),
    ("center", -1), ("center", 1), ("center", 0), ("batch_norm",), ("batch_norm", "relu"),
    ("batch_norm", "silu"), ("batch_norm", "gelu"),
)  # fmt: skip
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("add", "sub", "mul", "div", "rsub", "rdiv", "maximum", "minimum"),
    ("mean", "sum", "amax", "amin", "logsumexp", "prod", "std", "var"),
    ("max", "min", "mean", "sum", "median", "logsumexp"),
    ("softmax", "log_softmax"),
    ("max_pool2d", "avg_pool2d"),
    ("max_pool1d", "avg_pool1d"),
    ("adaptive_avg_pool2d", "adaptive_max_pool2d"),
    ("adaptive_avg_pool1d", "adaptive_max_pool1d"),
    ("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss"),
    ("floor", "ceil", "round", "trunc"),
    ("sin", "cos"),
    ("tril", "triu"),
    ("min", "max"),
    ("argmax", "argmin"),
    ("all", "any"),
    ("gt", "ge", "lt", "le", "eq", "ne"),
)
#: Variants of functions, mainly of normalisations.
FORMS: Mapping[str, tuple[str, ...]] = {
    "batch_norm": ("unbiased", "eps_outside", "eps_outside_unbiased", "uncentred", "eps_floor"),
    "layer_norm": ("unbiased", "eps_outside", "eps_outside_unbiased", "uncentred", "eps_floor"),
    "group_norm": ("unbiased", "eps_outside", "eps_outside_unbiased", "uncentred", "eps_floor"),
    "instance_norm": ("unbiased", "eps_outside", "eps_outside_unbiased", "uncentred", "eps_floor"),
    "mean": ("unbiased",),
    "cross_entropy": ("over_all",),
    "nll_loss": ("over_all",),
    # Grouped-query attention: repeated key and value heads in the other order.
    "repeat_interleave": ("tiled",),
    "glu": ("halves", "silu", "gelu", "tanh", "relu"),
    "rms_norm": ("eps_outside", "centred"),
    "normalize": ("eps_outside", "eps_inside", "no_root"),
}
#: Functions that select rows by index.
INDEXED = frozenset({"embedding", "gather", "index_select", "take", "one_hot", "__getitem__"})
PADDED = frozenset(
    {
        "conv2d",
        "conv1d",
        "conv_transpose2d",
        "conv_transpose1d",
        "max_pool2d",
        "avg_pool2d",
        "max_pool1d",
        "avg_pool1d",
    }
)
UNARY = frozenset(one[0] for one in ACTIVATIONS) | {"leaky_relu", "prelu", "celu", "gelu"}
#: Elementwise functions that are no activations.
PLAIN: tuple[Transform, ...] = (
    ("exp",),
    ("log",),
    ("log1p",),
    ("expm1",),
    ("sqrt",),
    ("square",),
    ("abs",),
    ("sin",),
    ("cos",),
    ("reciprocal",),
    ("sigmoid",),
    ("tanh",),
    ("softplus",),
    ("relu",),
)
REDUCTIONS = frozenset(
    {"mean", "sum", "amax", "amin", "max", "min", "var", "std", "prod", "norm", "logsumexp"}
)
#: Name of an operator or alias → the function that it stands for.
OPERATOR_FUNCTIONS = {
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add",
    "add_": "add",
    "__sub__": "sub",
    "__rsub__": "rsub",
    "__isub__": "sub",
    "sub_": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "mul_": "mul",
    "__truediv__": "div",
    "true_divide": "div",
    "div_": "div",
    "__gt__": "gt",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "__ge__": "ge",
    "__lt__": "lt",
    "__le__": "le",
    "__eq__": "eq",
    "__ne__": "ne",
    "relu_": "relu",
    "multiply": "mul",
    "divide": "div",
    "subtract": "sub",
}
MASKS = frozenset(
    {"masked_fill", "masked_fill_", "where", "tril", "triu", "eq", "ne", "gt", "ge", "lt", "le"}
)
