"""Partitions in the report: what was dealt, sampling against a partition, skew, uneven epochs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fake_deals
import fake_ranks
import numpy as np
import pytest
from test_report_analysis import numbers
from test_report_analysis import say as say_all
from test_report_page import Page, rows

from dualml.errors import UserError
from dualml.partition import RandomSampling
from dualml.report import render, style
from dualml.report.analysis import analyse
from dualml.report.cells import Table
from dualml.report.deals import deal_of, deals, told
from dualml.report.gaps import gap, signed
from dualml.report.load import load
from dualml.report.model import Run
from dualml.report.partitions import partition_figures, partition_table
from dualml.report.rank_code import rank_code
from dualml.report.sampling import contests, expected, sampling_table
from dualml.report.sampling_figures import sampling_figures
from dualml.report.skew import apart, emd, skew_table, skewed
from dualml.report.uneven import uneven, uneven_table
from dualml.report.words import LANGUAGES, Words

EN, ZH = Words("en"), Words("zh")
MINE = ("partitions", "sampling", "skew")


def unbroken(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def say(folder: Path, lang: str = "en") -> dict[str, list[str]]:
    """Key → sentences."""
    return {key: [unbroken(t) for t in texts] for key, texts in say_all(folder, lang).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_deals.make(tmp_path_factory.mktemp("deals"))


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load([folder])


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    return say(folder)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not laid out: that takes most of the time."""
    monkeypatch.setattr(style, "svg", lambda made, name: f"<svg><title>{name}</title></svg>")


TABLES = {
    "partitions": partition_table,
    "sampling": sampling_table,
    "skew": skew_table,
    "uneven": uneven_table,
}


def table(run: Run, name: str, words: Words = EN) -> Table:
    found = TABLES[name](run, words)
    assert found is not None
    return found


def row(made: Table, *texts: str) -> list[str]:
    """Texts of the one row that begins with these."""
    lines = [[cell.text for cell in line] for line in made.rows]
    found = [line for line in lines if line[: len(texts)] == list(texts)]
    assert len(found) == 1, (texts, lines)
    return found[0]


def anchors(page: str) -> list[str]:
    return re.findall(r'id="chapter-([a-z]+)"', page)


# --- reading --------------------------------------------------------------------------------------


def test_arms_that_deal_alike_share_a_deal(run: Run) -> None:
    found = {d.text: d for d in deals(run)}
    assert len(found) == 9
    assert found["random_partition"].arms == ("part", "part-one", "skew-none")
    assert found["random_sampling replacement=False"].arms == ("once",)
    assert found["fractions (0.75, 0.25)"].ranks == 2
    assert sorted(found["bootstrap"].stated) == [0, 1, 2]
    assert run.deals("part", 1) == run.deals("skew-none", 1)
    assert run.deals("part", 0) != run.deals("part", 1)
    assert told({"name": "label_shards", "shuffle": False, "shards": 2}) == (
        "label_shards shuffle=False shards=2"
    )


def test_what_the_trials_recorded(run: Run) -> None:
    trial = run.select("skew-half", "torch")[1]
    assert trial.class_accuracy[7] == pytest.approx(0.46)
    assert [rows.shape for rows in trial.apart] == [(3, 3), (3, 3)]
    assert trial.apart[1][:, 0].tolist() == [4, 8, 12]
    assert trial.apart[1][1].tolist() == pytest.approx([8, 0.24, 2.4])
    assert np.isnan(trial.apart[0][0, 2])
    assert set(trial.curves) == {"loss", *(f"{s}_{m}" for s in ("train", "test")
                                           for m in ("loss", "accuracy"))}  # fmt: skip
    assert run.select("part", "torch")[0].apart == ()
    assert apart(run.select("skew-half", "torch")) == pytest.approx((0.2, 2.0))


