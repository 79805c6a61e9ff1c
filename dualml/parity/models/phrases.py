"""Phrases for calls, tensors, functions, orders of elements and numbers in sentences about
causes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.messages import Language, find_message, format_message
from dualml.parity.models.number_text import (
    format_order,
    format_value,
    has_swapped_halves,
    is_zipped,
)

Row = Mapping[str, Any]
#: Function → its operator, which people write instead.
SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "matmul": "@",
    "pow": "**",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "__invert__": "~",
    "__getitem__": "x[…]",
    "__setitem__": "x[…] = …",
    "float": ".float()",
    "half": ".half()",
    "type_as": ".type_as(…)",
    "to": ".to(…)",
}
#: Transform → the expression that people write; its numbers are filled in.
EXPRESSIONS = {
    "one_minus": "1 - x",
    "negative": "-x",
    "reciprocal": "1 / x",
    "square": "x ** 2",
    "identity": "x",
    "gelu_tanh": 'gelu(approximate="tanh")',
    "quick_gelu": "x * sigmoid(1.702 * x)",
    "softmax": "softmax(dim={})",
    "log_softmax": "log_softmax(dim={})",
    "normalize": "normalize(dim={})",
    "standardize": "layer_norm",
    "center": "x - x.mean({})",
}
#: Rounding transform → the type, or the function, that rounds.
ROUNDINGS = {"half": "float16", "bfloat": "bfloat16", "round": "`round`", "trunc": "`trunc`"}
NORM = ("input", "weight", "bias")
#: Function → what its tensors are, in order.
ROLES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm"), NORM),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "rms_norm"), NORM),
    "batch_norm": ("input", "mean", "variance", "weight", "bias"),
    "embedding": ("indices", "weight"),
    "div": ("dividend", "divisor"),
    "scaled_dot_product_attention": ("query", "key", "values", "mask"),
    "cross_entropy": ("prediction", "target", "class_weight"),
    "nll_loss": ("prediction", "target", "class_weight"),
    "mse_loss": ("prediction", "target"),
    "where": ("condition", "where_true", "where_false"),
    "masked_fill": ("input", "mask"),
    "masked_fill_": ("input", "mask"),
    "gather": ("table", "indices"),
    "index_select": ("table", "indices"),
    **dict.fromkeys(("add", "sub", "mul", "matmul", "bmm", "pow", "maximum"), ("left", "right")),
}
#: Names of the gates of a recurrent layer in PyTorch's order.
GATES = {"lstm": "ifgo", "gru": "rzn"}


@dataclass(frozen=True)
class CausePlace:
    """The names of the two sides, and where a cause was found: their first operations that differ.

    Attributes:
        sides: names of the two sides; None: "the original" and "the port".
        call, other: the operation of the first and the second side as a dict, see
            `dualml.parity.models.operations.Operation`.
    """

    sides: tuple[str, str] | None = None
    call: Row | None = None
    other: Row | None = None

    def side_names(self, lang: Language) -> dict[str, str]:
        """Return ``a`` and ``b``, the names of the sides in a language, as values for messages."""
        if self.sides is None:
            return {key: format_message(lang, f"side.{name}") for key, name in SIDE_KEYS.items()}
        return dict(zip("ab", self.sides, strict=True))

    def call_of(self, one: Row) -> Row | None:
        """Return the first side's operation if a mutation, given as a dict, changes it; else
        None."""
        return self.call if self.call and self.call["number"] in (one["sites"] or ()) else None


SIDE_KEYS = {"a": "first", "b": "second"}
UNKNOWN_PLACE = CausePlace()


def function_name(name: str) -> str:
    """Return the function that an operator such as ``__add__`` stands for; any other name
    unchanged."""
    return OPERATOR_FUNCTIONS.get(name, name)


def describe_function(value: Any) -> str:
    """Describe a function by its name, or a transform ``(name, number, …)``, as code in backticks:
    the operator or expression that people write, if there is one."""
    name, *numbers = [value] if isinstance(value, str) else list(value)
    name = function_name(str(name))
    if name in SYMBOLS:
        return f"`{SYMBOLS[name]}`"
    if name in EXPRESSIONS and len(numbers) >= EXPRESSIONS[name].count("{"):
        return f"`{EXPRESSIONS[name].format(*numbers)}`"
    return f"`{format_value([name, *numbers])}`"


def describe_call(one: Row, place: CausePlace) -> str:
    """Describe the calls that a mutation, given as a dict, changes: ```norm1` (layer_norm)`` if a
    module of that name makes the call, else by the function or its operator."""
    name = str(one["operation"])
    call = place.call_of(one)
    module = "" if call is None else calling_module(call)
    return f"`{module}` ({name})" if module else describe_function(name)


def calling_module(call: Row) -> str:
    """Return the name of the module that consists of an operation, given as a dict: the call has
    the module's parameters, or the user's line calls the module. Empty for a function that a line
    calls itself."""
    module = str(call.get("module") or "")
    if not module:
        return ""
    if any(str(name).startswith(f"parameter:{module}.") for name in call["inputs"]):
        return module
    code = str((call.get("place") or {}).get("code", ""))
    called = re.match(r"self\.([\w.]+)\(", code)
    return module if called and module.split(".")[-1] == called[1].split(".")[-1] else ""


def describe_tensor(lang: Language, one: Row, position: Any, place: CausePlace) -> str:
    """Describe an input of the calls that a mutation, given as a dict, changes: a parameter by its
    name, others by their role in the function ("the mask"), or else by their number.

    Args:
        position: position of the input, from 0.
    """
    call = place.call_of(one)
    at = int(position) if str(position).isdigit() else 0
    if call is not None and at < len(call["inputs"]):
        kind, _, name = str(call["inputs"][at]).partition(":")
        if kind == "parameter":
            return format_message(lang, "tensor.named", name=name)
    roles = ROLES.get(function_name(str(one["operation"])), ())
    if at < len(roles):
        return format_message(lang, f"tensor.{roles[at]}")
    if at == 0 and call is not None and len(call["inputs"]) == 1:
        return format_message(lang, "tensor.input")
    return format_message(lang, "tensor.numbered", n=at + 1)


def describe_order(lang: Language, transform: Sequence[Any]) -> str:
    """Describe a transform ``(name, number, …)`` that only moves elements, by a phrase such as
    "transposed"."""
    name, *numbers = transform
    axis, *rest = numbers or [0]
    key = str(name)
    if key == "rearrange" and numbers == [1, 0]:
        key = "transposed"
    elif (key == "take" and is_zipped(rest)) or (key == "arrange" and is_zipped(numbers)):
        key, rest = "zipped", rest if key == "take" else numbers
    elif (key == "chunks" and rest == [1, 0]) or (key == "take" and has_swapped_halves(rest)):
        key = "halves"
    values = {
        "axis": axis,
        "count": format_value(rest[0]) if rest else "",
        "n": len(rest),
        "rest": format_order(rest),
        "order": format_order(numbers),
    }
    return find_message(lang, f"arranged.{key}", "arranged.other", **values)
