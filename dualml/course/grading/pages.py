"""HTML pages of grading: one for each student, one for the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dualml.common.files import write_text
from dualml.common.words import Messages
from dualml.course.grading.results import SubmissionResult, iter_entries
from dualml.course.grading.similarity import SimilarPair
from dualml.course.grading.tables import (
    CELL,
    Results,
    findings_of,
    notes,
    numbers_of,
    partial_credit_text,
    state_of,
    trouble_of,
    unnamed_key,
)
from dualml.course.rendering import depth_label, find_mixed
from dualml.parity.hypothesis import DEPTHS
from dualml.report.blocks import (
    Block,
    Bullets,
    Card,
    Cell,
    Code,
    Fold,
    Item,
    Notice,
    Page,
    Prose,
    RowBlock,
    SectionBlock,
    Table,
    Tone,
    VerdictBlock,
)
from dualml.report.columns import Columns, make_table
from dualml.report.figure import Axis, Bar, Figure, Panel, SeriesId
from dualml.report.page.html import render_html

#: Labels of the columns of all tables.
LABELS = "grade.{}"
TONES: Mapping[str, Tone] = {
    "met": "good",
    "not met": "bad",
    "unwritten": "near",
    "not judged": "muted",
}


def write_student(result: SubmissionResult, path: Path, words: Messages) -> None:
    """Write the page for a student: points and each file; of a refused or ungraded submission only
    points and reason."""
    blocks: list[Block] = []
    if result["points"] is not None:
        points = words("grade.points", points=result["points"], most=result["most"])
        blocks.append(VerdictBlock(points, "good" if result["points"] == result["most"] else ""))
    if result.get("isolation") == "none":
        blocks.append(Notice(words("grade.unisolated")))
    if said := state_of(result, words):
        blocks.append(Notice(said))
    else:
        for file in result["files"]:
            blocks.append(SectionBlock(file["task"], file["file"], list(file_blocks(file, words))))
    write_text(path, render_html(page_of(result, blocks, words)))


def page_of(result: SubmissionResult, blocks: Sequence[Block], words: Messages) -> Page:
    """Make a student's page with these blocks and a title of student and lab."""
    title = words("grade.student", student=result["student"], lab=result["lab"])
    return Page(words.lang, title, "", blocks)


def file_blocks(file: Mapping[str, Any], words: Messages) -> Iterator[Block]:
    """Yield the blocks about one file: its problems, the points taken off, a table of its
    requirements, and a card for each one that is not met."""
    yield from (Notice(problem["text_for_people"]) for problem in file["problems"])
    if file["taken"]:
        yield Notice(words("grade.taken", points=file["taken"]))
    read: Columns[Mapping[str, Any]] = {
        ("requirement", "`for`"): lambda e: (e["title"], e["target"]),
        "status": lambda e: Cell(
            words(f"grade.status_of.{e['status'].replace(' ', '_')}"), TONES[e["status"]]
        ),
        "points_head:": lambda e: f"{e['points']:g} / {e['most']:g}",
    }
    yield make_table(words, file["task"], file["requirements"], read, labels=LABELS)
    told: dict[str, str] = {}
    wrong = [entry for entry in file["requirements"] if entry["status"] == "not met"]
    mixed = find_mixed((entry["target"], reasons_of(entry)) for entry in wrong)
    for entry in wrong:
        blocks = explanation_blocks(entry, words, told, entry["target"] in mixed)
        yield Card(entry["title"], list(blocks))


