"""Presentation of a check to a student: lines for the terminal, JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import typer

from dualml.common.errors import escape_unprintable as visible
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.exercise import Difference, ExerciseCall, Trouble
from dualml.course.explained_errors import find_explanation
from dualml.course.judge import Judgement
from dualml.course.places import Condition, parse_place
from dualml.course.relation_text import (
    is_about_shape,
    relation_key,
    relation_texts,
    shape_text,
    unknown_key,
)
from dualml.course.search_work import MAX_COMBINATIONS
from dualml.course.source import Problem
from dualml.launch.child import SECONDARY
from dualml.parity.hypothesis import DEPTHS, Hypothesis

MARKS = {
    "met": ("✓", "green"),
    "not met": ("✗", "red"),
    "unwritten": ("·", "yellow"),
    "not judged": ("·", "bright_black"),
}
#: Number of output lines of a student's code that are shown.
PRINTED = 5
#: Places of mistakes that act everywhere.
NO_PLACES: Mapping[str, str] = {}


def result_lines(
    checked: CheckResult, hints: int, words: Messages, brief: bool = False
) -> Iterator[str]:
    """Yield the lines about one file; unwritten and not judged requirements in a row share a line,
    with ``brief`` also met ones. ``hints`` + 1 parts of `DEPTHS` explain each mistake."""
    met = sum(j.status == "met" for j in checked.judgements)
    head = words("course.file", file=checked.path.name, met=met, n=len(checked.judgements))
    yield typer.style(head, bold=True)
    for problem in checked.problems:
        yield f"  {typer.style('!', fg='yellow')} {visible(problem_text(problem, words))}"
    told: dict[str, str] = {}
    mixed = find_mixed((j.requirement.target, mistake_names(j)) for j in checked.judgements)
    width = max(18, *(len(j.requirement.name) for j in checked.judgements), 0)
    together = {"unwritten", "not judged", *(("met",) if brief else ())}
    for status, several in groupby(checked.judgements, lambda j: j.status):
        mark = f"  {typer.style(MARKS[status][0], fg=MARKS[status][1])} "
        if status in together:
            names = [j.requirement.name for j in several]
            label = words(f"grade.status_of.{status.replace(' ', '_')}")
            yield f"{mark}{label}: {words.join(names)}"
            continue
        for judgement in several:
            name = judgement.requirement.name
            yield f"{mark}{name:<{width}} {words.get(f'requirement.{name}', name)}"
            if status == "not met":
                is_mixed = judgement.requirement.target in mixed
                lines = detail_lines(judgement, hints, words, told, is_mixed)
                yield from (f"      {line}" for line in lines)
                for known in (*judgement.mistakes, error_key(judgement), unnamed_key(judgement)):
                    told.setdefault(known, name)
    if printed := checked.printed.strip():
        yield f"  {words('course.printed')}"
        yield from (f"      {visible(line)}" for line in printed.splitlines()[-PRINTED:])


def mistake_names(judgement: Judgement) -> list[str]:
    """Return what is wrong with a requirement, equal for equal reasons: typical mistakes, an error
    or an unnamed mistake; empty for one that is met or was not judged."""
    if judgement.status != "not met":
        return []
    unnamed = "unnamed" if judgement.difference is not None else ""
    return list(judgement.mistakes) or [error_key(judgement) or unnamed]


def find_mixed(wrong: Iterable[tuple[str, Sequence[str]]]) -> set[str]:
    """Return the classes and functions in which more than one thing is wrong, so that what is said
    of one mistake need not hold for all their numbers; ``wrong`` has pairs of a class and what is
    wrong in one of its requirements."""
    reasons: dict[str, set[str]] = {}
    for target, names in wrong:
        reasons.setdefault(target, set()).update(names)
    return {target for target, names in reasons.items() if len(names) > 1}


def error_key(judgement: Judgement) -> str:
    """Return a key that identifies a judgement's error, equal for equal errors; empty if it has
    none."""
    trouble = judgement.trouble
    if trouble is None:
        return ""
    where = trouble.line or judgement.requirement.target
    return f"{where} {trouble.kind}: {trouble.message}"


def unnamed_key(judgement: Judgement) -> str:
    """Return a key that identifies a difference that no typical mistake explains, equal for those
    of a class or function that look alike; empty for other judgements."""
    if judgement.difference is None or judgement.mistakes:
        return ""
    shape = "shape" if is_about_shape(judgement.difference) else ""
    return shape + relation_key(judgement.relations, judgement.requirement.target)


def detail_lines(
    judgement: Judgement,
    hints: int,
    words: Messages,
    told: Mapping[str, str],
    is_mixed: bool = False,
) -> Iterator[str]:
    """Yield the difference or error, where it is, and hints about it.

    Args:
        hints: number of parts of `DEPTHS` beyond the first that explain a mistake.
        told: mistake or error → the requirement at which it was already explained.
        is_mixed: whether more than one thing is wrong in this class or function.
    """
    new = [mistake for mistake in judgement.mistakes if mistake not in told]
    old = list(dict.fromkeys(told[m] for m in judgement.mistakes if m in told))
    if old and not new:
        yield words("course.same", names=old)
        return
    if judgement.trouble is not None and not judgement.mistakes and error_key(judgement) in told:
        yield words("course.same_error", names=[told[error_key(judgement)]])
        return
    unnamed = unnamed_key(judgement)
    if unnamed and unnamed in told and judgement.difference is not None:
        yield numbers_text(judgement.difference, rank_count(judgement), words)
        yield words("course.unknown_again", names=[told[unnamed]])
        return
    if judgement.call is not None:
        yield format_call(judgement.call, words)
    if judgement.trouble is not None:
        target = judgement.requirement.target
        yield visible(trouble_text(judgement.trouble, target, rank_count(judgement), words))
    if judgement.difference is not None:
        yield from number_lines(judgement, judgement.difference, words)
    if old:
        yield words("course.also", names=old)
    if not new and not judgement.trouble:
        yield from unknown_lines(judgement, words)
    for mistake in new:
        yield from mistake_lines(mistake, hints, words, judgement.places, is_mixed)


def unknown_lines(judgement: Judgement, words: Messages) -> Iterator[str]:
    """Yield what can be seen of wrong numbers, and that no typical mistake gives them."""
    if judgement.relations:
        text = words.join_sentences(relation_texts(judgement.relations, words))
        yield f"{typer.style(words('course.observed'), fg='cyan')} {text}"
    yield words(unknown_key(judgement.difference, bool(judgement.inputs)))
    if judgement.is_bounded:
        yield words("course.bounded", n=MAX_COMBINATIONS)


def mistake_lines(
    mistake: str, hints: int, words: Messages, places: Mapping[str, str], is_mixed: bool
) -> Iterator[str]:
    """Yield the first ``hints`` + 1 parts of `DEPTHS` of a typical mistake.

    Args:
        places: mistake → where alone it acts.
        is_mixed: whether it is not all that is wrong, so that its symptom is that of it alone.
    """
    for depth, text in explain_mistake(mistake, hints, words, places, is_mixed).items():
        yield f"{typer.style(depth_label(depth, is_mixed, words), fg='cyan')} {text}"


def depth_label(depth: str, is_mixed: bool, words: Messages) -> str:
    """Return the label of a part of an explanation; a symptom beside another mistake is what the
    one would show by itself."""
    is_alone = is_mixed and depth == "symptom"
    return words("course.symptom_alone" if is_alone else f"course.depth.{depth}")


def format_call(call: ExerciseCall, words: Messages) -> str:
    """Format a call, as ``SGD(lr = 0.07, momentum = 0.8), 2 ranks``; arguments that do not fit in a
    line are left out."""
    hyper = call.options.get("hyper", call.options)
    given = ", ".join(f"{k} = {format_value(v)}" for k, v in hyper.items() if fits_in_line(v))
    ranks = f", {words.count('rank', call.ranks)}" if call.ranks > 1 else ""
    mode = " (GRAPH_MODE)" if call.options.get("mode") == "graph" else ""
    return f"{call.target}({given}){ranks}{mode}"


def fits_in_line(value: Any) -> bool:
    """Return whether a value is shown in a line: a number, boolean or text, or a list of at most
    eight numbers."""
    if isinstance(value, list | tuple):
        return len(value) <= 8 and all(isinstance(v, int | float) for v in value)
    return isinstance(value, int | float | bool | str)


def format_value(value: Any) -> str:
    """Format a value in a few characters, numbers with six significant digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float | int):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(format_value, value))})"
    return str(value)


