"""Sentences about causes, places and evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from dualml.parity.hypothesis import Depth, Hypothesis
from dualml.parity.models.messages import Language, find_message, format_message
from dualml.parity.models.mutation_sentences import describe_mutation, is_bias_removed
from dualml.parity.models.number_text import format_value
from dualml.parity.models.phrases import UNKNOWN_PLACE, CausePlace, Row


def format_place(lang: Language, side: str, operation: Row | None) -> str:
    """Format the place of an operation, given as a dict:
    ``torch: gelu, net.py line 28: self.act(x)``, with the line that built the layer if it is
    another one; empty for None."""
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
    """Return sentences about the causes that were found, or about what was tried without success.

    Args:
        explanation: the result of a cause search, as a dict.
        sides: names of the two sides.
        steps: number of recorded steps; 0 if a side raised in the first.
    """
    if "compiler" in explanation:
        return [text for row in explanation["compiler"] for text in describe_compiler(lang, row)]
    causes = explanation["causes"]
    sentences = []
    for number, cause in enumerate(causes):
        ways = cause_phrases(lang, cause, sides)
        key = "cause.first" if number == 0 else "cause.next"
        values = {"cause": ways[0], "calls": count_calls(lang, cause)}
        sentences.append(format_message(lang, key, a=sides[0], b=sides[1], **values))
        if len(causes) == 1:
            sentences.append(describe_rest(lang, explanation, sides, steps))
        if len(ways) > 1:
            others = format_message(lang, "semicolon").join(ways[1:])
            sentences.append(format_count(lang, "cause.ties", len(ways) - 1, others=others))
    if len(causes) > 1:
        sentences.append(describe_rest(lang, explanation, sides, steps))
    if causes:
        return sentences
    if "unsearched" in explanation:
        framework = explanation["unsearched"]
        sentences += [describe_relation(lang, one) for one in explanation.get("evidence", ())]
        sentences.append(format_message(lang, "cause.unsearched", framework=framework))
    elif explanation["equal"]:  # only parameters that one side lacks differ
        sentences.append(format_message(lang, "cause.else_equal"))
    else:
        key = "cause.unfinished" if explanation.get("late") else "cause.none"
        tried = sum(explanation["tried"])
        sentences.append(format_message(lang, key, n=f"{tried:,}", a=sides[0], b=sides[1]))
        sentences += [describe_relation(lang, one) for one in explanation.get("evidence", ())]
    return sentences


def cause_phrases(lang: Language, cause: Row, sides: Sequence[str]) -> list[str]:
    """Return a phrase for each mutation that explains a difference equally well, the likeliest
    first, without repetitions.

    Args:
        cause: one of an explanation's ``causes``, as a dict.
    """
    place = CausePlace((sides[0], sides[1]), cause.get("place"), cause.get("other"))
    tied = (make_hypothesis(one, place) for one in cause["alterations"])
    return list(dict.fromkeys(one.words(lang, "cause") for one in tied))


def count_calls(lang: Language, cause: Row) -> str:
    """Return in how many calls a cause's likeliest mutation is made, as words in brackets; empty if
    it names no calls."""
    sites = cause["alterations"][0]["sites"]
    return format_count(lang, "calls", len(sites)) if sites else ""


def describe_rest(lang: Language, explanation: Row, sides: Sequence[str], steps: int) -> str:
    """Return a sentence about what is left of the difference once all causes of an explanation are
    applied.

    Args:
        steps: number of recorded steps; 0 if a side raised in the first.
    """
    key = "cause.equal" if steps else "cause.raised"
    if not explanation["equal"]:
        key = "cause.enough" if explanation["enough"] else "cause.partly"
    return format_message(lang, key, **count_changes(lang, explanation, steps))


def count_changes(lang: Language, explanation: Row, steps: int) -> dict[str, str]:
    """Return ``changed``, the number of causes in words, and ``steps``, the number of recorded
    steps in words."""
    return {
        "changed": format_count(lang, "changed", len(explanation["causes"])),
        "steps": format_count(lang, "recorded", steps),
    }


def describe_compiler(lang: Language, row: Row) -> list[str]:
    """Return sentences about a compiler as the cause, and the smallest module that shows it;
    ``row`` as in `dualml.parity.models.compiler.explain_by_compiler`."""
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


def format_count(lang: Language, key: str, n: int, **values: Any) -> str:
    """Return the message ``KEY.one`` (for 1), ``KEY.two`` (for 2, if there is one) or
    ``KEY.other``, with ``n`` and ``values`` filled in."""
    forms = {1: [f"{key}.one"], 2: [f"{key}.two", f"{key}.other"]}
    return find_message(lang, *forms.get(n, [f"{key}.other"]), n=n, **values)


def describe_relation(lang: Language, one: Row) -> str:
    """Return a sentence about one relation between two arrays, given as a dict, see
    `dualml.parity.causes.evidence`."""
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
    """A `Mutation`, given as a dict, as a hypothesis about calls of a model.

    Attributes:
        place: where the difference was found, and the names of the two sides.
    """

    place: CausePlace = field(default=UNKNOWN_PLACE, compare=False)

    def words(self, lang: str, depth: Depth) -> str:
        """Return what is mutated, at depth ``cause``; at other depths what its family has in
        common."""
        if depth == "cause":
            return describe_mutation(cast(Language, lang), self.mutation, self.place)
        return super().words(lang, depth)

    @property
    def family_keys(self) -> tuple[str, ...]:
        """Keys of the families that the mutation belongs to: of its setting, if it changes one of
        the optimizer or of a call, and of its kind."""
        kind, setting = self.mutation["kind"], str(self.mutation["argument"]).partition(":")[0]
        owner = "optimizer" if self.mutation["action"] == "optimizer" else ""
        settings = (f"{owner}.{setting}",) if owner or kind == "attribute" else ()
        return (*settings, f"kind.{kind}")


def make_hypothesis(one: Row, place: CausePlace = UNKNOWN_PLACE) -> CallHypothesis:
    """Return a `Mutation`, given as a dict, as a hypothesis.

    Args:
        place: where the difference was found, and the names of the two sides.
    """
    return CallHypothesis(difference_key(one), mutation=one, place=place)


def difference_key(one: Row) -> str:
    """Return ``OPERATION.SETTING`` of a `Mutation`, given as a dict: its key in the catalogue of
    known differences."""
    operation = one["operation"]
    if one["action"] == "optimizer":
        operation = "optimizer_of_some" if one["old"] else "optimizer"
    return f"{operation}.{'bias' if is_bias_removed(one) else one['argument']}"
