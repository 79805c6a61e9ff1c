"""One rank against several, other ways to make an update, larger batches: the report's numbers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import fake_nodes
import fake_ranks
import pytest
from test_report_analysis import numbers, say
from test_report_page import Page, rows

from dualml.report import families, render, scaling
from dualml.report.analysis import analyse
from dualml.report.batch import (
    OTHER,
    SAME,
    SCALED,
    WARM,
    batch_cards,
    batch_table,
    batches,
)
from dualml.report.batch_figures import batch_figures
from dualml.report.cells import Table
from dualml.report.families import STRONG, WEAK, Room
from dualml.report.load import load
from dualml.report.model import Run
from dualml.report.modes import missing_table, mode_table, pairs, signed
from dualml.report.scaling_figures import scaling_figures
from dualml.report.scaling_tables import scaling_table, speedup_table
from dualml.report.words import LANGUAGES, Words

EN = Words("en")
#: What the arms with four ranks on two cores would have: S = 2.71 and 2.93, E = 67.75 and 73.25 %.
NEVER = ("2.71", "2.93", "67.8", "73.2", "73.3", "67.7")


@pytest.fixture(scope="module", params=LANGUAGES)
def pages(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, str]:
    """Language, HTML and Markdown."""
    made = render([folder], tmp_path_factory.mktemp(request.param), request.param)[:2]
    return request.param, *(p.read_text("utf-8") for p in made)


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    return say(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nodes.make(tmp_path_factory.mktemp("nodes"))


@cache
def run_of(folder: Path) -> Run:
    return load([folder])


TABLES = {
    "scaling": scaling_table,
    "speed-up": speedup_table,
    "modes": mode_table,
    "modes-missing": missing_table,
    "batch": batch_table,
}


def table(folder: Path, name: str, words: Words = EN) -> Table:
    made = TABLES[name](run_of(folder), words)
    assert made is not None
    assert made.name == name
    return made


def row(folder: Path, name: str, *texts: str) -> list[str]:
    """Texts of the one row of a table that holds all of these."""
    lines = [[cell.text for cell in line] for line in table(folder, name).rows]
    found = [line for line in lines if set(texts) <= set(line)]
    assert len(found) == 1, (texts, lines)
    return found[0]


def notes(made: Table, *texts: str) -> list[str]:
    line = next(r for r in made.rows if set(texts) <= {c.text for c in r})
    return [c.note for c in line]


# --- arithmetic -----------------------------------------------------------------------------------


def test_formulas() -> None:
    assert families.speedup(STRONG, 4, 12.0, 4.0) == 3
    assert families.efficiency(STRONG, 4, 12.0, 4.0) == 0.75
    assert families.speedup(WEAK, 4, 12.0, 16.0) == 3
    assert families.efficiency(WEAK, 4, 12.0, 16.0) == 0.75
    # a tenth is repeated: 10 / (1 + 9 / 3)
    assert families.amdahl(3, 10.0, 1.0) == 2.5
    assert families.amdahl(3, 10.0, 1.0, 1.0) == 2
    assert families.amdahl(1, 10.0, 1.0) == 1
    assert families.gustafson(4, 10.0) == 4
    assert families.gustafson(4, 10.0, 10.0) == 2


@pytest.mark.parametrize(
    ("room", "enough", "used"),
    [
        (Room(2, 1, 2), True, 2),
        (Room(4, 1, 2), False, 2),
        (Room(2, 2, 3), False, 3),
        (Room(2, 1, None), None, None),
        (Room(2, None, 4), None, None),
    ],
)
def test_room(room: Room, enough: bool | None, used: int | None) -> None:
    assert room.enough is enough
    assert room.used == used


def test_families_are_found_by_their_settings(folder: Path, tmp_path: Path) -> None:
    run = run_of(folder)
    assert [(f.kind, f.base, f.arms) for f in families.families(run)] == [
        (STRONG, "one-node", ("nodes-n2", "nodes-n4")),
        (WEAK, "one-node", ("weak-2", "weak-4")),
    ]
    shared = families.families(run, pinned=False)
    assert [(f.kind, f.base, f.arms) for f in shared] == [(STRONG, "alone", ("shared",))]
    # Without the plain arms those that combine in another way make families of their own.
    few = ["one-node", "native", "overlap"]
    other = load([fake_nodes.make(tmp_path / "a", arms=few)])
    assert {f.strategy: f.arms for f in families.families(other)} == {
        "native": ("native",),
        "all_reduce": ("overlap",),
    }

    def change(run: dict) -> None:
        run["experiment"]["arms"]["nodes-n2"]["optimizer"]["lr"] = 0.1
        run["experiment"]["arms"]["weak-2"]["cores"] = 2
        run["experiment"]["arms"]["weak-4"]["updates"] = 50

    apart = load([fake_nodes.make(tmp_path / "b", change=change)])
    assert [f.arms for f in families.families(apart)] == [("nodes-n4",)]


def test_one_rank_with_threads_shares_its_cores(folder: Path) -> None:
    run = run_of(folder)
    assert families.room(run, "shared", "torch") == Room(2, 1, 2)
    assert families.room(run, "alone", "torch").each is None  # not recorded
    assert say(folder)["scaling.shared"] == [
        "shared has several ranks on the same cores that one rank would have: its times compare n "
        "workers with one, not n nodes."
    ]


# --- scaling --------------------------------------------------------------------------------------


def test_times_and_throughput(folder: Path) -> None:
    # 48 samples in 10 ms; an epoch of 1,200 is 25 updates
    one = row(folder, "scaling", "one-node", "torch", "strong")
    assert one[3:] == ["1", "48", "1", "10", "0.25", "4,800", "4,800", "–", "–"]
    four = row(folder, "scaling", "weak-4", "mindspore", "weak")
    assert four[3:7] == ["4", "48", "2", "27.3"]
    assert four[8:10] == ["7,032", "3,516"]
    waiting, transferring = row(folder, "scaling", "weak-2", "torch")[-2:]
    assert (waiting, transferring) == ("4.8", "3.2")  # 0.6 and 0.4 of 12.5 ms


def test_speedup_efficiency_and_predictions(folder: Path) -> None:
    # seeds 1.4, 1.6 and 1.8: t(0.975, 2) · 0.2 / √3 = 0.497 either way
    assert row(folder, "speed-up", "nodes-n2", "torch")[4:] == ["1.6", "80.0", "1.82", "1.54"]
    made = table(folder, "speed-up")
    assert notes(made, "nodes-n2", "torch")[4:6] == ["1.1 – 2.1", "55.2 – 104.8"]
    # 2 · 10 / 12.5, and 2 · 10 / (10 + 1)
    assert row(folder, "speed-up", "weak-2", "mindspore")[4:] == ["1.6", "80.0", "2", "1.82"]
    found = [p for p in scaling.all_points(run_of(folder)) if p.arm == "nodes-n2"]
    assert found[0].speedup is not None
    assert found[0].speedup.mean == pytest.approx(1.6)
    assert found[0].speedup.low == pytest.approx(1.6 - 0.49683, abs=1e-4)
    assert found[0].parts["rest"] == pytest.approx(found[0].step.mean - 4e-3)


def test_seeds_decide_what_is_said_of_chance(tmp_path: Path) -> None:
    two = fake_nodes.make(tmp_path / "two", seeds=(0, 1), arms=list(fake_nodes.SCALING))
    made = table(two, "speed-up")
    assert notes(made, "nodes-n2", "torch")[4] == "1.4 – 1.6"
    assert "speed-up 1.5 (two seeds: 1.4 – 1.6)" in say(two)["scaling.faster"][0]
    one = fake_nodes.make(tmp_path / "one", seeds=(1,), arms=list(fake_nodes.SCALING))
    made = table(one, "speed-up")
    assert notes(made, "nodes-n2", "torch")[4] == ""
    assert "speed-up 1.6, efficiency 80.0 %." in say(one)["scaling.faster"][0]


def test_sentences_of_scaling(said: dict[str, list[str]]) -> None:
    assert "only where every rank had cores of its own" in said["caveats.crowded_some"][0]
    assert "caveats.crowded" not in said
    assert said["scaling.faster"][0] == (
        "torch, strong scaling, n = 2: an update takes 6.32 ms instead of 10 ms: speed-up 1.6 "
        "(95 % interval 1.1 – 2.1), efficiency 80.0 %."
    )
    # 6.32 - 5 = 0.5 + 0.6 + 0.4 + 2.32 + (2 - 4.5)
    assert said["scaling.why_less"][0].startswith(
        "torch, n = 2: an update takes 1.32 ms more than T₁ / n (5 ms): 0.5 ms because every rank "
        "repeats the update of the parameters, 0.6 ms waiting, 0.4 ms transferring and 2.32 ms "
        "between updates, less 2.5 ms"
    )
    assert said["scaling.law"][0] == (
        "torch, n = 2: since every rank repeats the update of the parameters (1 ms), Amdahl's law "
        "allows a speed-up of 1.82; with the measured communication (1 ms) it is 1.54. "
        "Measured: 1.6."
    )
    assert "with 48 samples for every rank" in said["scaling.weak"][0]
    assert said["scaling.crowded"][0] == (
        "torch: 4 ranks on 2 cores take turns, so no speed-up and no efficiency are given for "
        "nodes-n4 and weak-4. Samples that a core gets done in a second: nodes-n4 6,504, "
        "weak-4 7,032; one-node 4,800."
    )


def test_ranks_that_take_turns_have_no_speedup(folder: Path, pages: tuple[str, str, str]) -> None:
    lang, html, markdown = pages
    words = Words(lang)
    for p in scaling.all_points(run_of(folder)):
        if p.n == 4:
            assert p.why_not == scaling.OVERSUBSCRIBED
            assert p.speedup is p.efficiency is p.predicted is p.communicating is None
    made = table(folder, "speed-up", words)
    for arm in ("nodes-n4", "weak-4"):
        line = next(r for r in made.rows if r[0].text == arm)
        assert [c.text for c in line[4:]] == ["–"] * 4
        assert line[4].note == words("scaling.no_measurement", values=(
            "4 ranks on 2 cores" if lang == "en" else "4 个进程共用 2 个核心"
        ))  # fmt: skip
    title = words("page.chapter.scaling")
    page = re.search(r'<h3 id="chapter-scaling">.*?<h3 ', html, re.S)
    text = re.search(rf"### {re.escape(title)}\n.*?\n### ", markdown, re.S)
    topic = re.search(rf"<h3>{words('topic.scaling')}</h3>.*?<h3>", html, re.S)
    for part in (page, text, topic):
        assert part is not None
        told = re.sub("<[^>]*>", " ", part[0]) + " ".join(
            re.findall('aria-label="([^"]*)', part[0])
        )
        assert "nodes-n4" in told
        for number in NEVER:
            assert not re.search(rf"(?<![\d.,]){re.escape(number)}", told), number
    assert page is not None
    drawn = re.findall(r'aria-label="([^"]*)".*?<figcaption>(.*?)</figcaption>', page[0], re.S)
    assert ["nodes-n4" in text for text in drawn[0]] == [False, True]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_unknown_cores_are_no_cores(tmp_path: Path, lang: str) -> None:
    words, arms = Words(lang), list(fake_nodes.SCALING)
    folder = fake_nodes.make(tmp_path / "run", arms=arms, cores=None)
    run = run_of(folder)
    assert [f.name for f in scaling_figures(run, words)] == ["update-parts"]
    assert words("scaling.unknown") in scaling.notices(run, words)[0]
    assert all(p.speedup is None for p in scaling.all_points(run_of(folder)))
    assert len(say(folder, lang)["scaling.unknown"]) == 1
    assert "scaling.faster" not in say(folder, lang)


def test_what_is_slower_or_open_is_called_so(tmp_path: Path) -> None:
    def slow(run: dict) -> None:
        for trial in run["trials"]:
            if trial["arm"] == "nodes-n2":
                trial["train_s"] *= 3 if trial["backend"] == "torch" else 1.5

    folder = fake_nodes.make(tmp_path, arms=list(fake_nodes.SCALING), change=slow)
    assert say(folder)["scaling.slower"][0].startswith("torch, strong scaling, n = 2: an update")
    assert "holds 1, so neither gain nor loss" in say(folder)["scaling.alike"][0]


def test_missing_trials(tmp_path: Path) -> None:
    def lose(run: dict) -> None:
        for trial in run["trials"]:
            keys = ("train_s", "updates", "final_loss", "test_accuracy", "ranks")
            lost = trial["arm"] == "one-node" and trial["backend"] == "torch"
            if lost or (trial["arm"], trial["seed"]) == ("weak-2", 0):
                trial |= {"status": "failed", "reason": "lost"} | dict.fromkeys(keys)

    folder = fake_nodes.make(tmp_path, arms=list(fake_nodes.SCALING), change=lose)
    Page(render([folder])[0].read_text("utf-8"))
    made = table(folder, "speed-up")
    assert (
        notes(made, "nodes-n2", "torch")[4] == "no successful trial of one-node with the same seed"
    )
    assert row(folder, "speed-up", "weak-2", "mindspore")[4] == "1.6"


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
    assert [c.text for c in lost.rows[0]] == [
        "replicas", "torch, mindspore", "one process, several devices", "unsupported",
        fake_nodes.WHY,
    ]  # fmt: skip
    assert (signed(0.0123), signed(-2e-4), signed(1e-9)) == ("+0.012", "−2.0×10⁻⁴", "0")


def test_sentences_of_the_ways(said: dict[str, list[str]]) -> None:
    assert said["modes.alike"][0].startswith(
        "native (the framework's own) on torch: 5 ms per update against 6.32 ms with nodes-n2; the "
        "interval of the ratio 0.8 (0.552 – 1.05) holds 1"
    )
    assert "12.5 ms per update against 6.32 ms with nodes-n2, 2 times as long" in " ".join(
        said["modes.held"]
    )
    assert said["modes.unsupported"] == [
        f"replicas (one process, several devices): unsupported on torch and mindspore "
        f"({fake_nodes.WHY})."
    ]


# --- larger batches -------------------------------------------------------------------------------


def test_batches(folder: Path) -> None:
    (found,) = batches(run_of(folder))
    assert found.base.name == "batch-12"
    assert [(a.name, a.kind) for a in found.arms] == [
        ("batch-48", SAME), ("batch-48-scaled", SCALED), ("batch-240", SAME),
        ("batch-240-warm-up", WARM),
    ]  # fmt: skip
    assert found.of(OTHER) == []
    line = row(folder, "batch", "batch-240-warm-up", "torch")
    assert line[2:7] == ["240", "1", "in proportion, ×\u00a020", "5", "15"]
    assert row(folder, "batch", "batch-48", "mindspore")[4] == "same"
    assert batch_cards(run_of(folder), EN)[0].arms == ["batch-48-scaled", "batch-240-warm-up"]


def test_sentences_of_batches(said: dict[str, list[str]], tmp_path: Path) -> None:
    assert said["batch.cost"][0].startswith(
        "torch: with the same step (learning rate 0.05), a batch of 48 instead of 12 makes 75 "
        "updates instead of 300 in as many epochs; test accuracy changes by −5.00 percentage "
        "points (95 % interval −5.43 – −4.57), the final loss from"
    )
    assert "may be chance" in said["batch.cost_open"][0]
    assert said["batch.recovered"][0] == (
        "torch: a step in proportion (learning rate 0.2) makes up for a batch of 48 instead of 12: "
        "test accuracies are equal within 1 percentage point (0.00; 90 % interval −0.17 to +0.17, "
        "two one-sided t-tests over 3 seeds; batch-48-scaled)."
    )
    assert "and a warm-up of 5 updates a batch of 240 stays more than 1" in said["batch.lost"][0]
    two = fake_nodes.make(tmp_path, arms=list(fake_nodes.BATCHES), seeds=(0, 2))
    assert "2 seeds are too few for a test" in say(two)["batch.untested"][0]
    assert "(two seeds: " in say(two)["batch.cost"][0]


# --- pages ----------------------------------------------------------------------------------------


def test_both_languages_say_the_same(folder: Path) -> None:
    run = run_of(folder)
    en, zh = (analyse(run, Words(lang)) for lang in LANGUAGES)
    for a, b in zip(en, zh, strict=True):
        assert [f.key for f in a.findings] == [f.key for f in b.findings]
        for x, y in zip(a.findings, b.findings, strict=True):
            assert numbers(x.text) == numbers(y.text), x.text


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
    run = load([fake_ranks.make(tmp_path, costs=False)])
    assert all(make(run, EN) is None for make in TABLES.values())
    for figures in (scaling_figures, batch_figures):
        assert list(figures(run, EN)) == []
    assert not [k for k in say(tmp_path) if k.startswith(("scaling", "modes", "batch"))]


@pytest.mark.parametrize(
    "arms",
    [["one-node"], ["nodes-n4"], ["one-node", "nodes-n4"], ["native"], ["replicas", "shared"],
     ["batch-48", "batch-240"]],
    ids=",".join,
)  # fmt: skip
def test_any_subset_makes_a_page(tmp_path: Path, arms: list[str]) -> None:
    folder = fake_nodes.make(tmp_path, arms=arms, backends=["torch"], seeds=[0])
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name