def rank_count(judgement: Judgement) -> int:
    """Return the number of ranks of a judged call; 1 if there is no call."""
    return 1 if judgement.call is None else judgement.call.ranks


def numbers_text(difference: Difference, ranks: int, words: Messages) -> str:
    """Return a text that says where a number is off, what it is and what it should be; of an array
    of a wrong shape, both shapes."""
    where = format_position(difference.key, difference.index, words)
    where += words("course.of_rank", rank=difference.rank) if ranks > 1 else ""
    if is_about_shape(difference):
        return shape_text(difference, where, words)
    return words(
        "course.numbers",
        where=where,
        value=format_value(difference.value),
        expected=format_value(difference.expected),
    )


def number_lines(judgement: Judgement, difference: Difference, words: Messages) -> Iterator[str]:
    """Yield the number that is off, and those from which it is computed, hyperparameters left
    out."""
    yield numbers_text(difference, rank_count(judgement), words)
    hyper = judgement.call.options.get("hyper", {}) if judgement.call else {}
    made_of = {k: v for k, v in judgement.inputs.items() if k not in hyper}
    if made_of:
        yield inputs_text(made_of, words)


def inputs_text(inputs: Mapping[str, Any], words: Messages) -> str:
    """Return the numbers from which a wrong one is computed, as ``computed from g = 1, n = 2``."""
    values = ", ".join(f"{k} = {format_number(v, words)}" for k, v in inputs.items())
    return words("course.made_of", values=values)


