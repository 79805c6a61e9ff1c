"""Sentences about causes, places and evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.diffs.lookup import by_cause
from dualml.parity.models.words import Language, text

Row = Mapping[str, Any]
#: Optimizer mutations that have messages of their own.
OF_OPTIMIZER = ("form", "gradient", "skip", "hold", "decay", "lr_factor", "lr_schedule", "twice")
#: Names of values in a trace, see `dualml.parity.models.operations.Operation`.
NAME = re.compile(r"(?:op|input):\d+(?:\[\d+\])?|parameter:[\w.]+")
#: Maximum number of elements of an order that are shown.
SHOWN = 12
#: Position of the bias among the inputs of a layer.
BIAS = 2
#: Maximum number of parameters that are named.
NAMED = 4


def place(lang: Language, side: str, operation: Row | None) -> str:
    """Format the place of an operation: ``torch: gelu, net.py line 28: self.act(x)``; empty for
    None."""
    if operation is None:
        return ""
    where = operation["place"]
    if where is None:
        return text(lang, "place.framework", side=side, operation=operation["name"])
    line = text(
        lang,
        "place.line",
        side=side,
        operation=operation["name"],
        file=Path(str(where["file"])).name,
        line=where["line"],
        code=where["code"],
    )
    built = operation.get("built")
    if not built or built == where:
        return line
    name = Path(str(built["file"])).name
    return line + text(lang, "place.built", file=name, line=built["line"], code=built["code"])


def explained(lang: Language, explanation: Row, sides: Sequence[str], steps: int) -> list[str]:
    """Describe the causes that were found, or what was tried without success."""
    causes = explanation["causes"]
    sentences = []
    for number, cause in enumerate(causes):
        ways = list(dict.fromkeys(change(lang, one) for one in cause["alterations"]))
        first = cause["alterations"][0]
        calls = counted(lang, "calls", len(first["sites"])) if first["sites"] else ""
        key = "cause.first" if number == 0 else "cause.next"
        sentences.append(text(lang, key, a=sides[0], b=sides[1], cause=ways[0], calls=calls))
        if len(ways) > 1:
            others = text(lang, "semicolon").join(ways[1:])
            sentences.append(text(lang, "cause.ties", others=others))
    if causes:
        key = "cause.equal" if steps else "cause.raised"
        if not explanation["equal"]:
            key = "cause.enough" if explanation["enough"] else "cause.partly"
        recorded = counted(lang, "recorded", steps)
        sentences.append(text(lang, key, a=sides[0], b=sides[1], steps=recorded))
    elif explanation["equal"]:  # only parameters that one side lacks differ
        sentences.append(text(lang, "cause.else_equal"))
    else:
        tried = sum(explanation["tried"])
        sentences.append(
            text(lang, "cause.unfinished" if explanation.get("late") else "cause.none", n=tried)
        )
        sentences += [relation(lang, one) for one in explanation.get("evidence", ())]
    return sentences


def change(lang: Language, one: Row) -> str:
    """Describe one mutation; values are named by the code that computed them."""
    names = one.get("names", {})
    return NAME.sub(lambda found: names.get(found[0], found[0]), altered(lang, one))


def altered(lang: Language, one: Row) -> str:
    """Return the text of one mutation, with values under the names of the trace."""
    value, action = one["value"], str(one["action"])
    key = action
    if action in ("input", "output"):
        name = value[0]
        if name in ("scale", "fill", "shift"):
            key, value = f"{name}_{action}", value[1]
        elif name == "neutral":
            key = "unbiased" if without_bias(one) else "neutral"
        elif one["kind"] in ("layout", "dtype"):
            key, value = f"{one['kind']}_{action}", shown(value)
        else:
            value = shown(value)
    elif action == "form" and one["argument"] == "alone":
        key = "alone"
    elif action == "detach" and one["argument"] == "":
        key = "detach_output"
    elif action.startswith("line:"):
        inner = altered(lang, {**one, "action": action.removeprefix("line:"), "value": value})
        if action == "line:swap":
            inner = text(lang, "cause.swap", operation=one["operation"])
        elif action == "line:operand":
            name = str(value).partition(":")[2] or str(value)
            values = {"operation": one["operation"], "argument": one["argument"], "value": name}
            inner = text(lang, "cause.line_operand", **values)
        return text(lang, "cause.line", line=one["line"].partition(":")[2], cause=inner)
    elif action == "numbers" and one["argument"] != "" and one["kind"] != "dtype":
        key = "table" if str(one["old"]).startswith("parameter:") else "unnamed_table"
    elif action == "numbers" and one["kind"] == "dtype":
        key, value = "lower", one["argument"]
    elif action == "spans":
        if one["kind"] == "operand":
            return text(lang, "cause.later", operation=one["operation"], value=one["old"])
        if one["kind"] == "function":
            values = {"operation": one["old"], "value": one["operation"]}
            return text(lang, "cause.instead", **values)
        key = "applied" if one["argument"] != "" else "again" if not value[0][1] else "exchanged"
    elif action == "settings":
        value = [one[1] for one in value]
    elif action == "optimizer":
        argument = str(one["argument"])
        word, _, rest = argument.partition(":")
        key = f"optimizer_{word}" if word in OF_OPTIMIZER else "optimizer"
        if rest == "alone":
            key = "optimizer_alone"
        scope = listed(lang, one["old"]) if one["old"] else text(lang, "cause.all")
        return text(
            lang, f"cause.{key}", argument=rest or argument, value=shown(value), scope=scope
        )
    return text(
        lang,
        f"cause.{key}",
        operation=one["operation"],
        argument=one["argument"],
        value=shown(value),
        old=shown(one["old"]),
    )


def counted(lang: Language, key: str, n: int) -> str:
    """Return a number with its noun, in singular or plural."""
    return text(lang, f"{key}.one" if n == 1 else f"{key}.other", n=n)


def listed(lang: Language, names: Sequence[str]) -> str:
    """Join the first names, and say how many others there are."""
    some, others = ", ".join(names[:NAMED]), len(names) - NAMED
    return text(lang, "more", names=some, n=others) if others > 0 else some


def shown(value: Any) -> str:
    """Format a value, a list of values, or a transform such as ``flip(1)``."""
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], str):
            rest = ", ".join(shown(one) for one in value[1 : 1 + SHOWN])
            rest += ", …" if len(value) > 1 + SHOWN else ""
            return f"{value[0]}({rest})" if rest else str(value[0])
        return "(" + ", ".join(shown(one) for one in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def relation(lang: Language, one: Row) -> str:
    """Describe one relation between two arrays, see `dualml.parity.causes.evidence`."""
    key = str(one["key"])
    if key == "some" and one["axis"] is None:
        key = "some_scattered"
    values = {**one, "value": shown(one.get("value")), "share": f"{one.get('share', 0):.0%}"}
    return text(lang, f"evidence.{key}", **{k: v for k, v in values.items() if k != "key"})


def about(alterations: Iterable[Row]) -> list[str]:
    """Return the names of catalogue entries about mutations such as ``layer_norm.eps``."""
    known = by_cause()
    return list(dict.fromkeys(one for row in alterations for one in known.get(named(row), ())))


def named(one: Row) -> str:
    """Return OPERATION.SETTING of a mutation, as the catalogue names it."""
    operation = one["operation"]
    if one["action"] == "optimizer":
        operation = "optimizer_of_some" if one["old"] else "optimizer"
    return f"{operation}.{'bias' if without_bias(one) else one['argument']}"


def without_bias(one: Row) -> bool:
    """Whether a mutation removes the bias of a layer."""
    layer = one["operation"].startswith(("conv", "linear"))
    return layer and one["argument"] == BIAS and list(one["value"] or ()) == ["neutral"]
