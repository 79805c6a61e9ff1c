"""One rank against several: the report's speed-ups, efficiencies and sentences about them."""

from __future__ import annotations

import re
from pathlib import Path

import fake_nodes
import pytest
from page_parts import evidence_figures, findings_by_key
from report_nodes import notes, page_of, row, run_of, table
from test_report_page import Page

from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.load import load
from dualml.report import render, scaling, scaling_families
from dualml.report.scaling_families import STRONG, WEAK, CoreBudget

pytestmark = pytest.mark.whole

#: Values of the arms with four ranks on two cores: S = 2.71 and 2.93, E = 67.75 and 73.25 %.
NEVER = ("2.71", "2.93", "67.8", "73.2", "73.3", "67.7")


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


# --- arithmetic -----------------------------------------------------------------------------------


def test_formulas() -> None:
    assert scaling_families.speedup(STRONG, 4, 12.0, 4.0) == 3
    assert scaling_families.speedup(WEAK, 4, 12.0, 16.0) == 3
    # a tenth is repeated: 10 / (1 + 9 / 3)
    assert scaling_families.amdahl(3, 10.0, 1.0) == 2.5
    assert scaling_families.amdahl(3, 10.0, 1.0, 1.0) == 2
    assert scaling_families.amdahl(1, 10.0, 1.0) == 1
    assert scaling_families.gustafson(4, 10.0) == 4
    assert scaling_families.gustafson(4, 10.0, 10.0) == 2


@pytest.mark.parametrize(
    ("room", "enough", "used"),
    [
        (CoreBudget(2, 1, 2), True, 2),
        (CoreBudget(4, 1, 2), False, 2),
        (CoreBudget(2, 2, 3), False, 3),
        (CoreBudget(2, 1, None), None, None),
        (CoreBudget(2, None, 4), None, None),
    ],
)
def test_room(room: CoreBudget, enough: bool | None, used: int | None) -> None:
    assert room.has_enough_cores is enough
    assert room.used_cores == used


def test_families_are_found_by_their_settings(folder: Path, tmp_path: Path) -> None:
    run = run_of(folder)
    assert [(f.kind, f.base, f.arms) for f in scaling_families.families(run)] == [
        (STRONG, "one-node", ("nodes-n2", "nodes-n4")),
        (WEAK, "one-node", ("weak-2", "weak-4")),
    ]
    shared = scaling_families.families(run, pinned=False)
    assert [(f.kind, f.base, f.arms) for f in shared] == [(STRONG, "alone", ("shared",))]
    # Without the plain arms those that combine in another way make families of their own.
    few = ["one-node", "native", "overlap"]
    other = load([fake_nodes.make_run(tmp_path / "a", arms=few)])
    assert {f.strategy: f.arms for f in scaling_families.families(other)} == {
        "native": ("native",),
        "all_reduce": ("overlap",),
    }

    def change(run: dict) -> None:
        run["experiment"]["arms"]["nodes-n2"]["optimizer"]["lr"] = 0.1
        run["experiment"]["arms"]["weak-2"]["cores"] = 2
        run["experiment"]["arms"]["weak-4"]["updates"] = 50

    apart = load([fake_nodes.make_run(tmp_path / "b", change=change)])
    assert [f.arms for f in scaling_families.families(apart)] == [("nodes-n4",)]