def format_number(value: Any, words: Messages) -> str:
    """Format a number; for None, return the message that there is no gradient."""
    return words("course.no_gradient") if value is None else format_value(value)


def format_position(key: str, index: Sequence[int] | None, words: Messages) -> str:
    """Format a position: ``3/weight`` → ``weight[0, 1] after update 3``."""
    at = str(list(index)) if index else ""
    step, slash, name = key.partition("/")
    if slash and step == "before":
        return words("course.argument_of", name=name, at=at)
    if slash and step.isdigit():
        return words("course.after", name=name + at, step=step)
    if key.isdigit():
        return words("course.tensor", n=key, at=at)
    if step == "before":
        text = "course.argument_tensor" if slash else "course.argument"
        return words(text, n=name, at=at)
    if step == "passed":
        return words("course.passed", name=name)
    return words.get(f"course.fact.{key.replace('/', '_')}", key) + at


def trouble_text(trouble: Trouble, target: str, ranks: int, words: Messages) -> str:
    """Describe an error in a student's code: its line and, for several ranks, the rank."""
    known = f"course.trouble.{trouble.kind}"
    text = words.get_formatted(known, "", message=trouble.message, target=target)
    text = text or f"{trouble.kind}: {trouble.message}"
    if trouble.line:
        text += words("course.line", line=trouble.line, text=trouble.text, file=trouble.file)
    if ranks > 1 and trouble.kind not in (SECONDARY, "missing"):  # the first says so itself
        text += words("course.of_rank", rank=trouble.rank)
    if name := find_explanation(trouble):
        text = words("course.explained_as", error=text, why=words(f"course.explained.{name}"))
    return text


