"""The parts of the page about a comparison, as sentences that are not yet laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dualml.experiment.comparison import Comparison
from dualml.parity.models.messages import (
    Language,
    describe_divergence_numbers,
    describe_divergence_place,
    describe_elements,
    format_message,
)
from dualml.parity.models.remedies import map_remedy
from dualml.parity.models.sentences import (
    cause_phrases,
    count_calls,
    count_changes,
    describe_causes,
    describe_rest,
    make_hypothesis,
)

#: Keys of notes that belong to the verdict, and of those that say what is not settled.
LEADING = ("raised", "pattern")
OPEN = (
    *(
        "by_order",
        "alone",
        "left",
        "wild",
        "no_search",
        "killed",
        "kink",
        "chaotic",
        "random",
        "drawn",
    ),
    *("statistics", "pickled", "blocks_left"),
)


#: Beginning of the keys of notes that name a cause of two traces, and of those that say how it was
#: tested and what it concerns.
CAUSES = "ranks_"
TESTED = ("ranks_tested", "ranks_untested", "ranks_concerned")


@dataclass(frozen=True)
class AnswerSource:
    """A comparison of models or traces, and what else the page about it needs.

    Attributes:
        found: the comparison.
        margin: how many rounding envelopes apart arrays still count as equal.
        tolerance: ``measured`` (by draws) or ``bound`` (estimated).
        evidence: sentences that support the verdict where there is no first divergence.
    """

    found: Comparison
    margin: float
    tolerance: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerParts:
    """The sentences of a page.

    Attributes:
        headline: the verdict with its place, or with its evidence.
        snippets: for each side a heading, and its first operation that differs, as a dict.
        numbers: distance and rounding, or the shapes.
        elements: sentences on the elements that differ most: on the first, on the first two, and so
            on.
        phases: one sentence with the largest ratio to the rounding envelope in each phase.
        causes: label and sentence of each cause.
        ties: other causes that explain the difference equally well.
        open: what was not judged or not found.
        notes: other remarks.
        entries: commands that show entries of the catalogue of known differences.
    """

    headline: tuple[str, ...]
    snippets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    numbers: tuple[str, ...] = ()
    elements: tuple[str, ...] = ()
    phases: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    ties: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()


def collect_parts(source: AnswerSource, lang: Language) -> AnswerParts:
    """Return the parts of the page about a comparison, in one language, not yet shortened."""
    found = source.found
    say, first = partial(format_message, lang), found.first
    texts = {
        keys: [say(f"note.{n.key}", **n.values) for n in found.notes if (n.key in keys)]
        for keys in (LEADING, OPEN)
    }
    known = {*LEADING, *OPEN, "entry"}
    causes = tuple(noted_causes(found, lang))
    remarks = [
        say(f"note.{n.key}", **n.values)
        for n in found.notes
        if n.key not in known and not n.key.startswith(CAUSES)
    ]
    explanation = dict(found.explanation or {})
    explained = "causes" in explanation or "compiler" in explanation
    unsettled = list(unsettled_texts(source, explanation, lang))
    elements = () if first is None else first.elements
    return AnswerParts(
        headline=tuple(headline_texts(source, lang, texts[LEADING])),
        snippets=tuple(operation_heads(found, explanation, lang)),
        numbers=()
        if first is None
        else tuple(
            describe_divergence_numbers(lang, first, found.sides, source.margin, "page.value")
        ),
        elements=()
        if first is None
        else tuple(
            describe_elements(lang, first, found.sides, "page.elements", n + 1)
            for n in range(len(elements))
        ),
        phases=describe_phases(found, lang),
        causes=(*causes, *(cause_texts(found, explanation, lang) if explained else ())),
        ties=tuple(
            tie
            for cause in explanation.get("causes", ())[:1]
            for tie in cause_phrases(lang, cause, found.sides)[1:]
        ),
        open=(*unsettled, *texts[OPEN]),
        notes=tuple(remarks),
        entries=tuple(entry_commands(found, explanation)),
    )


def headline_texts(source: AnswerSource, lang: Language, leading: list[str]) -> Iterator[str]:
    """Yield the verdict with what decides it, as sentences: leading notes such as an error, then
    the place of the first divergence or the evidence.

    Args:
        leading: sentences of the notes that belong to the verdict.
    """
    say, found = partial(format_message, lang), source.found
    verdict = say(f"verdict.{found.verdict.replace(' ', '_')}")
    space = "" if lang == "zh" else " "
    if found.first is not None:
        texts = [*leading, describe_divergence_place(lang, found.first, found.sides)]
    else:
        texts = [*leading, *source.evidence]
    yield verdict + space + texts[0]
    yield from (text[:1].upper() + text[1:] for text in texts[1:])


def operation_heads(
    found: Comparison, explanation: Mapping[str, Any], lang: Language
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield for each side that has one the first operation that differs, as a dict, behind a
    heading such as ``torch: gelu, net.py line 28``."""
    first = next(iter(explanation.get("causes", ())), explanation)
    for side, key in zip(found.sides, ("place", "other"), strict=True):
        operation = first.get(key)
        if operation is None:
            continue
        values = {"side": side, "operation": operation["name"]}
        place = operation.get("place") or operation.get("built")
        head = "page.operation" if place is None else "page.operation_line"
        if place is not None:
            values |= {"file": Path(str(place["file"])).name, "line": place["line"]}
        text = format_message(lang, head, **values)
        if is_constant(operation):
            text += format_message(lang, "page.constant")
        yield text, operation


