"""Update variants and larger batches: the report's numbers and pages."""

from __future__ import annotations

import re
from pathlib import Path

import fake_nodes
import fake_ranks
import pytest
from page_parts import (
    evidence,
    evidence_figures,
    evidence_tables,
    findings_by_key,
    numbers,
    page,
    sentences,
)
from report_nodes import EN, TOPICS, notes, page_of, row, run_of, table
from test_report_page import Page, rows

from dualml.common.words import LANGUAGES
from dualml.experiment.store.load import load
from dualml.report import render
from dualml.report.blocks import Card, Prose
from dualml.report.topics.batch import OTHER_RATE, SAME_RATE, SCALED_RATE, WARMUP_RATE, batches
from dualml.report.topics.modes import pairs, signed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nodes.make_run(tmp_path_factory.mktemp("nodes"))


@pytest.fixture(scope="module")
def report_sentences(folder: Path) -> dict[str, list[str]]:
    return findings_by_key(folder)


@pytest.fixture(scope="module", params=LANGUAGES)
def pages(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, str]:
    return page_of(folder, tmp_path_factory.mktemp(request.param), request.param)


# --- other ways -----------------------------------------------------------------------------------


def test_ways_are_held_against_the_plain_one(folder: Path) -> None:
    assert [(p.way, p.arm, p.other) for p in pairs(run_of(folder))] == [
        ("native", "native", "nodes-n2"),
        ("overlap", "overlap", "nodes-n2"),
        ("replicas", "replicas", "nodes-n2"),
        ("accumulate", "accumulate", "nodes-n2"),
    ]
    line = row(folder, "modes", "native", "torch")
    # 5 ms of 7.14, 6.25 and 5.56
    assert line[3:8] == ["2", "nodes-n2", "5", "6.32", "0.8"]
    assert line[-1] == "25.0 / 25.0"
    assert row(folder, "modes", "accumulate", "torch")[7] == "2"
    made = table(folder, "modes")
    assert notes(made, "native", "torch")[2] == "DistributedDataParallel"
    assert notes(made, "overlap", "torch")[2] == "buckets of 64 KiB"
    lost = table(folder, "modes-missing")
    assert [c.text for c in next(lost.cells)] == [
        "replicas",
        "torch, mindspore",
        "one process, several devices",
        "unsupported",
        fake_nodes.WHY,
    ]
    assert (signed(0.0123), signed(-2e-4), signed(1e-9)) == ("+0.012", "−2.0×10⁻⁴", "0")


def test_sentences_of_the_ways(report_sentences: dict[str, list[str]]) -> None:
    assert report_sentences["modes.alike"][0].startswith(
        "native (the framework's own) on torch: 5 ms per update against 6.32 ms with nodes-n2; the "
        "interval of the ratio 0.8 (0.552 – 1.05) holds 1"
    )
    assert "12.5 ms per update against 6.32 ms with nodes-n2, 2 times as long" in " ".join(
        report_sentences["modes.held"]
    )
    assert report_sentences["modes.unsupported"] == [
        f"replicas (one process, several devices): unsupported on torch and mindspore "
        f"({fake_nodes.WHY})."
    ]


# --- larger batches -------------------------------------------------------------------------------


def test_batches(folder: Path) -> None:
    (found,) = batches(run_of(folder))
    assert found.base.name == "batch-12"
    assert [(a.name, a.kind) for a in found.arms] == [
        ("batch-48", SAME_RATE),
        ("batch-48-scaled", SCALED_RATE),
        ("batch-240", SAME_RATE),
        ("batch-240-warm-up", WARMUP_RATE),
    ]
    assert OTHER_RATE not in found.by_kind()
    line = row(folder, "batch", "batch-240-warm-up", "torch")
    assert line[2:7] == ["240", "1", "in proportion, ×\u00a020", "5", "15"]
    assert row(folder, "batch", "batch-48", "mindspore")[4] == "same"
    (card,) = (b for b in evidence(run_of(folder), "batch", EN) if isinstance(b, Card))
    texts = [b.text for b in card.blocks if isinstance(b, Prose)]
    assert "Arms: batch-48-scaled, batch-240-warm-up" in texts


def test_sentences_of_batches(report_sentences: dict[str, list[str]], tmp_path: Path) -> None:
    assert report_sentences["batch.cost"][0].startswith(
        "torch: with the same step (learning rate 0.05), a batch of 48 instead of 12 makes 75 "
        "updates instead of 300 in as many epochs; test accuracy changes by −5.00 percentage "
        "points (95 % interval −5.43 – −4.57), the final loss from"
    )
    assert "may be chance" in report_sentences["batch.cost_open"][0]
    assert report_sentences["batch.recovered"][0] == (
        "torch: a step in proportion (learning rate 0.2) makes up for a batch of 48 instead of 12: "
        "test accuracies are equal within 1 percentage point (0.00; 90 % interval −0.17 to +0.17, "
        "two one-sided t-tests over 3 seeds; batch-48-scaled)."
    )
    assert (
        "and a warm-up of 5 updates a batch of 240 stays more than 1"
        in report_sentences["batch.lost"][0]
    )
    two = fake_nodes.make_run(tmp_path, arms=list(fake_nodes.BATCHES), seeds=(0, 2))
    assert "2 seeds are too few for a test" in findings_by_key(two)["batch.untested"][0]
    assert "(two seeds: " in findings_by_key(two)["batch.cost"][0]


# --- pages ----------------------------------------------------------------------------------------


def test_both_languages_say_the_same(folder: Path) -> None:
    en, zh = (sentences(page(folder, lang)) for lang in LANGUAGES)
    assert list(en) == list(zh)
    for key, texts in en.items():
        assert [numbers(x) for x in texts] == [numbers(y) for y in zh[key]], texts


def test_the_page(pages: tuple[str, str, str]) -> None:
    _, text, markdown = pages
    page = Page(text)
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    for name in ("speed-up", "update-parts", "large-batch"):
        assert f"figure-{name}" in ids
        assert f"](figures/{name}.svg)" in markdown
    for name in ("speed-up", "scaling", "modes", "modes-missing", "batch"):
        assert rows(text, name)
    assert r"\frac{T_1}{u + \frac{T_1 - u}{n}}" in markdown
    assert "Goyal et al. 2017" in text
    assert "Amdahl 1967" in text


def test_other_runs_have_none_of_it(tmp_path: Path) -> None:
    run = load([fake_ranks.make_run(tmp_path, costs=False)])
    for topic in {*TOPICS.values()}:
        assert evidence_tables(run, topic, EN) == {}
        assert evidence_figures(run, topic, EN) == []
    assert not [k for k in findings_by_key(tmp_path) if k.startswith(("scaling", "modes", "batch"))]


@pytest.mark.parametrize(
    "arms",
    [
        ["one-node"],
        ["nodes-n4"],
        ["one-node", "nodes-n4"],
        ["native"],
        ["replicas", "shared"],
        ["batch-48", "batch-240"],
    ],
    ids=",".join,
)
def test_any_subset_makes_a_page(tmp_path: Path, arms: list[str]) -> None:
    folder = fake_nodes.make_run(tmp_path, arms=arms, backends=["torch"], seeds=[0])
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name