def reasons_of(entry: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an unmet requirement: typical mistakes, or one text for its error
    or for an unnamed mistake."""
    names = [mistake["name"] for mistake in entry["mistakes"]]
    return names or [str(entry["trouble"] and entry["trouble"]["message"])]


def explanation_blocks(
    entry: Mapping[str, Any], words: Messages, told: dict[str, str], is_mixed: bool = False
) -> Iterator[Block]:
    """Yield the blocks of an unmet requirement: the call, its error or the differing numbers, and
    the mistakes.

    Args:
        told: mistake → title of the requirement with its explanation, extended in place; a mistake
            in it is not explained again, but refers to that title.
        is_mixed: whether more than one thing is wrong in the class or function.
    """
    if entry["call"]:
        yield Prose(f"`{entry['call']}`", small=True)
    if entry["trouble"]:
        yield Prose(trouble_of(entry, words))
    if entry["difference"]:
        yield Prose(numbers_of(entry, words))
        unnamed = unnamed_key(entry)
        if unnamed and unnamed in told:
            yield Prose(words("course.unknown_again", names=[told[unnamed]]), small=True)
        else:
            yield from (Prose(text, small=True) for text in findings_of(entry, words))
        told.setdefault(unnamed, entry["title"])
    for mistake in entry["mistakes"]:
        if mistake["name"] in told:
            yield Prose(words("course.same", names=[told[mistake["name"]]]), small=True)
            continue
        told[mistake["name"]] = entry["title"]
        labels = {d: depth_label(d, is_mixed, words) for d in DEPTHS}
        yield Bullets([Item(f"{labels[d]} {mistake[d]}") for d in DEPTHS])
    if said := partial_credit_text(entry, words):
        yield Prose(said, small=True)


def write_overview(
    results: Results, alike: Sequence[SimilarPair], path: Path, lab: str, words: Messages
) -> None:
    """Write the overview of the class: points, met requirements, frequent mistakes, similar
    submissions."""
    bare = any(result.get("isolation") == "none" for result in results.values())
    blocks: list[Block] = [
        *([Notice(words("grade.unisolated"))] if bare else []),
        SectionBlock("points", words("grade.overview.points"), list(points_blocks(results, words))),
        SectionBlock(
            "requirements",
            words("grade.overview.requirements"),
            [requirement_table(results, words)],
        ),
        SectionBlock("mistakes", words("grade.overview.mistakes"), [mistake_table(results, words)]),
        SectionBlock(
            "alike", words("grade.overview.alike"), list(pair_blocks(results, alike, words))
        ),
    ]
    title = words("grade.overview.title", lab=lab, n=len(results))
    write_text(path, render_html(Page(words.lang, title, "", blocks)))


def points_blocks(results: Results, words: Messages) -> Iterator[Block]:
    """Yield a histogram of the points of graded submissions, and a table of all students'
    points."""
    graded = [(p, r["most"]) for r in results.values() if (p := r["points"]) is not None]
    shares = [points / most if most else 0.0 for points, most in graded]
    tenths = Counter(min(9, int(share * 10)) for share in shares)
    bars = [Bar(t, tenths[t], SeriesId(), text=str(tenths[t])) for t in range(10)]
    names = [f"{10 * t} – {10 * t + 10} %" for t in range(10)]
    x, y = Axis(words("grade.students"), low=0, integer_ticks=True), Axis(names=names, grid=False)
    caption = words("grade.overview.points_caption")
    yield Figure("points", caption, caption, [Panel(bars, x, y, height=230)], width=620)

    def cells(row: tuple[str, SubmissionResult]) -> Iterator[Cell | str]:
        student, r = row
        yield Cell(student, href=f"students/{quote(r['folder'])}/index.html")
        yield "" if r["points"] is None else f"{r['points']:g} / {r['most']:g}"
        yield " ".join(notes(r, words))[:CELL]

    read: Columns[Any] = {("student_head", "points_head:", "note"): cells}
    students = make_table(words, "students", results.items(), read, labels=LABELS)
    yield Fold(words("grade.overview.everybody"), [students])


def requirement_table(results: Results, words: Messages) -> Table:
    """Make a table of how many of the graded students met each requirement."""
    counts: Counter[tuple[str, str]] = Counter()
    titles: dict[tuple[str, str], tuple[str, str]] = {}
    for result in results.values():
        for file, entry in iter_entries(result):
            counts[file, entry["name"]] += entry["status"] == "met"
            titles[file, entry["name"]] = entry["title"], entry["target"]
    graded = sum(r["points"] is not None for r in results.values())
    read: Columns[tuple[str, str]] = {
        ("requirement", "`for`"): lambda key: titles[key],
        "`file`": lambda key: key[0],
        "met_by:": lambda key: f"{counts[key]} / {graded}",
    }
    return make_table(words, "requirements", counts, read, labels=LABELS)


def mistake_table(results: Results, words: Messages) -> Table:
    """Make a table of the mistakes by number of students, the most frequent first."""
    who: dict[str, set[str]] = {}
    for student, result in results.items():
        for _, entry in iter_entries(result):
            for mistake in entry["mistakes"]:
                who.setdefault(mistake["name"], set()).add(student)
    read: Columns[str] = {
        "`mistake`": str,
        "students:": lambda name: str(len(who[name])),
        "cause": lambda name: words.get(f"mistake.{name}.cause", ""),
    }
    most_frequent = sorted(who, key=lambda name: (-len(who[name]), name))
    return make_table(words, "mistakes", most_frequent, read, labels=LABELS)


def pair_blocks(results: Results, alike: Sequence[SimilarPair], words: Messages) -> Iterator[Block]:
    """Yield similar pairs side by side, with a caveat first."""
    yield Notice(words("grade.alike.caveat"))
    if not alike:
        yield Prose(words("grade.alike.none"))
    for pair in alike:
        listings = [
            Code(mark_lines(results[s]["sources"].get(pair.file, ""), lines), f"{s}: {pair.file}")
            for s, lines in zip((pair.a, pair.b), pair.lines, strict=True)
        ]
        head = words(
            "grade.alike.pair",
            a=pair.a,
            b=pair.b,
            file=pair.file,
            names=pair.names,
            share=pair.share,
        )
        yield Fold(head, [RowBlock(listings)])


def mark_lines(source: str, lines: frozenset[int]) -> str:
    """Return the source with a bar before the ``lines`` (numbers from 1) and spaces before the
    others; form feeds become spaces."""
    numbered = enumerate(source.replace("\f", " ").split("\n"), 1)
    return "\n".join(("┃ " if n in lines else "  ") + line for n, line in numbered)
