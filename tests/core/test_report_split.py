"""Split models in the report: the contents of the page, and the arms that a chapter needs."""

from __future__ import annotations

import re
from pathlib import Path

import fake_splits
import pytest
from page_parts import page, sections, tables
from test_report_page import Page, rows

from dualml.common.words import LANGUAGES, Messages
from dualml.report import render
from dualml.report.blocks import Card, Code, Fold, Notice, SectionBlock, VerdictBlock, walk
from dualml.report.draw import draw
from dualml.report.figure import Figure

pytestmark = pytest.mark.whole

CHAPTERS = [
    *("splits", "split_times", "timelines", "bubble", "held", "links", "cuts", "slow_link"),
    "pays",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_splits.make_run(tmp_path_factory.mktemp("splits"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_has_every_chapter(folder: Path, tmp_path: Path, lang: str) -> None:
    html, markdown = (p.read_text("utf-8") for p in render([folder], tmp_path, lang)[:2])
    Page(html)
    assert [name for name in sections(html) if name in CHAPTERS] == CHAPTERS
    for name in re.findall(r'<table id="table-([^"]+)"', html):
        assert rows(html, name), name
    words = Messages(lang)
    for heading in ("splitting", "plans", "orders", "split_serial"):
        assert words(f"topic.{heading}") in html
        assert words(f"topic.{heading}") in markdown
    for figure in re.findall(r'<figure id="figure-([^"]+)"', html):
        assert (tmp_path / "figures" / f"{figure}.svg").is_file()


def test_nothing_is_said_of_aggregation(folder: Path) -> None:
    made = page(folder)
    anchors = {block.name for block in walk(made.blocks) if isinstance(block, SectionBlock | Fold)}
    assert {"split_serial", "splits", "bubble", "slow_link", "pays"} <= anchors
    assert not anchors & {"combining", "strategies", "schedules"}
    assert not anchors & {"training", "bottleneck", "scaling", "modes", "serial"}
    assert "aggregation" not in tables(made)
    verdict = next(block for block in walk(made.blocks) if isinstance(block, VerdictBlock))
    assert "Split model = whole model: 33 of 33 equal." in verdict.text


def test_principle_and_code(folder: Path) -> None:
    folds = {b.name: b for b in walk(page(folder).blocks) if isinstance(b, Fold)}
    assert [c.title for c in folds["splitting"].blocks if isinstance(c, Card)] == [
        *("by layer", "inside the layers", "a mesh of both, or with replicas"),
        *("remote procedure calls", "Schedule: naive", "Schedule: GPipe", "Schedule: 1F1B"),
        "Schedule: interleaved 1F1B",
    ]
    plans = [f for f in folds["plans"].blocks if isinstance(f, Figure)]
    assert [f.name for f in plans] == [
        *("plan-naive", "plan-inter", "plan-inside", "plan-mesh", "plan-rpc")
    ]
    assert "512 KiB, 4 messages" in draw(plans[0])
    assert "all-reduce forward: 1.5 MiB in 3 calls" in draw(plans[2])
    assert "The same plan: gpipe, one-1" in plans[0].caption
    assert [f.name for f in folds["orders"].blocks if isinstance(f, Figure)] == [
        *("grid-naive", "grid-gpipe", "grid-one-4", "grid-inter")
    ]
    code = {
        s.title: list(walk(s.blocks))
        for s in walk(folds["split_code"].blocks)
        if isinstance(s, SectionBlock)
    }
    both = code["Forward and backward of a segment in each framework"]
    assert [x.who for x in both if isinstance(x, Code)] == ["torch", "mindspore"]
    assert not any(isinstance(x, Notice) for listings in code.values() for x in listings)


ALWAYS = ["split_times", "timelines", "held", "links"]
SUBSETS = {
    "deep,inside": ["splits", *ALWAYS, "pays"],
    "inside": ALWAYS,
    "deep,one-4": ["splits", *ALWAYS, "bubble", "pays"],
    "one-1,one-8": [*ALWAYS, "bubble"],
    "cut-2,one-4": [*ALWAYS, "bubble", "cuts"],
    "slow-inside": ALWAYS,
    "slow-inside,inside": [*ALWAYS, "slow_link"],
    "slow-piped,inside": [*ALWAYS, "bubble"],
    "deep": [],
}


@pytest.mark.parametrize("chosen", SUBSETS)
def test_a_chapter_needs_its_arms(tmp_path: Path, chosen: str) -> None:
    folder = fake_splits.make_run(tmp_path, arms=chosen.split(","), backends=["torch"])
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    found = [c for c in sections(text) if c in CHAPTERS]
    assert found == [c for c in CHAPTERS if c in SUBSETS[chosen]]
    figures = re.findall('<figure id="figure-([^"]+)"', text)
    assert ("bubble" in figures) == (chosen == "one-1,one-8")
