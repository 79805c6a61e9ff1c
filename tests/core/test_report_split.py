"""Split models in the report: what is on the page, and which arms a chapter needs."""

from __future__ import annotations

import re
from pathlib import Path

import fake_splits
import pytest
from report_splits import document
from test_report_page import Page, rows

from dualml.report import render
from dualml.report.words import LANGUAGES, Words

CHAPTERS = ["splits", "timelines", "bubble", "held", "links", "cuts", "slow_link", "pays"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_splits.make(tmp_path_factory.mktemp("splits"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_has_every_chapter(folder: Path, tmp_path: Path, lang: str) -> None:
    html, markdown = (p.read_text("utf-8") for p in render([folder], tmp_path, lang)[:2])
    Page(html)
    assert re.findall('id="chapter-([^"]+)"', html) == CHAPTERS
    for name in re.findall(r'<table id="table-([^"]+)"', html):
        assert rows(html, name), name
    words = Words(lang)
    for heading in ("splitting", "plans", "orders", "serial_split"):
        assert words(f"page.{heading}") in html
        assert words(f"page.{heading}") in markdown
    for figure in re.findall(r'<figure id="figure-([^"]+)"', html):
        assert (tmp_path / "figures" / f"{figure}.svg").is_file()


def test_nothing_is_said_of_aggregation(folder: Path) -> None:
    made = document(folder)
    assert not made.combining
    assert not made.strategies
    assert not made.schedules
    assert made.vector == ""
    assert "aggregation" not in {t.name for t in made.settings}
    assert made.serial_title == "Split against whole"
    topics = {t.name for t in made.topics}
    assert {"split_serial", "splits", "pipeline", "slow_link", "pays"} <= topics
    assert not topics & {"training", "bottleneck", "scaling", "modes", "serial"}
    assert "Split model = whole model: 33 of 33 equal." in made.headline


def test_principle_and_code(folder: Path) -> None:
    made = document(folder)
    assert [c.name for c in made.splitting] == [
        *("by layer", "inside the layers", "a mesh of both, or with replicas"),
        *("remote procedure calls", "Schedule: naive", "Schedule: GPipe", "Schedule: 1F1B"),
        "Schedule: interleaved 1F1B",
    ]
    assert [f.name for f in made.plans] == [
        *("plan-naive", "plan-inter", "plan-inside", "plan-mesh", "plan-rpc")
    ]
    assert "512 KiB, 4 messages" in made.plans[0].svg
    assert "all-reduce forward: 1.5 MiB in 3 calls" in made.plans[2].svg
    assert "The same plan: gpipe, one-1" in made.plans[0].caption
    assert [f.name for f in made.orders] == [
        *("grid-naive", "grid-gpipe", "grid-one-4", "grid-inter")
    ]
    code = {part.title: part.listings for part in made.code}
    both = code["Forward and backward of a segment in each framework"]
    assert [x.framework for x in both] == ["torch", "mindspore"]
    assert all(
        x.text for t, listings in code.items() for x in listings if t[0].isupper()
    )  # every excerpt is found


ALWAYS = ["splits", "timelines", "held", "links"]
SUBSETS = {
    "deep,inside": [*ALWAYS, "pays"],
    "inside": ALWAYS,
    "deep,one-4": [*ALWAYS, "bubble", "pays"],
    "one-1,one-8": [*ALWAYS, "bubble"],
    "cut-2,one-4": [*ALWAYS, "bubble", "cuts"],
    "slow-inside": ALWAYS,
    "slow-inside,inside": [*ALWAYS, "slow_link"],
    "slow-piped,inside": [*ALWAYS, "bubble"],
    "deep": [],
}


@pytest.mark.parametrize("chosen", SUBSETS)
def test_a_chapter_needs_its_arms(tmp_path: Path, chosen: str) -> None:
    folder = fake_splits.make(tmp_path, arms=chosen.split(","), backends=["torch"])
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    found = [c for c in re.findall('id="chapter-([^"]+)"', text) if c in CHAPTERS]
    assert found == [c for c in CHAPTERS if c in SUBSETS[chosen]]
    figures = re.findall('<figure id="figure-([^"]+)"', text)
    assert ("bubble" in figures) == (chosen == "one-1,one-8")
