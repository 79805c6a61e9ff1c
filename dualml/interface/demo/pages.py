"""The live page on recorded runs: its first page shows how each was recorded, and the port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.manifest import read_run
from dualml.experiment.store.report import report_path
from dualml.interface.demo.recordings import LABS, REPORT, RecordingFacts, read_facts, read_port
from dualml.interface.serve import tables
from dualml.interface.serve.pages import Pages, Query, language_links, query_value
from dualml.interface.serve.shell import LiveBlock, PageSection, make_live, render_page
from dualml.report.blocks import Cell, Code, Fold, Prose
from dualml.report.columns import Columns, make_table
from dualml.report.page.html import tag

#: First character of a line of a unified diff → class of its colour.
DIFF_CLASSES = {"+": "good", "-": "bad"}


class DemoPages(Pages):
    """The pages about the recorded runs in ``root``, as `recordings.unpack_runs` left them."""

    def home_page(self, words: Messages) -> str:
        """Render the page with the recorded comparison and the recorded labs."""
        return render_page(
            words,
            words("demo.title"),
            words("demo.about"),
            [self.port_section(words), self.labs_section(words)],
            languages=language_links("/", {}),
            home=True,
            is_running=False,
        )

    def port_section(self, words: Messages) -> PageSection:
        """Make the section with the recorded comparison: what the command printed, the patch, the
        two files and how to repeat it."""
        port = read_port()
        sources = [Code(text, name) for name, text in sorted(port.sources.items(), reverse=True)]
        content: list[Markup | LiveBlock] = [
            make_live(Prose(words("demo.port.question"))),
            tag("pre", f"$ {port.facts.command}\n\n{port.answers[words.lang]}", tabindex="0"),
            make_live(Prose(words("demo.port.patch"))),
            tag("pre", *color_diff(port.patch), tabindex="0"),
            make_live(
                Fold(words("demo.port.sources"), sources, "port-sources"),
                Prose(words("demo.port.repeat"), small=True),
                Prose(recorded_on(port.facts, words), small=True),
            ),
        ]
        return PageSection("port", words("demo.port.title"), content)

    def labs_section(self, words: Messages) -> PageSection:
        """Make the section with a row per recorded lab: its title, the links to its report and, if
        its run was kept, to its live page, its date, and the command to repeat it."""
        facts = {name: read_facts(name) for name in LABS}

        def cells(name: str) -> Sequence[Cell | str]:
            return [
                words(f"demo.lab.{name}"),
                Cell(words("demo.open"), href=tables.page_url("report", run=name)),
                self.live_link(name),
                facts[name].date,
                Cell(tag("code", facts[name].command)),
            ]

        read: Columns[str] = {("lab", "report", "live", "date", "command"): cells}
        table = make_table(words, "labs", LABS, read, words("demo.labs"), "demo.column.{}")
        notes = dict.fromkeys(recorded_on(each, words) for each in facts.values())
        made = [Prose(text, small=True) for text in notes]
        content = [make_live(Prose(words("demo.labs_about")), table, *made)]
        return PageSection("labs", words("demo.labs"), content)

    def live_link(self, name: str) -> Cell:
        """Return the cell with the link to the live page of a run, named by the date of the run;
        an empty one if only the report was recorded."""
        if name not in self.run_paths():
            return Cell("")
        return Cell(read_run(self.root / name).created[:10], href=tables.page_url(run=name))

    def report_file(self, query: Query, lang: str = "en") -> Path:
        """Return the path of a recorded report in a language; raise `UserError` for an unknown
        run."""
        name = query_value(query, "run")
        if name not in LABS:
            raise UserError(f"there is no recording {name}")
        return report_path(self.root / name).with_name(REPORT.format(lang=lang))


def recorded_on(facts: RecordingFacts, words: Messages) -> str:
    """Return a sentence that says when, on which machine and with which versions a recording was
    made."""
    return words("demo.recorded", date=facts.date, machine=facts.machine, versions=facts.versions)


def color_diff(diff: str) -> list[Markup]:
    """Return the lines of a unified diff as HTML, added and removed ones in their colours."""
    return [
        tag("span", f"{line}\n", class_=DIFF_CLASSES.get(line[:1], ""))
        for line in diff.splitlines()
    ]
