"""Partitions in the report: what was assigned, and sampling against partitioning."""

from __future__ import annotations

import re
from pathlib import Path

import fake_partitions
import numpy as np
import pytest
from page_parts import evidence_figures
from report_partitions import EN, ZH, row, table, unbroken_findings

from dualml.common.words import LANGUAGES, Messages
from dualml.common.words.numbers import points
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.parallel.partition import RandomSampling
from dualml.report.draw import draw
from dualml.report.results import ArmResult, accuracy_gap
from dualml.report.run_partitions import find_partition, format_settings, list_partitions
from dualml.report.topics.sampling import contests, expected_missed
from dualml.report.topics.skew import SkewResult

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


# --- reading --------------------------------------------------------------------------------------


def test_arms_that_deal_alike_share_a_deal(run: RunData) -> None:
    found = {d.text: d for d in list_partitions(run)}
    assert len(found) == 9
    assert found["random_partition"].arms == ("part", "part-one", "skew-none")
    assert found["random_sampling replacement=False"].arms == ("once",)
    assert found["fractions (0.75, 0.25)"].ranks == 2
    assert sorted(found["bootstrap"].epoch_stats) == [0, 1, 2]
    assert run.deals("part", 1) == run.deals("skew-none", 1)
    assert run.deals("part", 0) != run.deals("part", 1)
    assert format_settings({"name": "label_shards", "shuffle": False, "shards": 2}) == (
        "label_shards shuffle=False shards=2"
    )


def test_what_the_trials_recorded(run: RunData) -> None:
    trial = run.select("skew-half", "torch")[1]
    assert trial.class_accuracy[7] == pytest.approx(0.46)
    assert [rows.shape for rows in trial.apart] == [(3, 3), (3, 3)]
    assert trial.apart[1][:, 0].tolist() == [4, 8, 12]
    assert trial.apart[1][1].tolist() == pytest.approx([8, 0.24, 2.4])
    assert np.isnan(trial.apart[0][0, 2])
    assert set(trial.curves) == {
        "loss",
        *(f"{s}_{m}" for s in ("train", "test") for m in ("loss", "accuracy")),
    }
    assert run.select("part", "torch")[0].apart == ()
    half = SkewResult(run, "skew-half", "torch")
    assert (half.divergence, half.drift) == pytest.approx((0.2, 2.0))


def test_records_that_end_in_the_middle(tmp_path: Path) -> None:
    folder = fake_partitions.make_run(tmp_path, arms=["skew-half"], backends=["torch"], seeds=[0])
    place = folder / "trials/skew-half/torch/seed0"
    whole = (place / "rank1.jsonl").read_text("utf-8")
    (place / "rank1.jsonl").write_text(whole[:-30], "utf-8")
    trial = load([folder]).select("skew-half")[0]
    assert trial.apart[1].shape == (3, 3)
    assert np.isnan(trial.apart[1][2, 2])
    (place / "rank1.jsonl").unlink()
    assert load([folder]).select("skew-half")[0].apart == ()


# --- partitions -----------------------------------------------------------------------------------


def test_partitions_in_numbers(run: RunData) -> None:
    made = table(run, "partitions")
    plain = row(made, "random_partition")
    assert plain[1:7] == ["2", "600", "100.0", "0", "0", "0"]
    assert plain[-1] == "✓ yes"
    half = next(
        line for line in made.cells if "[" not in line[0].text and "(0, 1, 2, 3, 4)" in line[0].text
    )
    assert [c.text for c in half[2:9]] == ["600", "100.0", "0", "0", "0", "0.500", "0.311"]
    assert half[7].note == "≤ 0.500"
    assert half[-1].note == "9 of 9"  # three arms, three seeds
    for arm in ("sample", "kept"):
        deal = find_partition(run, arm)
        assert deal is not None
        missed = [s["missed"] for s in deal.all_epochs]
        line = row(made, deal.text)
        assert line[3] == f"{100 - np.mean(missed) / 12:.1f}"
        assert 60 < float(line[3]) < 67
    assert row(made, "fractions (0.75, 0.25)")[2] == "300 – 900"
    assert row(made, "random_sampling replacement=False")[5] == "0"
    assert len(row(made, "distributed_sampler")[9]) == 8


