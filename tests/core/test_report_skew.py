"""Partitions in the report: label skew, epochs that end earlier, and the complete page."""

from __future__ import annotations

from pathlib import Path

import fake_partitions
import pytest
from page_parts import numbers, page, sentences
from report_partitions import EN, MINE, TOPICS, ZH, anchors, table, unbroken, unbroken_findings
from test_report_page import Page, rows

from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report import render
from dualml.report.blocks import Code, SectionBlock, walk
from dualml.report.epoch_ends import uneven_epochs
from dualml.report.topics import key_code
from dualml.report.topics.skew import correlation, emd, skewed_arms

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_partitions.make_run(tmp_path_factory.mktemp("deals"))


@pytest.fixture(scope="module")
def run(folder: Path) -> RunData:
    return load([folder])


@pytest.fixture(scope="module")
def report_sentences(folder: Path) -> dict[str, list[str]]:
    return unbroken_findings(folder)


# --- skew -----------------------------------------------------------------------------------------


def test_skew_in_numbers(run: RunData) -> None:
    assert [emd(run, a) for a in ("skew-half", "skew-partly")] == pytest.approx([0.5, 0.4])
    assert skewed_arms(run)[:3] == ["skew-none", "skew-noise", "skew-partly"]
    assert set(skewed_arms(run)) == {
        name for name in fake_partitions.ARMS if name.startswith("skew")
    }
    line = next(r for r in table(run, "skew").cells if r[0].text == "skew-half-16")
    assert [unbroken(cell.text) for cell in line[2:]] == [
        "parameters, every 16",
        "torch",
        "0.500",
        "51.00 ± 2.48",
        "21.0",
        "0.4",
        "4",
    ]
    assert line[6].note == "class 7"
    gradients = next(r for r in table(run, "skew", ZH).cells if r[0].text == "skew-half-gradients")
    assert [cell.text for cell in gradients[2:]] == [
        "梯度",
        "torch",
        "0.500",
        "90.00 ± 0.00",
        "80.0",
        "–",
        "–",
    ]


def test_skew_in_sentences(report_sentences: dict[str, list[str]], folder: Path) -> None:
    assert "skew-half (EMD 0.500): divergence 0.2, 71.0 %" in report_sentences["skew.order"][0]
    assert report_sentences["skew.order"][0].index("skew-partly") < report_sentences["skew.order"][
        0
    ].index("skew-half")
    assert (
        "over 3 arms" in report_sentences["skew.correlation"][0]
    )  # features are no matter of labels
    assert "by divergence at ρ = 1.00 and" in report_sentences["skew.correlation"][0]
    assert "by test accuracy at ρ = −1.00 " in report_sentences["skew.correlation"][0]
    assert report_sentences["skew.every"][0] == (
        "skew-half-16 on torch and mindspore: an average every 16 updates instead of every 4 "
        "(skew-half): mean divergence 0.4 against 0.2, test accuracy −20.00 points "
        "(−20.00 … −20.00)."
    )
    assert report_sentences["skew.gradients"][0] == (
        "skew-half-gradients on torch and mindspore: gradients at every update instead of "
        "parameters every 4 (skew-half): test accuracy +19.00 points (+17.31 … +20.69), "
        "worst class 80.0 % against 46.0 %."
    )
    assert report_sentences["skew.worst"][0] == (
        "torch and mindspore: the class recognised worst of all is class 7 of skew-half-16, "
        "21.0 %; the worst of skew-none is class 0, 91.0 %."
    )
    assert "3 seeds, with 90 % intervals" in report_sentences["skew.gaps"][0]
    assert "skew-half −20.00 points (−20.00 … −20.00)" in report_sentences["skew.gaps"][0]
    assert "mean divergence 0.05 against 0.01 of skew-none" in report_sentences["skew.features"][0]
    assert len(report_sentences["skew.order"]) == 1  # the same on both backends
    zh = unbroken_findings(folder, "zh")
    assert "偏离度 0.4 对 0.2，测试准确率相差 −20.00 个百分点" in zh["skew.every"][0]