def test_records_that_end_in_the_middle(tmp_path: Path) -> None:
    folder = fake_deals.make(tmp_path, arms=["skew-half"], backends=["torch"], seeds=[0])
    place = folder / "trials/skew-half/torch/seed0"
    whole = (place / "rank1.jsonl").read_text("utf-8")
    (place / "rank1.jsonl").write_text(whole[:-30], "utf-8")
    trial = load([folder]).select("skew-half")[0]
    assert trial.apart[1].shape == (3, 3)
    assert np.isnan(trial.apart[1][2, 2])
    (place / "rank1.jsonl").unlink()
    assert load([folder]).select("skew-half")[0].apart == ()


# --- partitions -----------------------------------------------------------------------------------


def test_partitions_in_numbers(run: Run) -> None:
    made = table(run, "partitions")
    plain = row(made, "random_partition")
    assert plain[1:7] == ["2", "600", "100.0", "0", "0", "0"]
    assert plain[-1] == "✓ yes"
    half = next(line for line in made.rows if "[" not in line[0].text and "(0, 1, 2, 3, 4)" in
                line[0].text)  # fmt: skip
    assert [c.text for c in half[2:9]] == ["600", "100.0", "0", "0", "0", "0.500", "0.311"]
    assert half[7].note == "≤ 0.500"
    assert half[-1].note == "9 of 9"  # three arms, three seeds
    for arm in ("sample", "kept"):
        deal = deal_of(run, arm)
        assert deal is not None
        missed = [s["missed"] for s in deal.all]
        line = row(made, deal.text)
        assert line[3] == f"{100 - np.mean(missed) / 12:.1f}"
        assert 60 < float(line[3]) < 67
    assert row(made, "fractions (0.75, 0.25)")[2] == "300 – 900"
    assert row(made, "random_sampling replacement=False")[5] == "0"
    assert len(row(made, "distributed_sampler")[9]) == 8


def test_other_samples_are_seen(tmp_path: Path) -> None:
    folder = fake_deals.make(tmp_path, arms=["part", "part-one"], others=("part", "mindspore"))
    run = load([folder])
    last = table(run, "partitions").rows[0][-1]
    assert (last.text, last.note) == ("≠ no", "3 of 6")
    assert row(table(run, "partitions", ZH), "random_partition")[-1] == "≠ 否"
    assert say(folder)["serial.open"][0] == (
        "part, seed 0, on mindspore could not be held against part-one: "
        "trained on other samples, or in another order."
    )
    assert "训练所用的样本或其顺序不同" in say(folder, "zh")["serial.open"][0]


@pytest.mark.parametrize("words", [EN, ZH], ids=LANGUAGES)
def test_ranks_without_samples_are_named(tmp_path: Path, words: Words) -> None:
    none = {"assigned": [list(range(10)), [], []]}
    settings = {"empty": fake_deals.arm("label_classes", "main", 3, **none)}
    run = load([fake_deals.make(tmp_path, arms=["empty"], seeds=[0], settings=settings)])
    told = {"en": "ranks 1 and 2: no samples", "zh": "进程 1 和 2 没有样本"}[words.lang]
    assert table(run, "partitions", words).rows[0][2].note == told
    figure = next(partition_figures(run, words))
    assert figure.svg.count(words("value.no_samples")) == 2
    assert figure.alt.endswith(told)


def test_a_map_of_many_ranks_and_labels(tmp_path: Path) -> None:
    settings = {
        f"r{n}": fake_deals.arm("dirichlet_labels", "main", n, alpha=1.0) | {"batch_size": 120}
        for n in (10, 40)
    }
    run = load([fake_deals.make(tmp_path, arms=list(settings), backends=["torch"], seeds=[0],
                                settings=settings)])  # fmt: skip
    found = list(partition_figures(run, EN))
    assert [f.name for f in found] == ["partitions"]
    texts = re.findall(r">([^<>]+)</text>", found[0].svg)
    assert texts.count("rank") == 1
    assert texts.count("label") == 2
    # Cells of ten ranks hold numbers, those of forty do not.
    largest = max(max(map(max, d.first["histogram"])) for d in deals(run) if d.ranks == 10)
    assert str(largest) in texts
    assert {"0", "5", "35"} <= set(texts)  # every fifth of forty ranks
    assert {"dirichlet_labels alpha=1, n = 10", "dirichlet_labels alpha=1, n = 40"} <= set(texts)
    assert all(len(t) <= 42 for t in texts)