def test_other_samples_are_seen(tmp_path: Path) -> None:
    folder = fake_partitions.make_run(
        tmp_path, arms=["part", "part-one"], others=("part", "mindspore")
    )
    run = load([folder])
    last = next(table(run, "partitions").cells)[-1]
    assert (last.text, last.note) == ("≠ no", "3 of 6")
    assert row(table(run, "partitions", ZH), "random_partition")[-1] == "≠ 否"
    assert unbroken_findings(folder)["serial.open"][0] == (
        "part, seed 0, on mindspore could not be compared with part-one: "
        "trained on other samples, or in another order."
    )
    assert "训练所用的样本或其顺序不同" in unbroken_findings(folder, "zh")["serial.open"][0]


@pytest.mark.parametrize("words", [EN, ZH], ids=LANGUAGES)
def test_ranks_without_samples_are_named(tmp_path: Path, words: Messages) -> None:
    none = {"assigned": [list(range(10)), [], []]}
    settings = {"empty": fake_partitions.arm("label_classes", "main", 3, **none)}
    run = load([fake_partitions.make_run(tmp_path, arms=["empty"], seeds=[0], settings=settings)])
    told = {"en": "ranks 1 and 2: no samples", "zh": "rank 1 和 2 没有样本"}[words.lang]
    assert next(table(run, "partitions", words).cells)[2].note == told
    (figure,) = evidence_figures(run, "partitions", words)
    assert draw(figure).count(f">{words('value.no_samples')}<") == 2
    assert figure.alt.endswith(told)


def test_a_map_of_many_ranks_and_labels(tmp_path: Path) -> None:
    settings = {
        f"r{n}": fake_partitions.arm("dirichlet_labels", "main", n, alpha=1.0) | {"batch_size": 120}
        for n in (10, 40)
    }
    run = load(
        [
            fake_partitions.make_run(
                tmp_path, arms=list(settings), backends=["torch"], seeds=[0], settings=settings
            )
        ]
    )
    found = evidence_figures(run, "partitions", EN)
    assert [f.name for f in found] == ["partitions"]
    texts = re.findall(r">([^<>]+)</text>", draw(found[0]))
    assert texts.count("rank") == 1
    assert texts.count("label") == 2
    # Cells of ten ranks hold numbers, those of forty do not.
    largest = max(
        max(map(max, d.first_epoch["histogram"])) for d in list_partitions(run) if d.ranks == 10
    )
    assert str(largest) in texts
    assert {"0", "5", "35"} <= set(texts)  # every fifth of forty ranks
    assert {"dirichlet_labels alpha=1, n = 10", "dirichlet_labels alpha=1, n = 40"} <= set(texts)
    assert all(len(t) <= 42 for t in texts)


# --- sampling -------------------------------------------------------------------------------------


def test_what_is_held_against_what(run: RunData) -> None:
    found = contests(run)
    assert [(c.group, c.base, c.others) for c in found] == [
        ("sampling", "part", ("sample", "once", "kept", "sampler"))
    ]


def test_gaps_are_paired(run: RunData) -> None:
    base = ArmResult(run, "part", "torch")
    arms = ("sample", "once", "kept", "sampler")
    found = {arm: accuracy_gap(ArmResult(run, arm, "torch"), base) for arm in arms}
    kinds = {arm: g.kind for arm, g in found.items() if g}
    assert kinds == {"sample": "equal", "once": "open", "kept": "apart", "sampler": "equal"}
    once, kept = found["once"], found["kept"]
    assert once is not None
    assert kept is not None
    # t(0.95, 2) = 2.92, deviation 2 points: 2.92 · 2 / √3
    assert (points(once.low), points(once.high)) == ("−3.37", "+3.37")
    assert (points(kept.mean), points(kept.low), points(kept.high)) == ("−4.00", "−4.34", "−3.66")
    assert points(-1e-9) == "0.00"