def test_epochs_that_end_earlier(
    run: RunData, report_sentences: dict[str, list[str]], folder: Path
) -> None:
    found = uneven_epochs(run)
    assert [u.arms for u in found] == [["fractions"]]
    # Six samples of each rank in an update: 900 and 300 samples.
    u = found[0]
    assert (u.ends, u.updates, u.first, u.last) == ([150, 50], 150, 1, 6)
    assert report_sentences["skew.uneven"][0] == (
        "fractions, seed 0: the ranks have samples in 150 · 50 of the 150 updates of an epoch; "
        "rank 1 is through after update 50, the others go on, and the last update has 6 of 12 "
        "samples. "
        "Every one of 1,200 samples is seen exactly once."
    )
    assert "1,200 个样本都恰好见到一次" in unbroken_findings(folder, "zh")["skew.uneven"][0]
    told = [unbroken(c.text) for c in next(table(run, "uneven").cells)]
    assert told == [
        "fractions (0.75, 0.25)",
        "900 · 300",
        "2 × 6",
        "150 · 50",
        "150",
        "50",
        "6",
        "✓ 1,200 of 1,200",
    ]


def test_backends_that_differ_are_told_apart(tmp_path: Path) -> None:
    def worse(run: dict) -> None:
        for trial in run["trials"]:
            if (trial["arm"], trial["backend"]) == ("skew-half", "mindspore"):
                trial["test_accuracy"] -= 0.1

    folder = fake_partitions.make_run(
        tmp_path, arms=["skew-none", "skew-half"], seeds=[0], change=worse
    )
    assert unbroken_findings(folder)["skew.gaps_few"] == [
        f"{backend}: test accuracy minus that of skew-none, 1 seed and so without intervals: "
        f"skew-half −{points} points."
        for backend, points in (("torch", "20.00"), ("mindspore", "30.00"))
    ]
    assert "（1 个随机种子，因此没有区间）" in unbroken_findings(folder, "zh")["skew.gaps_few"][0]


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_page(tmp_path: Path, lang: str) -> None:
    arms = [
        "part",
        "part-one",
        "sample",
        "skew-none",
        "skew-half",
        "skew-half-gradients",
        "fractions",
    ]
    folder = fake_partitions.make_run(tmp_path, arms=arms, parity=False)
    text, markdown = (p.read_text("utf-8") for p in render([folder], tmp_path, lang)[:2])
    Page(text)
    assert [c for c in anchors(text) if c in MINE] == list(MINE)
    for name in ("partitions", "sampling", "sampling-gaps", "skew-classes", "divergence"):
        assert text.count(f'id="figure-{name}"') == 1
        assert f"](figures/{name}.svg)" in markdown
    assert 'id="figure-ranks-sampling"' not in text  # its curves are in the chapter
    assert 'id="figure-ranks-skew"' in text
    for name in TOPICS:
        assert rows(text, name)
    for file in (
        "partition/random_partition.py",
        "partition/label_classes.py",
        "aggregation/local_sgd.py",
    ):
        assert file in text
    assert Messages(lang)("group.sampling") in text


def test_both_languages_say_the_same(folder: Path) -> None:
    en, zh = (sentences(page(folder, lang)) for lang in LANGUAGES)
    assert list(en) == list(zh)
    for key, texts in en.items():
        for x, y in zip(texts, zh[key], strict=True):
            assert sorted(numbers(x)) == sorted(numbers(y)), (x, y)


def test_correlation_of_ranks() -> None:
    assert correlation([3.0, 1.0, 3.0, 2.0], [30.0, 10.0, 30.0, 20.0]) == pytest.approx(1)
    # ties share their places: 3.5, 1, 3.5, 2 against 4, 1, 3, 2
    assert correlation([3.0, 1.0, 3.0, 2.0], [5.0, 1.0, 4.0, 2.0]) == pytest.approx(0.948683)
    assert correlation([0.1, None, 0.3], [1.0, 2.0, 3.0]) is None
    assert correlation([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]) is None


def test_code_of_the_rules(run: RunData, tmp_path: Path) -> None:
    listings = {
        b.title: [x for x in walk([b]) if isinstance(x, Code)]
        for b in key_code.rank_code(run, EN)
        if isinstance(b, SectionBlock)
    }
    dealing = listings["Partitioning the samples over the ranks"]
    assert [x.who for x in dealing] == ["random_partition", "random_sampling", "label_classes"]
    assert "draw.permutation(" in dealing[0].text
    assert "def average" in listings["Averaging the parameters of the ranks"][0].text
    alone = fake_partitions.make_run(tmp_path, arms=["part"], backends=["torch"], seeds=[0])
    assert "Averaging the parameters of the ranks" not in [
        b.title for b in key_code.rank_code(load([alone]), EN) if isinstance(b, SectionBlock)
    ]
