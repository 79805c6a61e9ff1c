"""Sentences about settings of calls, factors, and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from dualml.parity.models.messages import Language, find_message, format_message
from dualml.parity.models.number_text import CLOSE, format_number, format_value
from dualml.parity.models.phrases import (
    CausePlace,
    Row,
    describe_call,
    describe_tensor,
    function_name,
)

#: Maximum number of parameters that are named.
MAX_NAMED_PARAMETERS = 4
#: Function of a tensor and a number → the key of its sentence.
ARITHMETIC = {
    "add": "added",
    "sub": "subtracted",
    "mul": "multiplied",
    "div": "divided",
    "pow": "raised_to",
}
#: Names of the number that such a function takes.
NUMBERS = ("other", "argument 1", "alpha", "exponent")
ATTENTION = "scaled_dot_product_attention"


def describe_setting(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a `Mutation`, given as a dict, that sets one argument of a call to
    another value.

    Args:
        place: where the difference was found, and the names of the two sides.
    """
    argument, value, old = str(one["argument"]), one["value"], one["old"]
    function = function_name(str(one["operation"]))
    say = partial(find_message, lang, call=describe_call(one, place), **place.side_names(lang))
    if argument in NUMBERS and function in ARITHMETIC and is_number(value) and is_number(old):
        values = {"value": format_number(value), "old": format_number(old)}
        neutral = value == (0 if function in ("add", "sub") else 1)
        word = ARITHMETIC[function]
        return say(f"cause.not_{word}" if neutral else f"cause.{word}", **values)
    if argument == "value" and function.startswith("masked_fill"):
        return say("cause.set_fill", value=format_value(value), old=format_value(old))
    if argument == "is_causal" and isinstance(value, bool):
        return say("cause.set_causal" if value else "cause.set_uncausal")
    if argument in ("training", "use_input_stats") and "norm" in function:
        return say("cause.set_batch" if value else "cause.set_running")
    if argument == "momentum" and "norm" in function and is_mixed(place):
        return say("cause.set_momentum", value=format_value(value), old=format_value(old))
    if function == ATTENTION and argument == "scale" and is_number(value):
        width = head_width(place.call_of(one))
        if is_number(old) or width:
            was = f"1/√{width}" if old is None else format_number(old)
            return say("cause.set_scores", value=format_root(value), old=was)
    return say(
        "cause.set",
        argument=name_argument(lang, argument),
        value=format_setting(lang, value),
        old=format_setting(lang, old),
    )


def describe_scaling(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a `Mutation`, given as a dict, that multiplies an input or the output
    of a call by a number; where the call itself divides or multiplies by a number, with that number
    and the one used instead."""
    factor, action = one["value"][1], one["action"]
    call, function = place.call_of(one), function_name(str(one["operation"]))
    say = partial(find_message, lang, call=describe_call(one, place), **place.side_names(lang))
    number = None if call is None else call_number_argument(call)
    if action == "output" and number and function in ("div", "mul") and factor:
        other = number / factor if function == "div" else number * factor
        if abs(other - 1) <= CLOSE:
            return say(f"cause.not_{ARITHMETIC[function]}", old=format_number(number))
        roots = min(other, number) >= 2 if function == "div" else max(other, number) < 1
        show = format_root if roots else format_number
        return say(f"cause.{ARITHMETIC[function]}", value=show(other), old=show(number))
    if action == "output" and factor == -1:
        return say("cause.negated")
    tensor = describe_tensor(lang, one, one["argument"], place)
    return say(f"cause.scale_{action}", tensor=tensor, value=format_number(factor))


def describe_optimizer_change(lang: Language, one: Row, place: CausePlace) -> str:
    """Return the phrase for a `Mutation`, given as a dict, of the optimizer's settings, of its
    rule, or of the gradients."""
    argument, value, was = str(one["argument"]), one["value"], str(one["operation"])
    word, _, rest = argument.partition(":")
    if word == "exchange":
        value = list(value)[::-1]
    keys = [f"cause.optimizer_{word}"]
    if word == "form":
        keys.insert(0, f"rule.{rest}")
    elif word == "decay":
        keys.insert(0, f"decay.{rest}")
    elif word == "gradient":
        keys.insert(0, "cause.optimizer_alone" if rest == "alone" else f"gradients.{rest}")
    elif was not in ("", "None"):
        keys.append("cause.optimizer_was")
    scope = one["old"]
    return find_message(
        lang,
        *keys,
        "cause.optimizer",
        argument=f"`{rest or argument}`",
        value=format_numbers(value),
        old=was,
        scope=format_names(lang, scope) if scope else format_message(lang, "cause.all"),
        **place.side_names(lang),
    )


def format_numbers(value: Any) -> str:
    """Format a number, or the entries of a list joined by commas; values that are no numbers as
    `format_value` does."""
    several = list(value) if isinstance(value, list | tuple) else [value]
    return ", ".join(format_number(n) if is_number(n) else format_value(n) for n in several)


def format_names(lang: Language, names: Sequence[str]) -> str:
    """Join the first `MAX_NAMED_PARAMETERS` names by commas, and say how many others there are."""
    some, others = ", ".join(names[:MAX_NAMED_PARAMETERS]), len(names) - MAX_NAMED_PARAMETERS
    return format_message(lang, "more", names=some, n=others) if others > 0 else some


def is_number(value: Any) -> bool:
    """Return whether a value is an int or float, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_mixed(place: CausePlace) -> bool:
    """Return whether the second side is a MindSpore model and the first is not."""
    return place.sides is not None and [s.startswith("mindspore") for s in place.sides] == [
        False,
        True,
    ]


def name_argument(lang: Language, argument: str) -> str:
    """Return an argument's name as code in backticks; for ``argument N``, counted from 0, words
    with its number from 1."""
    number = argument.removeprefix("argument ")
    if number != argument and number.isdigit():
        return format_message(lang, "number.argument", n=int(number) + 1)
    return f"`{argument}`"


def format_setting(lang: Language, value: Any) -> str:
    """Format the value of a setting: words in quotes; None, or an empty list, as "the default"."""
    if value is None or value in ([], ()):
        return format_message(lang, "value.unset")
    is_word = isinstance(value, str) and value.isidentifier()
    return f'"{value}"' if is_word else format_value(value)


def call_number_argument(call: Row) -> float | None:
    """Return the number by which an operation, given as a dict, multiplies or divides; None if it
    takes two tensors."""
    numbers = [v for k, v in call["attributes"].items() if k in NUMBERS and is_number(v)]
    return float(numbers[0]) if len(numbers) == 1 else None


def head_width(call: Row | None) -> int:
    """Return the width of a head of an attention call (last axis of its output), given as a dict; 0
    if it is unknown."""
    return int(call["outputs"][0][-1]) if call is not None and call["outputs"] else 0


def format_root(value: float) -> str:
    """Format a number by which scores are scaled, with the root that it equals if there is one:
    ``0.125 = 1/√64``, ``8 = √64``."""
    square = value * value
    for count, text in ((square, "√{}"), (1 / square if square else math.inf, "1/√{}")):
        if 2 < count < 1e6 and abs(count - round(count)) <= 1e-5 * count:
            return f"{format_value(float(value))} = {text.format(round(count))}"
    return format_number(value)