def test_sampling_in_numbers(run: RunData) -> None:
    made = table(run, "sampling")
    assert len(made.rows) == 5 * 2
    part = row(made, "part", "mindspore")
    # loss 0.20, 0.21, 0.22: t(0.975, 2) = 4.303, deviation 0.01
    assert part[2:] == ["0", "–", "0", "0.210 ± 0.025", "91.00 ± 2.48", "–", "–"]
    sample = row(made, "sample", "torch")
    assert sample[3] == str(round((1 - 1 / 1200) ** 1200 * 1200))  # 441
    assert sample[6:] == ["91.00 ± 2.24", "0.00", "≈ statistically equal"]
    deal = find_partition(run, "sample")
    assert deal is not None
    assert expected_missed(deal) == pytest.approx(
        1200 * RandomSampling().expected_missed_share(1200, 2)
    )
    assert sample[2] == sample[4]  # as many are seen again as are missed
    assert row(made, "once", "torch")[-1] == "– not shown to be equal"
    assert row(made, "once", "torch")[3] == "300"
    assert row(made, "kept", "torch")[-1] == "≠ different"
    assert row(table(run, "sampling", ZH), "sample", "torch")[-1] == "≈ 统计意义上相等"


def test_sampling_in_sentences(report_sentences: dict[str, list[str]], folder: Path) -> None:
    assert report_sentences["sampling.equal"][0] == (
        "torch and mindspore: in test accuracy statistically equal to part over 3 seeds, inside "
        "±1 percentage point (90 % intervals): sample 0.00 points (−0.17 … +0.17) and "
        "sampler 0.00 points (0.00 … 0.00)."
    )
    assert "kept −4.00 points (−4.34 … −3.66)" in report_sentences["sampling.apart"][0]
    assert "once 0.00 points (−3.37 … +3.37)" in report_sentences["sampling.open"][0]
    assert len(report_sentences["sampling.drawn"]) == 2
    assert "sample: an epoch misses" in report_sentences["sampling.drawn"][0]
    assert "(by chance 36.8 %)" in report_sentences["sampling.drawn"][0]
    assert "every epoch misses the same" in report_sentences["sampling.drawn_once"][0]
    assert report_sentences["sampling.once"] == [
        "part and sampler see every sample exactly once in an epoch."
    ]
    assert report_sentences["sampling.tests"][0].startswith("Each of the 8 comparisons")
    assert "sampling.few" not in report_sentences
    zh = unbroken_findings(folder, "zh")
    assert zh["sampling.equal"][0] == (
        "torch 和 mindspore：在 3 个随机种子上，测试准确率与 part 统计意义上相等，"
        "相差在 ±1 个百分点以内（90 % 区间）：sample 0.00 个百分点（−0.17 … +0.17）"
        "和 sampler 0.00 个百分点（0.00 … 0.00）。"
    )


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_too_few_seeds_for_an_interval(tmp_path: Path, seeds: list[int]) -> None:
    folder = fake_partitions.make_run(
        tmp_path, arms=["part", "kept"], backends=["torch"], seeds=seeds
    )
    run, lines = load([folder]), unbroken_findings(folder)
    many, points = {1: ("1 seed", "−4.00"), 2: ("2 seeds", "−3.90")}[len(seeds)]
    assert lines["sampling.few"] == [
        f"torch: with {many} no interval can be given, so neither equality with part nor a "
        f"difference can be shown. Differences in test accuracy: kept {points} points."
    ]
    assert (
        f"只有 {len(seeds)} 个随机种子，无法给出区间"
        in unbroken_findings(folder, "zh")["sampling.few"][0]
    )
    assert "sampling.tests" not in lines
    line = row(table(run, "sampling"), "kept", "torch")
    assert line[-1] == "– too few seeds"
    assert "±" not in "".join(line)
    assert [f.name for f in evidence_figures(run, "sampling", EN)] == ["sampling"]