# --- sampling -------------------------------------------------------------------------------------


def test_what_is_held_against_what(run: Run) -> None:
    found = contests(run)
    assert [(c.group, c.base, c.others) for c in found] == [
        ("sampling", "part", ("sample", "once", "kept", "sampler"))
    ]


def test_gaps_are_paired(run: Run) -> None:
    found = {arm: gap(run, arm, "part", "torch") for arm in ("sample", "once", "kept", "sampler")}
    kinds = {arm: g.kind for arm, g in found.items() if g}
    assert kinds == {"sample": "equal", "once": "open", "kept": "apart", "sampler": "equal"}
    once, kept = found["once"], found["kept"]
    assert once is not None
    assert kept is not None
    # t(0.95, 2) = 2.92, deviation 2 points: 2.92 · 2 / √3
    assert (signed(once.low), signed(once.high)) == ("−3.37", "+3.37")
    assert (signed(kept.mean), signed(kept.low), signed(kept.high)) == ("−4.00", "−4.34", "−3.66")
    assert signed(-1e-9) == "0.00"


def test_sampling_in_numbers(run: Run) -> None:
    made = table(run, "sampling")
    assert len(made.rows) == 5 * 2
    part = row(made, "part", "mindspore")
    # loss 0.20, 0.21, 0.22: t(0.975, 2) = 4.303, deviation 0.01
    assert part[2:] == ["0", "–", "0", "0.210 ± 0.025", "91.00 ± 2.48", "–", "–"]
    sample = row(made, "sample", "torch")
    assert sample[3] == str(round((1 - 1 / 1200) ** 1200 * 1200))  # 441
    assert sample[6:] == ["91.00 ± 2.24", "0.00", "≈ statistically equal"]
    deal = deal_of(run, "sample")
    assert deal is not None
    assert expected(deal) == pytest.approx(1200 * RandomSampling().missed(1200, 2))
    assert sample[2] == sample[4]  # as many are seen again as are missed
    assert row(made, "once", "torch")[-1] == "– not shown to be equal"
    assert row(made, "once", "torch")[3] == "300"
    assert row(made, "kept", "torch")[-1] == "≠ different"
    assert row(table(run, "sampling", ZH), "sample", "torch")[-1] == "≈ 统计意义上相等"


