"""``dualml report`` in a workspace: the student's ``report.md`` as a page, with results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes, write_bytes
from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.exercise import Answer, ExerciseCall, ExerciseFile
from dualml.course.isolation.detect import Isolation
from dualml.course.rendering import MARKS
from dualml.course.sandbox import Sandbox
from dualml.course.source import read_legible
from dualml.course.study import Run, Study, study
from dualml.course.workspace import Workspace
from dualml.report.blocks import (
    Block,
    Bullets,
    Cell,
    Cells,
    Code,
    Column,
    Fold,
    Item,
    MarkdownBlock,
    Notice,
    Page,
    SectionBlock,
    Table,
    Tone,
)
from dualml.report.page.html import render_html

#: The five parts: purpose, principle, code, results, analysis.
CODE, RESULTS, ANALYSIS = "3", "4", "5"
HEADING = re.compile(r"^##\s+((\d).*)$", re.MULTILINE)
TONES: dict[str, Tone] = {"met": "good", "not met": "bad"}
REPORT, PAGE = "report.md", "report.html"


def split_report(text: str) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Split a report into its title, the text below it, and number, heading and text of each part.

    Raises:
        UserError: the headings of the parts that receive results are missing.
    """
    pieces = HEADING.split(text)
    found = list(zip(pieces[2::3], pieces[1::3], pieces[3::3], strict=True))
    missing = {CODE, RESULTS, ANALYSIS} - {number for number, _, _ in found}
    if missing:
        raise UserError(
            f"{REPORT} has no part {' and no part '.join(sorted(missing))}: "
            "keep the headings that begin with ## and their number"
        )
    lines = pieces[0].splitlines()
    titles = [line for line in lines if line.startswith("# ")]
    head = "\n".join(line for line in lines if line not in titles[:1])
    return "".join(titles[:1]).removeprefix("# "), head.strip(), found


def write_paper(
    workspace: Workspace,
    checked: Sequence[CheckResult],
    words: Messages,
    begin: Callable[[str], None] = lambda said: None,
) -> Path:
    """Write the student's ``report.md`` as ``report.html`` in the workspace, with code, verdicts,
    results and questions inserted into its parts, and return its path; the student's files are run
    for the results, without isolation.

    Args:
        begin: function called with a description before each run of a file.

    Raises:
        UserError: ``report.md`` cannot be read, or one of its parts 3 to 5 is missing.
        MachineFault: the machine is at fault, not the student's code.
    """
    source = workspace.path / REPORT
    try:
        text = read_bytes(source, MAX_TEXT_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{source} cannot be read: {error}") from None
    title, head, found = split_report(text)
    made = study(
        workspace.lab.name, runnable_files(checked), make_runner(workspace, words, begin), words
    )
    blocks: list[Block] = [MarkdownBlock(head)] if head else []
    for number, heading, body in found:
        inside: list[Block] = [MarkdownBlock(body)]
        if number == CODE:
            inside += code_blocks(checked)
        elif number == RESULTS:
            inside += [verdict_table(checked, words), *made.blocks]
        elif number == ANALYSIS:
            inside += question_blocks(made, words)
        blocks.append(SectionBlock(f"part-{number}", heading, inside))
    page = workspace.path / PAGE
    write_bytes(
        page, render_html(Page(words.lang, title or workspace.lab.name, "", blocks)).encode()
    )
    return page


def runnable_files(checked: Sequence[CheckResult]) -> list[ExerciseFile]:
    """Return the files that could be run: some requirement was judged, be it as unwritten."""
    return [c.file for c in checked if any(j.status != "not judged" for j in c.judgements)]


def make_runner(workspace: Workspace, words: Messages, begin: Callable[[str], None]) -> Run:
    """Make a function that runs calls on a student's file, for studies: without isolation, since
    the student's own machine runs it, with 60 s a call."""

    def run_calls(file: ExerciseFile, calls: Sequence[ExerciseCall]) -> list[Answer]:
        """Run calls on a student's file and return the answers."""
        begin(words("course.studying", file=file.name))
        # A student's own code on the student's own machine: it may measure the real network.
        real = any(call.options.get("unchecked") for call in calls)
        path, without = workspace.path / file.name, Isolation("none")
        return Sandbox(file, path, 60.0, isolation=without, uses_framework_comm=real).answers(calls)

    return run_calls


def code_blocks(checked: Sequence[CheckResult]) -> list[Block]:
    """Return the student's files that exist as folded blocks of code."""
    return [
        Fold(c.path.name, [Code(read_legible(c.path), c.path.name)])
        for c in checked
        if c.path.is_file()
    ]


def verdict_table(checked: Sequence[CheckResult], words: Messages) -> Table:
    """Make a table with a row per requirement and a column per file."""
    titles: dict[str, str] = {}
    status: dict[tuple[str, str], str] = {}
    for one in checked:
        for judgement in one.judgements:
            name = judgement.requirement.name
            title = words.get(f"requirement.{name}", name)
            titles.setdefault(name, f"{judgement.requirement.target}: {title}")
            status[name, one.path.name] = judgement.status
    heads = [Column("requirement", words("grade.requirement"))]
    heads += [Column(c.path.name, c.path.name, show="code") for c in checked]
    rows: list[Cells] = []
    for name, title in titles.items():
        row: list[Cell | str] = [title]
        for one in checked:
            said = status.get((name, one.path.name))
            shown = "" if said is None else words(f"grade.status_of.{said.replace(' ', '_')}")
            mark = "" if said is None else f"{MARKS[said][0]} "
            row.append(Cell(mark + shown, TONES.get(said or "", "muted")))
        rows.append(row)
    seed = checked[0].seed if checked else 0
    return Table("verdicts", words("study.verdicts", seed=seed), heads, rows)


def question_blocks(made: Study, words: Messages) -> list[Block]:
    """Return the questions of a study as blocks, empty if it has none; the student writes the
    answers."""
    if not made.questions:
        return []
    items = [Item(question) for question in made.questions]
    return [Notice(words("study.questions")), Bullets(items)]
