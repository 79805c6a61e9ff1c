"""Sentences about mutations: what the second side does that the first does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from dualml.parity.models.messages import Language, find_message, format_message
from dualml.parity.models.number_text import format_number, format_value
from dualml.parity.models.phrases import (
    GATES,
    ROUNDINGS,
    UNKNOWN_PLACE,
    CausePlace,
    Row,
    describe_call,
    describe_function,
    describe_order,
    describe_tensor,
    function_name,
)
from dualml.parity.models.setting_sentences import (
    describe_optimizer_change,
    describe_scaling,
    describe_setting,
)

#: Names of values in a trace, see `dualml.parity.models.operations.Operation`.
NAME = re.compile(r"(?:op|input):\d+(?:\[\d+\])?|parameter:[\w.]+")
#: Operators of two operands, of which one remains where the operator is left out.
BINARY = ("add", "sub", "mul", "div", "matmul", "__and__", "__or__", "__xor__")
#: Position of the bias among the inputs of a layer.
BIAS = 2


def describe_mutation(lang: Language, one: Row, place: CausePlace = UNKNOWN_PLACE) -> str:
    """Return a phrase for what the second side does instead.

    Args:
        one: a `Mutation`, as a dict with ``names`` (value → code); values are named by the code
            that computed them.
        place: where the difference was found, and the names of the two sides.
    """
    names = one.get("names", {})
    other = format_message(lang, "value.computed")
    return NAME.sub(lambda found: names.get(found[0], other), mutation_text(lang, one, place))


def mutation_text(lang: Language, one: Row, place: CausePlace = UNKNOWN_PLACE) -> str:
    """Return the phrase for one `Mutation`, given as a dict, with values under their names in the
    trace, such as ``op:12``."""
    value, action, argument = one["value"], str(one["action"]), one["argument"]
    say = partial(find_message, lang, **place.side_names(lang))
    call, tensor = describe_call(one, place), describe_tensor(lang, one, argument, place)
    key, old = f"cause.{action}", format_value(one["old"])
    if action.startswith("line:"):
        return line_text(lang, one, place)
    if action == "optimizer":
        return describe_optimizer_change(lang, one, place)
    if action == "set":
        return describe_setting(lang, one, place)
    if action == "settings":
        names = str(argument).split(" and ")
        value = pair_settings(names, [pair[1] for pair in value])
        old = pair_settings(names, one["old"])
    elif action in ("input", "output"):
        return transform_text(lang, one, place)
    elif action == "form":
        return form_text(lang, one, place)
    elif action == "inputs" and value and value[0] == "chunks" and one["operation"] in GATES:
        gates = GATES[one["operation"]]
        key, old = "cause.gates", ", ".join(gates)
        value = ", ".join(gates[i] for i in value[2:])
    elif action == "pad":
        key = f"pad.{value}"
        old = format_padding(one["old"])
    elif action in ("function", "instead"):
        value = describe_function(value)
    elif action == "detach" and argument == "":
        key = "cause.detach_output"
    elif action == "exchange" and isinstance(value, list | tuple) and len(value) == 2:
        pair = (describe_tensor(lang, one, at, place) for at in value)
        tensor = say("tensor.pair", **dict(zip("xy", pair, strict=True)))
    elif action == "drop" and function_name(str(one["operation"])) in BINARY:
        key = "cause.drop_binary"
    elif action in ("operand", "rename") and one["kind"] == "missing":
        key, value = "cause.skipped", describe_operand(lang, value)
    elif action == "operand":
        value = describe_operand(lang, value)
    elif action == "masked_rows" and argument == "added":
        key = "cause.masked_rows_added"
    elif action == "by_value":
        key = f"cause.by_value_{function_name(str(one['operation']))}"
    elif action == "addend" and one["old"] is not None:
        key = "cause.addend_rows"
    elif action == "resample":
        key = f"cause.resample_{value}"
    elif action == "norm_axis":
        value, argument = value[0], value[1]
    elif action == "index":
        value, old, argument = format_slice(value), format_slice(one["old"]), int(argument) + 1
    elif action == "numbers" and argument != "" and one["kind"] != "dtype":
        key = "table" if str(one["old"]).startswith("parameter:") else "unnamed_table"
        key = f"cause.{key}"
    elif action == "numbers" and one["kind"] == "dtype":
        key, value = "cause.lower", argument
    elif action == "spans":
        return span_text(lang, one, place)
    return say(
        key,
        f"cause.{action}",
        call=call,
        operation=one["operation"],
        argument=argument,
        tensor=tensor,
        tensors=tensor,
        value=format_value(value),
        old=old,
    )


def line_text(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a mutation of a line of an optimizer (action ``line:…``)."""
    action, value = str(one["action"]).removeprefix("line:"), one["value"]
    inner = mutation_text(lang, {**one, "action": action}, place)
    if action in ("operand", "swap"):
        inner = format_message(
            lang,
            f"cause.line_{action}",
            operation=one["operation"],
            argument=one["argument"],
            value=str(value).partition(":")[2] or str(value),
            call=describe_call(one, place),
            **place.side_names(lang),
        )
    return format_message(lang, "cause.line", line=one["line"].partition(":")[2], cause=inner)


