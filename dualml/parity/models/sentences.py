"""Sentences about causes, places and evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from dualml.parity.hypothesis import Depth, Hypothesis
from dualml.parity.models.messages import Language, format_message

Row = Mapping[str, Any]
#: Optimizer mutations that have messages of their own.
OPTIMIZER_MUTATIONS = (
    "form",
    "gradient",
    "skip",
    "hold",
    "decay",
    "lr_factor",
    "lr_schedule",
    "twice",
)
#: Names of values in a trace, see `dualml.parity.models.operations.Operation`.
NAME = re.compile(r"(?:op|input):\d+(?:\[\d+\])?|parameter:[\w.]+")
#: Maximum number of elements of an order that are shown.
MAX_SHOWN_ELEMENTS = 12
#: Position of the bias among the inputs of a layer.
BIAS = 2
#: Maximum number of parameters that are named.
MAX_NAMED_PARAMETERS = 4


def format_place(lang: Language, side: str, operation: Row | None) -> str:
    """Format the place of an operation: ``torch: gelu, net.py line 28: self.act(x)``; empty for
    None."""
    if operation is None:
        return ""
    where = operation["place"]
    values = {"side": side, "operation": operation["name"]}
    if where is None:  # called by the framework itself
        line = format_message(lang, "place.framework", **values)
    else:
        file = Path(str(where["file"])).name
        line = format_message(
            lang, "place.line", **values, file=file, line=where["line"], code=where["code"]
        )
    built = operation.get("built")
    if not built or built == where:
        return line
    name = Path(str(built["file"])).name
    return line + format_message(
        lang, "place.built", file=name, line=built["line"], code=built["code"]
    )


def describe_causes(
    lang: Language, explanation: Row, sides: Sequence[str], steps: int
) -> list[str]:
    """Describe the causes that were found, or what was tried without success."""
    if "compiler" in explanation:
        return [text for row in explanation["compiler"] for text in describe_compiler(lang, row)]
    causes = explanation["causes"]
    sentences = []
    for number, cause in enumerate(causes):
        tied = map(make_hypothesis, cause["alterations"])
        ways = list(dict.fromkeys(one.words(lang, "cause") for one in tied))
        first = cause["alterations"][0]
        calls = format_count(lang, "calls", len(first["sites"])) if first["sites"] else ""
        key = "cause.first" if number == 0 else "cause.next"
        sentences.append(
            format_message(lang, key, a=sides[0], b=sides[1], cause=ways[0], calls=calls)
        )
        if len(ways) > 1:
            others = format_message(lang, "semicolon").join(ways[1:])
            sentences.append(format_message(lang, "cause.ties", others=others))
    if causes:
        key = "cause.equal" if steps else "cause.raised"
        if not explanation["equal"]:
            key = "cause.enough" if explanation["enough"] else "cause.partly"
        recorded = format_count(lang, "recorded", steps)
        sentences.append(format_message(lang, key, a=sides[0], b=sides[1], steps=recorded))
    elif "unsearched" in explanation:
        framework = explanation["unsearched"]
        sentences += [describe_relation(lang, one) for one in explanation.get("evidence", ())]
        sentences.append(format_message(lang, "cause.unsearched", framework=framework))
    elif explanation["equal"]:  # only parameters that one side lacks differ
        sentences.append(format_message(lang, "cause.else_equal"))
    else:
        tried = sum(explanation["tried"])
        sentences.append(
            format_message(
                lang, "cause.unfinished" if explanation.get("late") else "cause.none", n=tried
            )
        )
        sentences += [describe_relation(lang, one) for one in explanation.get("evidence", ())]
    return sentences


def describe_compiler(lang: Language, row: Row) -> list[str]:
    """Describe a compiler as the cause, and the smallest module that shows it; ``row`` as in
    `dualml.parity.models.compiler.explain_by_compiler`."""
    say = partial(format_message, lang)
    sentences = [say("compiler.cause", side=row["side"], plain=row["plain"])]
    smallest = row["smallest"]
    if smallest is None:
        return [*sentences, say("compiler.nowhere" if row["tried"] else "compiler.failed")]
    place = {
        "module": smallest["module"],
        "type": smallest["type"],
        "file": Path(str(smallest["file"] or "?")).name,
        "line": smallest["line"] or "?",
    }
    module = say("compiler.place" if place["module"] else "compiler.model", **place)
    if "raised" in smallest:
        values = {"module": module, "error": smallest["raised"], "n": row["tried"]}
        return [*sentences, say("compiler.raised", **values)]
    ratio = smallest["distance"] / smallest["envelope"] if smallest["envelope"] else math.inf
    values = {
        "module": module,
        "tensor": smallest["tensor"],
        "distance": f"{smallest['distance']:.1e}",
        "envelope": f"{smallest['envelope']:.1e}",
        "ratio": f"{ratio:.3g}",
        "n": row["tried"],
    }
    return [*sentences, say("compiler.module", **values)]


def describe_mutation(lang: Language, one: Row) -> str:
    """Describe one `Mutation`, given as a dict with ``names`` (value → code); values are named by
    the code that computed them."""
    names = one.get("names", {})
    return NAME.sub(lambda found: names.get(found[0], found[0]), mutation_text(lang, one))


def mutation_text(lang: Language, one: Row) -> str:
    """Return the text of one `Mutation`, given as a dict, with values under the names of the
    trace."""
    value, action = one["value"], str(one["action"])
    key = action
    if action in ("input", "output"):
        name = value[0]
        if name in ("scale", "fill", "shift"):
            key, value = f"{name}_{action}", value[1]
        elif name == "neutral":
            key = "unbiased" if is_bias_removed(one) else "neutral"
        elif one["kind"] in ("layout", "dtype"):
            key, value = f"{one['kind']}_{action}", format_value(value)
        else:
            value = format_value(value)
    elif action == "form" and one["argument"] == "alone":
        key = "alone"
    elif action == "detach" and one["argument"] == "":
        key = "detach_output"
    elif action.startswith("line:"):
        inner = mutation_text(lang, {**one, "action": action.removeprefix("line:"), "value": value})
        if action == "line:swap":
            inner = format_message(lang, "cause.swap", operation=one["operation"])
        elif action == "line:operand":
            name = str(value).partition(":")[2] or str(value)
            values = {"operation": one["operation"], "argument": one["argument"], "value": name}
            inner = format_message(lang, "cause.line_operand", **values)
        return format_message(lang, "cause.line", line=one["line"].partition(":")[2], cause=inner)
    elif action == "numbers" and one["argument"] != "" and one["kind"] != "dtype":
        key = "table" if str(one["old"]).startswith("parameter:") else "unnamed_table"
    elif action == "numbers" and one["kind"] == "dtype":
        key, value = "lower", one["argument"]
    elif action == "spans":
        if one["kind"] == "operand":
            return format_message(lang, "cause.later", operation=one["operation"], value=one["old"])
        if one["kind"] == "function":
            values = {"operation": one["old"], "value": one["operation"]}
            return format_message(lang, "cause.instead", **values)
        key = "applied" if one["argument"] != "" else "again" if not value[0][1] else "exchanged"
    elif action == "settings":
        value = [one[1] for one in value]
    elif action == "optimizer":
        argument = str(one["argument"])
        word, _, rest = argument.partition(":")
        key = f"optimizer_{word}" if word in OPTIMIZER_MUTATIONS else "optimizer"
        if rest == "alone":
            key = "optimizer_alone"
        scope = format_names(lang, one["old"]) if one["old"] else format_message(lang, "cause.all")
        return format_message(
            lang, f"cause.{key}", argument=rest or argument, value=format_value(value), scope=scope
        )
    return format_message(
        lang,
        f"cause.{key}",
        operation=one["operation"],
        argument=one["argument"],
        value=format_value(value),
        old=format_value(one["old"]),
    )


def format_count(lang: Language, key: str, n: int) -> str:
    """Return a number with its noun, in singular or plural."""
    return format_message(lang, f"{key}.one" if n == 1 else f"{key}.other", n=n)


def format_names(lang: Language, names: Sequence[str]) -> str:
    """Join the first names, and say how many others there are."""
    some, others = ", ".join(names[:MAX_NAMED_PARAMETERS]), len(names) - MAX_NAMED_PARAMETERS
    return format_message(lang, "more", names=some, n=others) if others > 0 else some


def format_value(value: Any) -> str:
    """Format a value, a list of values, or a transform such as ``flip(1)``."""
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], str):
            rest = ", ".join(format_value(one) for one in value[1 : 1 + MAX_SHOWN_ELEMENTS])
            rest += ", …" if len(value) > 1 + MAX_SHOWN_ELEMENTS else ""
            return f"{value[0]}({rest})" if rest else str(value[0])
        return "(" + ", ".join(format_value(one) for one in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def describe_relation(lang: Language, one: Row) -> str:
    """Describe one relation between two arrays, see `dualml.parity.causes.evidence`."""
    key = str(one["key"])
    if key == "settings":
        rows = (format_message(lang, "evidence.setting", **row) for row in one["rows"])
        joined = format_message(lang, "semicolon").join(rows)
        return format_message(lang, "evidence.settings", settings=joined)
    if key == "some" and one["axis"] is None:
        key = "some_scattered"
    values = {**one, "value": format_value(one.get("value")), "share": f"{one.get('share', 0):.0%}"}
    return format_message(
        lang, f"evidence.{key}", **{k: v for k, v in values.items() if k != "key"}
    )


@dataclass(frozen=True)
class CallHypothesis(Hypothesis):
    """A `Mutation`, given as a dict, as a hypothesis about calls of a model."""

    def words(self, lang: str, depth: Depth) -> str:
        """Return what is mutated, or, at the depths before, what its family has in common."""
        if depth == "cause":
            return describe_mutation(cast(Language, lang), self.mutation)
        return super().words(lang, depth)

    @property
    def family_keys(self) -> tuple[str, ...]:
        """Keys of its setting, of the optimizer or of a call, and of its kind."""
        kind, setting = self.mutation["kind"], str(self.mutation["argument"]).partition(":")[0]
        owner = "optimizer" if self.mutation["action"] == "optimizer" else ""
        settings = (f"{owner}.{setting}",) if owner or kind == "attribute" else ()
        return (*settings, f"kind.{kind}")


def make_hypothesis(one: Row) -> CallHypothesis:
    """Return one `Mutation`, given as a dict, as a hypothesis."""
    return CallHypothesis(catalogue_key(one), mutation=one)


def catalogue_key(one: Row) -> str:
    """Return OPERATION.SETTING of a `Mutation`, given as a dict, as the catalogue names it."""
    operation = one["operation"]
    if one["action"] == "optimizer":
        operation = "optimizer_of_some" if one["old"] else "optimizer"
    return f"{operation}.{'bias' if is_bias_removed(one) else one['argument']}"


def is_bias_removed(one: Row) -> bool:
    """Return whether a `Mutation`, given as a dict, removes the bias of a convolution or linear
    layer."""
    layer = one["operation"].startswith(("conv", "linear"))
    return layer and one["argument"] == BIAS and list(one["value"] or ()) == ["neutral"]