def test_sampling_in_sentences(said: dict[str, list[str]], folder: Path) -> None:
    assert said["sampling.equal"][0] == (
        "torch and mindspore: in test accuracy statistically equal to part over 3 seeds, inside "
        "±1 percentage point (90 % intervals): sample 0.00 points (−0.17 … +0.17) and "
        "sampler 0.00 points (0.00 … 0.00)."
    )
    assert "kept −4.00 points (−4.34 … −3.66)" in said["sampling.apart"][0]
    assert "once 0.00 points (−3.37 … +3.37)" in said["sampling.open"][0]
    assert len(said["sampling.drawn"]) == 2
    assert "sample: an epoch misses" in said["sampling.drawn"][0]
    assert "(by chance 36.8 %)" in said["sampling.drawn"][0]
    assert "every epoch misses the same" in said["sampling.drawn_once"][0]
    assert said["sampling.once"] == ["part and sampler see every sample exactly once in an epoch."]
    assert said["sampling.tests"][0].startswith("Each of the 8 comparisons")
    assert "sampling.few" not in said
    zh = say(folder, "zh")
    assert zh["sampling.equal"][0] == (
        "torch 和 mindspore：在 3 个随机种子上，测试准确率与 part 统计意义上相等，"
        "相差在 ±1 个百分点以内（90 % 区间）：sample 0.00 个百分点（−0.17 … +0.17）"
        "和 sampler 0.00 个百分点（0.00 … 0.00）。"
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_too_few_seeds_for_an_interval(tmp_path: Path, seeds: list[int]) -> None:
    folder = fake_deals.make(tmp_path, arms=["part", "kept"], backends=["torch"], seeds=seeds)
    run, lines = load([folder]), say(folder)
    many, points = {1: ("1 seed", "−4.00"), 2: ("2 seeds", "−3.90")}[len(seeds)]
    assert lines["sampling.few"] == [
        f"torch: with {many} no interval can be given, so neither equality with part nor a "
        f"difference can be shown. Differences in test accuracy: kept {points} points."
    ]
    assert f"只有 {len(seeds)} 个随机种子，无法给出区间" in say(folder, "zh")["sampling.few"][0]
    assert "sampling.tests" not in lines
    line = row(table(run, "sampling"), "kept", "torch")
    assert line[-1] == "– too few seeds"
    assert "±" not in "".join(line)
    assert [f.name for f in sampling_figures(run, EN)] == ["sampling"]


# --- skew -----------------------------------------------------------------------------------------


def test_skew_in_numbers(run: Run) -> None:
    assert [emd(run, a) for a in ("skew-half", "skew-partly")] == pytest.approx([0.5, 0.4])
    assert skewed(run)[:3] == ["skew-none", "skew-noise", "skew-partly"]
    assert set(skewed(run)) == {name for name in fake_deals.ARMS if name.startswith("skew")}
    line = next(r for r in table(run, "skew").rows if r[0].text == "skew-half-16")
    assert [unbroken(cell.text) for cell in line[2:]] == [
        "parameters, every 16", "torch", "0.500", "51.00 ± 2.48", "21.0", "0.4", "4",
    ]  # fmt: skip
    assert line[6].note == "class 7"
    gradients = next(r for r in table(run, "skew", ZH).rows if r[0].text == "skew-half-gradients")
    assert [cell.text for cell in gradients[2:]] == [
        "梯度", "torch", "0.500", "90.00 ± 0.00", "80.0", "–", "–",
    ]  # fmt: skip


def test_skew_in_sentences(said: dict[str, list[str]], folder: Path) -> None:
    assert "skew-half (EMD 0.500): divergence 0.2, 71.0 %" in said["skew.order"][0]
    assert said["skew.order"][0].index("skew-partly") < said["skew.order"][0].index("skew-half")
    assert "over 3 arms" in said["skew.correlation"][0]  # features are no matter of labels
    assert "by divergence at ρ = 1.00 and" in said["skew.correlation"][0]
    assert "by test accuracy at ρ = −1.00 " in said["skew.correlation"][0]
    assert said["skew.every"][0] == (
        "skew-half-16 on torch and mindspore: an average every 16 updates instead of every 4 "
        "(skew-half): mean divergence 0.4 against 0.2, test accuracy −20.00 points "
        "(−20.00 … −20.00)."
    )
    assert said["skew.gradients"][0] == (
        "skew-half-gradients on torch and mindspore: gradients at every update instead of "
        "parameters every 4 (skew-half): test accuracy +19.00 points (+17.31 … +20.69), "
        "worst class 80.0 % against 46.0 %."
    )
    assert said["skew.worst"][0] == (
        "torch and mindspore: the class recognised worst of all is class 7 of skew-half-16, "
        "21.0 %; the worst of skew-none is class 0, 91.0 %."
    )
    assert "3 seeds, with 90 % intervals" in said["skew.gaps"][0]
    assert "skew-half −20.00 points (−20.00 … −20.00)" in said["skew.gaps"][0]
    assert "mean divergence 0.05 against 0.01 of skew-none" in said["skew.features"][0]
    assert len(said["skew.order"]) == 1  # the same on both backends
    zh = say(folder, "zh")
    assert "偏离度 0.4 对 0.2，测试准确率相差 −20.00 个百分点" in zh["skew.every"][0]


def test_epochs_that_end_earlier(run: Run, said: dict[str, list[str]], folder: Path) -> None:
    found = uneven(run)
    assert [u.arms for u in found] == [("fractions",)]
    # Six samples of each rank in an update: 900 and 300 samples.
    u = found[0]
    assert (u.ends, u.updates, u.first, u.last) == ((150, 50), 150, 1, 6)
    assert said["skew.uneven"][0] == (
        "fractions, seed 0: the ranks have samples in 150 · 50 of the 150 updates of an epoch; "
        "rank 1 is through after update 50, the others go on, and the last update has 6 of 12 "
        "samples. "
        "Every one of 1,200 samples is seen exactly once."
    )
    assert "1,200 个样本都恰好见到一次" in say(folder, "zh")["skew.uneven"][0]
    told = [unbroken(c.text) for c in table(run, "uneven").rows[0]]
    assert told == ["fractions (0.75, 0.25)", "900 · 300", "2 × 6", "150 · 50", "150", "50", "6",
                    "✓ 1,200 of 1,200"]  # fmt: skip


def test_backends_that_differ_are_told_apart(tmp_path: Path) -> None:
    def worse(run: dict) -> None:
        for trial in run["trials"]:
            if (trial["arm"], trial["backend"]) == ("skew-half", "mindspore"):
                trial["test_accuracy"] -= 0.1

    folder = fake_deals.make(tmp_path, arms=["skew-none", "skew-half"], seeds=[0], change=worse)
    assert say(folder)["skew.gaps_few"] == [
        f"{backend}: test accuracy minus that of skew-none, 1 seed and so without intervals: "
        f"skew-half −{points} points."
        for backend, points in (("torch", "20.00"), ("mindspore", "30.00"))
    ]
    assert "（1 个随机种子，因此没有区间）" in say(folder, "zh")["skew.gaps_few"][0]


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_page(tmp_path: Path, lang: str, request: pytest.FixtureRequest) -> None:
    if lang != "en":
        request.getfixturevalue("undrawn")
    arms = ["part", "part-one", "sample", "skew-none", "skew-half", "skew-half-gradients",
            "fractions"]  # fmt: skip
    folder = fake_deals.make(tmp_path, arms=arms, parity=False)
    text, markdown = (p.read_text("utf-8") for p in render([folder], tmp_path, lang)[:2])
    Page(text)
    assert [c for c in anchors(text) if c in MINE] == list(MINE)
    for name in ("partitions", "sampling", "sampling-gaps", "skew-classes", "divergence"):
        assert text.count(f'id="figure-{name}"') == 1
        assert f"](figures/{name}.svg)" in markdown
    assert 'id="figure-ranks-sampling"' not in text  # its curves are in the chapter
    assert 'id="figure-ranks-skew"' in text
    for name in TABLES:
        assert rows(text, name)
    for file in ("partition/random_partition.py", "partition/label_classes.py",
                 "aggregation/local_sgd.py"):  # fmt: skip
        assert file in text
    assert Words(lang)("group.sampling") in text


def test_both_languages_say_the_same(run: Run) -> None:
    for a, b in zip(analyse(run, EN), analyse(run, ZH), strict=True):
        assert [f.key for f in a.findings] == [f.key for f in b.findings]
        for x, y in zip(a.findings, b.findings, strict=True):
            assert sorted(numbers(x.text)) == sorted(numbers(y.text)), (x.text, y.text)


def test_code_of_the_rules(run: Run, tmp_path: Path) -> None:
    found = {e.title: e for e in rank_code(run, EN)}
    dealing = found["Dealing the samples to the ranks"].listings
    assert [x.framework for x in dealing] == ["random_partition", "random_sampling",
                                              "label_classes"]  # fmt: skip
    assert "draw.permutation(n)" in dealing[0].text
    assert "def average" in found["Averaging the parameters of the ranks"].listings[0].text
    alone = fake_deals.make(tmp_path, arms=["part"], backends=["torch"], seeds=[0])
    assert "Averaging the parameters of the ranks" not in [
        e.title for e in rank_code(load([alone]), EN)
    ]


# --- what is missing ------------------------------------------------------------------------------

SUBSETS = {
    ("part",): ["partitions"],
    ("part-one",): ["partitions"],
    ("sample", "kept"): ["partitions", "sampling"],
    ("skew-half",): ["partitions", "skew"],
    ("skew-half-gradients",): ["partitions"],
    ("skew-half", "skew-half-16"): ["partitions", "skew"],
    ("fractions",): ["partitions", "skew"],
    ("part", "skew-none"): ["partitions"],
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("arms", SUBSETS, ids=",".join)
def test_any_subset_makes_a_page(tmp_path: Path, arms: tuple[str, ...]) -> None:
    folder = fake_deals.make(tmp_path, arms=arms, backends=["torch"], seeds=[0], parity=False)
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    assert [c for c in anchors(text) if c in MINE] == SUBSETS[arms]
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name  # no table without a row


@pytest.mark.usefixtures("undrawn")
def test_runs_without_partitions_have_none_of_it(tmp_path: Path) -> None:
    folder = fake_ranks.make(tmp_path, arms=["single", "all-reduce-n2", "local-4"], costs=False)
    text = render([folder])[0].read_text("utf-8")
    assert not set(anchors(text)) & set(MINE)
    assert "local_sgd.py" not in text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_everything_failed(tmp_path: Path, status: str) -> None:
    def fail(run: dict) -> None:
        keys = ("final_loss", "train_s", "updates", "test_accuracy", "class_accuracy",
                "samples_sha256", "how")  # fmt: skip
        for trial in run["trials"]:
            trial |= {"status": status, "reason": "no process groups"}
            trial |= dict.fromkeys(keys)

    folder = fake_deals.make(tmp_path, change=fail, parity=False)
    text = render([folder])[0].read_text("utf-8")
    assert [c for c in anchors(text) if c in MINE] == ["partitions"]  # the plan is known
    assert row(table(load([folder]), "partitions"), "random_partition")[-1] == "–"


def test_one_failed_trial_is_left_out(tmp_path: Path) -> None:
    arms = ["part", "sample", "skew-none", "skew-half"]
    folder = fake_deals.make(tmp_path, arms=arms, failed=("sample", "torch", 1))
    run = load([folder])
    made = table(run, "sampling")
    assert row(made, "sample", "torch")[-1] == "– too few seeds"
    assert row(made, "sample", "mindspore")[-1] == "≈ statistically equal"
    assert "with 2 seeds no interval" in say(folder)["sampling.few"][0]
    # Seed 1 of that arm was compared between no backends.
    assert table(run, "partitions").rows[1][-1].note == "2 of 2"


@pytest.mark.usefixtures("undrawn")
def test_a_plan_that_is_lost(tmp_path: Path) -> None:
    folder = fake_deals.make(tmp_path, seeds=[0], backends=["torch"])
    (folder / "plan" / "plan.json").unlink()
    text = render([folder])[0].read_text("utf-8")
    assert "chapter-partitions" not in text
    run = load([folder])
    assert row(table(run, "sampling"), "sample", "torch")[2:5] == ["–", "–", "–"]
    line = next(r for r in table(run, "skew").rows if r[0].text == "skew-half")
    assert line[4].text == "–"
    (folder / "plan" / "plan.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"cannot read .*plan\.json"):
        load([folder])


@pytest.mark.usefixtures("undrawn")
def test_folders_of_two_machines(tmp_path: Path) -> None:
    a = fake_deals.make(tmp_path / "a", backends=["torch"])
    b = fake_deals.make(tmp_path / "b", backends=["torch", "mindspore"])
    run = load([a, b])
    assert run.backends == ["torch (a)", "torch (b)", "mindspore"]
    assert len(deals(run)) == 9
    assert render([a, b], tmp_path / "out")
    assert row(table(run, "partitions"), "random_partition")[-1] == "✓ yes"


@pytest.mark.usefixtures("undrawn")
def test_a_rule_this_version_does_not_know(tmp_path: Path) -> None:
    folder = fake_deals.make(tmp_path, arms=["part", "sample"], backends=["torch"], seeds=[0])
    path = folder / "run.json"
    told = json.loads(path.read_text("utf-8"))
    told["experiment"]["arms"]["sample"]["partition"]["name"] = "by_moonlight"
    path.write_text(json.dumps(told), "utf-8")
    assert [d.text for d in deals(load([folder]))] == ["random_partition"]
    assert render([folder])
