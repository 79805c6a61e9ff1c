"""Sections of the report as data: a new one is short, and its parts reach the page."""

from __future__ import annotations

from pathlib import Path

import fake_run
import pytest
import section_of_trials

from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Table
from dualml.report.columns import Columns, tabulate
from dualml.report.draw import draw
from dualml.report.draw.palette import COLORS, SERIES
from dualml.report.figure import Figure
from dualml.report.topics import topics

MAX_LINES = 60
#: Messages of the section, as its files in both languages would have them.
TEXTS = {
    "table.trial_count": "T",
    "figure.trial_count": "F",
    "alt.trial_count": "{n}",
    "axis.trials": "trials",
    "column.trials": "trials",
    "say.trial_count.total": "{n} / {arms:join}",
    "say.trial_count.fewest": "{result.arm} {n}",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load([fake_run.make_run(tmp_path_factory.mktemp("run"))])


def make_words(lang: str) -> Messages:
    words = Messages(lang)
    words.table = {**words.table, **TEXTS}
    return words


def test_a_section_is_short() -> None:
    source = Path(section_of_trials.__file__).read_text("utf-8")
    assert len(source.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_section_has_a_table_a_figure_and_findings(run: RunData, lang: str) -> None:
    words, topic = make_words(lang), section_of_trials.TOPIC
    figure, table = topic.evidence(run, words)
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    assert draw(figure).startswith("<svg")
    assert len(figure.panels) == len(run.backends)
    # no trial of this run has a perplexity
    assert [c.key for c in table.columns] == ["arm", "backend", "trials", "step"]
    assert [[c.text for c in row][:3] for row in table.cells][2] == ["gd", "mindspore", "1"]
    total, fewest = topic.findings(run, words)
    assert (total.key, fewest.text) == ("trial_count.total", "gd 1")
    assert {total.target, fewest.target} == {"table-trial_count"}


def test_a_column_without_values_is_left_out() -> None:
    words = Messages("en")
    read: Columns[int] = {"rank": str, "`a`?": lambda n: None, ("b?", "c?"): lambda n: ("–", n > 1)}
    assert not list(tabulate(words, "x", [], read))
    words.table = {**words.table, "table.x": "x"}
    for records, keys in (([1], ["rank"]), ([1, 2], ["rank", "c"])):
        (table,) = tabulate(words, "x", records, read)
        assert [column.key for column in table.columns] == keys


def test_the_palette_knows_every_colour_of_a_series() -> None:
    assert all(color in COLORS for looks in SERIES.values() for color in looks.values())


def test_names_of_sections_are_unique() -> None:
    names = [topic.name for topic in topics()]
    assert len(names) == len({*names})