def problem_text(problem: Problem, words: Messages) -> str:
    """Describe a problem found without running the file."""
    text = words(f"course.problem.{problem.kind}", what=problem.what, target=problem.target)
    if problem.line:
        text += words("course.line", line=problem.line, text=problem.text, file="")
    return text


def result_as_json(checked: CheckResult, hints: int, words: Messages) -> JsonObject:
    """Return the result of a check as JSON values, with ``hints`` + 1 parts of `DEPTHS` of each
    mistake; ``met`` is whether the file passed."""
    return {
        "file": checked.path.name,
        "task": checked.file.task,
        "backend": checked.file.backend or None,
        "met": checked.is_passed,
        "problems": [
            {**asdict(problem), "text_for_people": problem_text(problem, words)}
            for problem in checked.problems
        ],
        "requirements": [requirement_as_json(j, hints, words) for j in checked.judgements],
    }


def requirement_as_json(judgement: Judgement, hints: int, words: Messages) -> dict[str, Any]:
    """Return a judgement as JSON values, with ``hints`` + 1 parts of `DEPTHS` of each mistake."""
    name, trouble, difference = (
        judgement.requirement.name,
        judgement.trouble,
        judgement.difference,
    )
    return {
        "name": name,
        "title": words.get(f"requirement.{name}", name),
        "target": judgement.requirement.target,
        "points": judgement.requirement.points,
        "status": judgement.status,
        "ranks": rank_count(judgement),
        "call": None if judgement.call is None else format_call(judgement.call, words),
        "trouble": None if trouble is None else asdict(trouble),
        "difference": None if difference is None else asdict(difference),
        "inputs": dict(judgement.inputs),
        "mistakes": [
            mistake_as_json(m, hints, words, judgement.places, len(judgement.mistakes) > 1)
            for m in judgement.mistakes
        ],
        "relations": relation_texts(judgement.relations, words),
        "bounded": judgement.is_bounded,
    }


def explain_mistake(
    name: str,
    hints: int,
    words: Messages,
    places: Mapping[str, str] = NO_PLACES,
    several: bool = False,
) -> dict[str, str]:
    """Return the first ``hints`` + 1 parts of a mistake's explanation, by `DEPTHS`; its name stands
    for a missing one.

    Args:
        places: mistake → where alone it acts; its symptom is then that the rest is right.
        several: whether there is another mistake, so that the rest is not right.
    """
    mistake = Hypothesis(name, section="mistake")
    parts: dict[str, str] = {d: mistake.words(words.lang, d) or name for d in DEPTHS[: hints + 1]}
    if place := places.get(name, ""):
        where = [condition_text(condition, words) for condition in parse_place(place)]
        key = "course.one_acts_at" if several else "course.acts_at"
        parts["symptom"] = words(key, places=where)
    return parts


def condition_text(condition: Condition, words: Messages) -> str:
    """Describe a condition of a place, as "on rank 0"; updates and calls count from 1."""
    last = "last_" if condition.index == -1 else ""
    index = condition.index + (condition.axis in ("step", "call"))
    kind = "all_but" if condition.elsewhere else "only"
    named = words.get(f"course.{kind}.{condition.axis}_{condition.index}", "")
    return named or words(f"course.{kind}.{last}{condition.axis}", index=index)


def mistake_as_json(
    name: str,
    hints: int,
    words: Messages,
    places: Mapping[str, str] = NO_PLACES,
    several: bool = False,
) -> Mapping[str, str]:
    """Return the first ``hints`` + 1 parts of a mistake's explanation, by `DEPTHS`; its ``name``
    only with all of them, since it reveals the cause."""
    shown = explain_mistake(name, hints, words, places, several)
    # The name itself reveals the cause, so that it is shown only with all hints.
    return {"name": name, **shown} if hints == len(DEPTHS) - 1 else shown