def is_constant(operation: Mapping[str, Any]) -> bool:
    """Return whether an operation, given as a dict, takes only arrays that no call computed
    (tables), and so depends on no input and no parameter."""
    return all(str(name).startswith("table:") for name in operation["inputs"])


def describe_phases(found: Comparison, lang: Language) -> str:
    """Return a sentence with the largest ratio to the rounding envelope in each phase; empty if no
    phase was compared."""
    if not found.phases:
        return ""
    say = partial(format_message, lang)
    ratios = (
        say("page.ratio", phase=say(f"phase.{phase}"), ratio=format_ratio(worst["ratio"]))
        for phase, worst in found.phases.items()
    )
    return say("page.ratios", ratios=say("page.comma").join(ratios))


def format_ratio(ratio: float) -> str:
    """Format a ratio to the rounding envelope in a few letters: three digits, or two from 1000 on,
    with an exponent where it is large."""
    return f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.2g}"


def cause_texts(
    found: Comparison, explanation: Mapping[str, Any], lang: Language
) -> Iterator[tuple[str, str]]:
    """Yield (label, sentence) for each cause, and then how they were tested; without such causes,
    one pair on the compiler if it is to blame, or else on what was tried without success. An empty
    label continues the one before.

    Args:
        explanation: the result of the cause search, as a dict.
    """
    say, sides = partial(format_message, lang), found.sides
    causes = explanation.get("causes", ())
    if not causes:
        joined = ("" if lang == "zh" else " ").join(
            describe_causes(lang, explanation, sides, found.steps)
        )
        yield "cause", joined
        return
    for number, cause in enumerate(causes):
        text = cause_phrases(lang, cause, sides)[0] + count_calls(lang, cause)
        operation = cause.get("other") or cause.get("place") or {}
        place = operation.get("built") or operation.get("place")
        if number and place is not None:
            text += say("page.at", file=Path(str(place["file"])).name, line=place["line"])
        yield "then" if number else "cause", text + say("stop")
    key = "page.tested"
    if explanation["equal"]:
        key = "page.tested_equal" if found.steps else "page.tested_raised"
    yield "", say(key, a=sides[0], **count_changes(lang, explanation, found.steps))


def noted_causes(found: Comparison, lang: Language) -> Iterator[tuple[str, str]]:
    """Yield (label, sentence) for each note on a mistake of several ranks, found in two traces, and
    on how it was tested. An empty label continues the one before."""
    label = "cause"
    for note in found.notes:
        if note.key.startswith(CAUSES):
            text = format_message(lang, f"note.{note.key}", **note.values)
            text = text.removeprefix(format_message(lang, "page.likely"))
            yield ("" if note.key.startswith(TESTED) else label), text
            label = "then"


def unsettled_texts(
    source: AnswerSource, explanation: Mapping[str, Any], lang: Language
) -> Iterator[str]:
    """Yield sentences on what the causes leave open, on what to put into the map, and on a
    tolerance that was not measured."""
    found = source.found
    if explanation.get("causes") and not explanation["equal"]:
        yield describe_rest(lang, explanation, found.sides, found.steps)
    mapping = getattr(found, "mapping", ())
    for cause in explanation.get("causes", ()):
        if entries := map_remedy(cause, mapping):
            yield format_message(lang, "page.map_remedy", b=found.sides[1], entries=entries)
    if source.tolerance == "bound" and found.phases and found.steps:
        yield format_message(lang, "tolerance.bound", margin=f"{source.margin:g}")


def entry_commands(found: Comparison, explanation: Mapping[str, Any]) -> list[str]:
    """Return the commands (``dualml diffs …``, in backticks) that show what the catalogue of known
    differences has about the error or the likeliest causes, each once."""
    noted = [str(note.values["entry"]) for note in found.notes if note.key == "entry"]
    likeliest = [
        make_hypothesis(cause["alterations"][0]) for cause in explanation.get("causes", ())
    ]
    entries = [*noted, *(entry for one in likeliest for entry in one.entries)]
    return [f"`dualml diffs {entry}`" for entry in dict.fromkeys(entries)]