def test_one_rank_with_threads_shares_its_cores(folder: Path) -> None:
    run = run_of(folder)
    assert scaling_families.core_budget(run, "shared", "torch") == CoreBudget(2, 1, 2)
    assert scaling_families.core_budget(run, "alone", "torch").each is None  # not recorded
    assert findings_by_key(folder)["scaling.shared"] == [
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
    found = [p for p in scaling.scaling_points(run_of(folder)) if p.arm == "nodes-n2"]
    assert found[0].speedup is not None
    assert found[0].speedup.mean == pytest.approx(1.6)
    assert found[0].speedup.low == pytest.approx(1.6 - 0.49683, abs=1e-4)
    assert found[0].parts["rest"] == pytest.approx(found[0].step.mean - 4e-3)


def test_seeds_decide_what_is_said_of_chance(tmp_path: Path) -> None:
    two = fake_nodes.make_run(tmp_path / "two", seeds=(0, 1), arms=list(fake_nodes.SCALING))
    made = table(two, "speed-up")
    assert notes(made, "nodes-n2", "torch")[4] == "1.4 – 1.6"
    assert "speed-up 1.5 (two seeds: 1.4 – 1.6)" in findings_by_key(two)["scaling.faster"][0]
    one = fake_nodes.make_run(tmp_path / "one", seeds=(1,), arms=list(fake_nodes.SCALING))
    made = table(one, "speed-up")
    assert notes(made, "nodes-n2", "torch")[4] == ""
    assert "speed-up 1.6, efficiency 80.0 %." in findings_by_key(one)["scaling.faster"][0]


def test_sentences_of_scaling(report_sentences: dict[str, list[str]]) -> None:
    assert (
        "only where every rank had cores of its own" in report_sentences["caveats.crowded_some"][0]
    )
    assert "caveats.crowded" not in report_sentences
    assert report_sentences["scaling.faster"][0] == (
        "torch, strong scaling, n = 2: an update takes 6.32 ms instead of 10 ms: speed-up 1.6 "
        "(95 % interval 1.1 – 2.1), efficiency 80.0 %."
    )
    # 6.32 - 5 = 0.5 + 0.6 + 0.4 + 2.32 + (2 - 4.5)
    assert report_sentences["scaling.why_less"][0].startswith(
        "torch, n = 2: an update takes 1.32 ms more than T₁ / n (5 ms): 0.5 ms because every rank "
        "repeats the update of the parameters, 0.6 ms waiting, 0.4 ms transferring and 2.32 ms "
        "between updates, less 2.5 ms"
    )
    assert report_sentences["scaling.law"][0] == (
        "torch, n = 2: since every rank repeats the update of the parameters (1 ms), Amdahl's law "
        "allows a speed-up of 1.82; with the measured communication (1 ms) it is 1.54. "
        "Measured: 1.6."
    )
    assert "with 48 samples for every rank" in report_sentences["scaling.weak"][0]
    assert report_sentences["scaling.crowded"][0] == (
        "torch: 4 ranks on 2 cores take turns, so no speed-up and no efficiency are given for "
        "nodes-n4 and weak-4. Samples that a core gets done in a second: nodes-n4 6,504, "
        "weak-4 7,032; one-node 4,800."
    )


def test_ranks_that_take_turns_have_no_speedup(folder: Path, pages: tuple[str, str, str]) -> None:
    lang, html, markdown = pages
    words = Messages(lang)
    for p in scaling.scaling_points(run_of(folder)):
        if p.n == 4:
            assert p.no_speedup_reason == scaling.OVERSUBSCRIBED
            assert (
                p.speedup is p.efficiency is p.predicted is p.predicted_with_communication is None
            )
    made = table(folder, "speed-up", words)
    for arm in ("nodes-n4", "weak-4"):
        line = next(r for r in made.cells if r[0].text == arm)
        assert [c.text for c in line[4:]] == ["–"] * 4
        assert line[4].note == words(
            "scaling.no_measurement",
            values=("4 ranks on 2 cores" if lang == "en" else "4 个 rank 共用 2 个核心"),
        )
    title = words("topic.scaling")
    page = re.search(r'<section id="scaling">.*?</section>', html, re.S)
    top = re.search(r'<section id="summary">.*?</section>', html, re.S)
    text = re.search(rf"## {re.escape(title)}\n.*?\n## ", markdown, re.S)
    for part in (page, text):
        assert part is not None
        told = re.sub("<[^>]*>", " ", part[0]) + " ".join(
            re.findall('aria-label="([^"]*)', part[0])
        )
        assert "nodes-n4" in told
        for number in NEVER:
            assert not re.search(rf"(?<![\d.,]){re.escape(number)}", told), number
    assert top is not None
    drawn = re.findall(r'aria-label="([^"]*)".*?<figcaption>(.*?)</figcaption>', top[0], re.S)
    assert ["nodes-n4" in text for text in drawn[0]] == [False, True]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_unknown_cores_are_no_cores(tmp_path: Path, lang: str) -> None:
    words, arms = Messages(lang), list(fake_nodes.SCALING)
    folder = fake_nodes.make_run(tmp_path / "run", arms=arms, cores=None)
    run = run_of(folder)
    assert [f.name for f in evidence_figures(run, "scaling", words)] == ["update-parts"]
    assert words("scaling.unknown") in scaling.notices(run, words)[0]
    assert all(p.speedup is None for p in scaling.scaling_points(run_of(folder)))
    assert len(findings_by_key(folder, lang)["scaling.unknown"]) == 1
    assert "scaling.faster" not in findings_by_key(folder, lang)


def test_what_is_slower_or_open_is_called_so(tmp_path: Path) -> None:
    def slow(run: dict) -> None:
        for trial in run["trials"]:
            if trial["arm"] == "nodes-n2":
                trial["train_s"] *= 3 if trial["backend"] == "torch" else 1.5

    folder = fake_nodes.make_run(tmp_path, arms=list(fake_nodes.SCALING), change=slow)
    assert findings_by_key(folder)["scaling.slower"][0].startswith(
        "torch, strong scaling, n = 2: an update"
    )
    assert "holds 1, so neither gain nor loss" in findings_by_key(folder)["scaling.alike"][0]


def test_missing_trials(tmp_path: Path) -> None:
    def lose(run: dict) -> None:
        for trial in run["trials"]:
            keys = ("train_s", "updates", "final_loss", "test_accuracy", "ranks")
            lost = trial["arm"] == "one-node" and trial["backend"] == "torch"
            if lost or (trial["arm"], trial["seed"]) == ("weak-2", 0):
                trial |= {"status": "failed", "reason": "lost"} | dict.fromkeys(keys)

    folder = fake_nodes.make_run(tmp_path, arms=list(fake_nodes.SCALING), change=lose)
    Page(render([folder])[0].read_text("utf-8"))
    made = table(folder, "speed-up")
    assert (
        notes(made, "nodes-n2", "torch")[4] == "no successful trial of one-node with the same seed"
    )
    assert row(folder, "speed-up", "weak-2", "mindspore")[4] == "1.6"