def transform_text(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a mutation that transforms an input or the output of a call (action
    ``input`` or ``output``)."""
    value, action = one["value"], one["action"]
    name = value[0]
    say = partial(
        find_message,
        lang,
        **place.side_names(lang),
        call=describe_call(one, place),
        tensor=describe_tensor(lang, one, one["argument"], place),
    )
    if name == "scale":
        return describe_scaling(lang, one, place)
    if name in ("fill", "shift"):
        return say(f"cause.{name}_{action}", value=format_number(value[1]))
    if name == "neutral":
        return say("cause.unbiased" if is_bias_removed(one) else "cause.neutral")
    if name == "invert":
        return say("cause.inverted")
    if one["kind"] == "layout":
        transposed = one["operation"] == "linear" and action == "input" and one["argument"] == 1
        if transposed and list(value) == ["rearrange", 1, 0]:
            return say("cause.transposed_linear")
        return say(f"cause.layout_{action}", value=describe_order(lang, value))
    if one["kind"] == "dtype":
        return say(f"cause.dtype_{action}", value=ROUNDINGS.get(name, name))
    return say(f"cause.{action}", value=describe_function(value))


def form_text(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a mutation to another formula of a function (action ``form``)."""
    form, value = str(one["argument"]), one["value"]
    keys = [f"form.{form}_{one['operation']}", f"form.{form}", f"cause.{form}", "cause.form"]
    if one["operation"] == "glu" and form != "halves":
        keys.insert(0, "form.gate")
    numbers = isinstance(value, float) and form.startswith("eps")
    eps = format_message(lang, "form.with_eps", value=format_value(value)) if numbers else ""
    return find_message(
        lang,
        *keys,
        call=describe_call(one, place),
        argument=form,
        value=format_value(value),
        eps=eps,
        **place.side_names(lang),
    )


def span_text(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a mutation that moves several calls (action ``spans``)."""
    call, old = (describe_span(str(one[key] or "")) for key in ("operation", "old"))
    say = partial(find_message, lang, **place.side_names(lang))
    if one["kind"] == "operand":
        return say("cause.later", call=call, value=one["old"])
    if one["kind"] == "function":
        return say("cause.instead", call=old, value=describe_function(one["operation"]))
    key = "applied" if one["argument"] != "" else "again" if not one["value"][0][1] else "exchanged"
    tensor = describe_tensor(lang, one, one["argument"], place)
    return say(f"cause.{key}", call=call, old=old, tensor=tensor)


def describe_span(label: str) -> str:
    """Describe a span (several calls in sequence) by its label: its modules, or its first and last
    function."""
    joint = " … " if " … " in label else ", "
    return joint.join(describe_function(name) for name in label.split(joint) if name)


def describe_operand(lang: Language, value: Any) -> str:
    """Describe another operand of a call: a value's name, or a slice of a value given as (name,
    axis, index)."""
    if not (isinstance(value, list | tuple) and len(value) == 3):
        return format_value(value)
    name, axis, index = value
    key = {0: "value.first", -1: "value.last"}.get(index, "value.slice")
    return format_message(lang, key, value=name, axis=axis, index=index)


def pair_settings(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return settings as text with their values in order: ```dilation` 2, `padding` 4``."""
    return ", ".join(f"`{n}` {format_value(v)}" for n, v in zip(names, values, strict=False))


def format_padding(value: Any) -> str:
    """Format a padding; if the numbers of all axes are equal, as that number."""
    same = isinstance(value, list | tuple) and len(set(value)) == 1
    return format_value(value[0] if same else value)


def format_slice(value: Any) -> str:
    """Format an index, or the start, stop and step of a slice, as code in backticks: ``[1, None]``
    is ```[1:]```."""
    if not isinstance(value, list | tuple):
        return f"`[{value}]`".replace("None", "")
    start, stop, step = ("" if n is None else str(n) for n in (*value, None, None, None)[:3])
    return f"`[{start}:{stop}{':' + step if step else ''}]`"


def is_bias_removed(one: Row) -> bool:
    """Return whether a `Mutation`, given as a dict, removes the bias of a convolution or linear
    layer."""
    layer = one["operation"].startswith(("conv", "linear"))
    return layer and one["argument"] == BIAS and list(one["value"] or ()) == ["neutral"]
