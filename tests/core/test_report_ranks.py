"""Several ranks in the report: tables, sentences and figures hold the numbers of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fake_ranks
import pytest
from test_report_analysis import numbers, say
from test_report_page import Page, rows

from dualml.report import machine, ranks, render
from dualml.report.analysis import analyse, headline
from dualml.report.cells import Table
from dualml.report.chapters import chapters
from dualml.report.collectives import measured, size_of
from dualml.report.fits import fitted
from dualml.report.load import load
from dualml.report.schedules import schedules
from dualml.report.strategies import CLOSED, cards, counts, source
from dualml.report.words import LANGUAGES, Words

EN = Words("en")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_ranks.make(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    return say(folder)


def table(folder: Path, name: str) -> Table:
    found = [t for c in chapters(load([folder]), EN) for t in c.tables if t.name == name]
    assert found, name
    return found[0]


def row(made: Table, *texts: str) -> list[str]:
    """Texts of the one row that holds all of these."""
    lines = [[cell.text for cell in line] for line in made.rows]
    found = [line for line in lines if set(texts) <= set(line)]
    assert len(found) == 1, (texts, lines)
    return found[0]


# --- reading --------------------------------------------------------------------------------------


def test_arms_are_held_against_the_right_ones(folder: Path) -> None:
    run = load([folder])
    assert run.main_arms() == ["single", "all-reduce-n2", "ring-n2"]
    assert ranks.base_of(run, "slow-ring") in ("ring-n2", "base-ring")
    assert ranks.like(run, "sum", "aggregation.reduce", reduce="weighted") == "all-reduce-n2"
    assert ranks.like(run, "local-4", "aggregation.every", every=1) == "parameters"
    assert ranks.like(run, "sum-lr-over-n", "aggregation.reduce", reduce="weighted") is None
    assert ranks.handicap(run, "slow-ring") == "compute"
    assert ranks.told_slow(run, "slow-late", EN) == "rank 1: computing × 4, from update 51 on"
    assert machine.crowded(run) == [("torch", 4, 2, 2), ("mindspore", 4, 2, 2)]
    assert machine.vector_bytes(run) == 4 * 51_902


def test_a_base_of_another_length_is_better_than_none(tmp_path: Path) -> None:
    def longer(run: dict) -> None:
        run["experiment"]["arms"]["base-ring"]["epochs"] = 2

    arms = ["single", "base-ring", "slow-ring"]
    run = load([fake_ranks.make(tmp_path, arms=arms, change=longer)])
    assert ranks.base_of(run, "slow-ring") == "base-ring"


def test_measurements_and_fits(folder: Path) -> None:
    run = load([folder])
    found = measured(run)
    assert [(m.backend, m.n) for m in found] == [
        ("torch", 2), ("torch", 4), ("mindspore", 2), ("mindspore", 4),
    ]  # fmt: skip
    for m in found:
        assert "neighbour" not in m.exact()
        for (strategy, nbytes), line in m.rows.items():
            told = fitted(run, m.backend, m.n, strategy, nbytes)
            assert told == pytest.approx(line["seconds"], rel=1e-6)
    assert [size_of(b) for b in (1000, 1024, 1.5 * 2**20, 2**30)] == [
        "1,000 B", "1 KiB", "1.5 MiB", "1 GiB",
    ]  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------


def test_times_with_quartiles(folder: Path) -> None:
    made = table(folder, "collectives")
    assert len(made.rows) == 2 * 2 * 5
    line = next(r for r in made.rows if [c.text for c in r][:3] == ["ring", "torch", "4"])
    # 6 messages of 0.1 ms and 1.5 S of 1 ns/B
    assert line[3].text == "0.602"
    assert line[4].text == "2.17"
    assert line[4].note == "2.15 – 2.19"
    best = next(r for r in made.rows if [c.text for c in r][:3] == ["all_reduce", "torch", "4"])
    assert [c.tone for c in best[3:]] == ["good", "good"]


def test_bytes_counted_closed_and_on_the_wire(folder: Path) -> None:
    made = table(folder, "traffic")
    assert row(made, "tree", "torch", "4") == [
        "tree", "torch", "4", "2", "2", "2,097,152", "2,097,152", "6,291,456", "6,291,456", "1",
    ]  # fmt: skip
    native = row(made, "all_reduce", "mindspore", "4")
    assert native[3] == native[5] == "inside"
    assert native[-1] == "2"


def test_fits_and_checks(folder: Path) -> None:
    line = row(table(folder, "fits"), "mindspore", "4", "point to point")
    assert line[3:6] == ["300", "3", "0.333"]
    checked = row(table(folder, "checks"), "torch", "ring")
    assert checked[1:3] == ["4", "2"]
    assert checked[-2:] == ["1.5", "1.5 – 1.5"]


def test_training_slowdown_and_staleness(folder: Path) -> None:
    made = table(folder, "training")
    assert row(made, "ring-n2", "mindspore")[2:6] == ["2", "ring", "45", "40.0"]
    assert row(made, "ring-n2", "torch")[-1] == "✓ equal"
    assert row(made, "sum", "torch")[-1] == "another rule"
    assert not [r for r in made.rows if r[0].text == "slow-ring"]
    slow = row(table(folder, "slowdown"), "slow-ring", "mindspore")
    assert slow[3:] == ["30", "84", "2.8", "3.5", "2.8", "67.9"]
    stale = row(table(folder, "staleness"), "async", "torch")
    assert stale[3:] == ["1", "3", "0.5 · 1.5"]


def test_settings_say_what_the_ranks_do(folder: Path, tmp_path: Path) -> None:
    page = render([folder], tmp_path)[0].read_text("utf-8")
    told = {re.findall(r">([^<>]+)<", line)[0]: line for line in rows(page, "aggregation")}
    assert len(told) == 14
    assert "one by one" in told["one-by-one"]
    assert "topk 1 %" in told["top"]
    assert ">free<" in told["async-free"]
    how = rows(page, "how")
    reduce = next(line for line in how if ">reduce<" in line)
    assert 'class="tone good">native' in reduce
    assert 'class="tone near">composed' in reduce
    assert "gather and fold" in reduce
    assert len(rows(page, "serial")) == 14
    assert len(rows(page, "other-rules")) == 7
    assert len(rows(page, "trials")) == 15 * 2  # nothing trained in micro
    assert len(rows(page, "arms")) == 2  # 0.05 and 0.025


# --- sentences ------------------------------------------------------------------------------------


def test_collectives_in_sentences(said: dict[str, list[str]]) -> None:
    assert said["collectives.crossover"][0] == (
        "torch, n = 4: tree (few messages) is faster up to 1 KiB, ring (few bytes) from 1 MiB on: "
        "between them latency stops counting most and bandwidth starts to."
    )
    # 2 α = 2.5 S β at S = 80 kB
    assert "between 64 KiB and 128 KiB" in said["collectives.crossover_fit"][0]
    assert "all_reduce from 1 KiB to 1 MiB" in said["collectives.fastest"][0]
    assert "mindspore takes 3 times as long as on torch" in said["collectives.backends"][0]
    assert "24 of 24 measurements" in said["collectives.counted"][0]
    assert len(said["collectives.wire_same"]) == len(said["collectives.wire_more"]) == 2
    assert "ring × 2" in said["collectives.wire_more"][0]
    assert "α = 100 µs" in said["collectives.fit"][0]
    assert "1 / β = 1 GB/s" in said["collectives.fit"][0]
    assert "collectives.close" not in said
    assert "20 of 20 measurements within a factor of two" in said["collectives.checks"][0]


def test_a_close_race_is_said(tmp_path: Path) -> None:
    folder = fake_ranks.make(tmp_path, arms=["micro-n2"], backends=["torch"], costs=False)
    path = next(folder.glob("trials/*/torch/seed0/collectives.json"))
    told = json.loads(path.read_text("utf-8"))
    for line in told["rows"]:
        if line["strategy"] == "ring" and line["bytes"] == 1024:
            line["low"] = 0.0
    path.write_text(json.dumps(told), "utf-8")
    assert "at 1 of 2 sizes" in say(folder)["collectives.close"][0]


def test_native_and_composed(said: dict[str, list[str]]) -> None:
    assert said["native.list"][1] == (
        "On mindspore, executed by the framework itself: all_reduce and broadcast; "
        "composed here of other messages: reduce."
    )
    assert len(said["native.composed_cost"]) == 2
    assert (
        "reduce_broadcast, of which mindspore composes a part, takes 3 times"
        in (said["native.composed_cost"][0])
    )
    assert "takes 2 times as long as all_reduce at 1 KiB" in said["native.ring"][0]


def test_training_in_sentences(said: dict[str, list[str]]) -> None:
    assert said["training.steps"][0] == (
        "torch, n = 2: among arms that differ in the strategy alone, all-reduce-n2 has the "
        "shortest update (10 ms) and ring-n2 the longest (15 ms, 1.5 times)."
    )
    assert "all_reduce 40.0 % and ring 40.0 %" in said["training.shares"][0]
    assert "with learning rate 0.05 steps as a mean with 0.1" in said["training.sum"][0]
    assert "steps as a mean with 0.05, the rate of all-reduce-n2" in said["training.sum_same"][0]
    assert "every 4 updates" in said["training.local"][0]
    assert "30 against 10 ms per update" in said["training.one_by_one"][0]
    assert [s.split(" against ")[0] for s in said["training.compress"]] == [
        "fp16 saves 50.0 % of the bytes",
        "top saves 98.0 % of the bytes",
    ]
    assert "1 on torch, at most 3" in said["training.staleness"][0]
    assert "convergence.first" not in said


def test_the_slow_rank_in_sentences(said: dict[str, list[str]]) -> None:
    assert "slow-ring × 2.8" in said["bottleneck.one"][0]
    assert "67.9 % of their time" in said["bottleneck.waits"][0]
    assert said["bottleneck.since"][0] == (
        "slow-late on torch: 10 ms per update until the handicap sets in at update 51, "
        "28 ms from then on (2.8 times)."
    )
    assert "1.25 at the median" in said["bottleneck.foreseen"][0]
    assert "bottleneck.no_base" not in said


def test_n_workers_against_one(said: dict[str, list[str]], tmp_path: Path) -> None:
    assert said["serial.count"] == [
        "n workers against one: 14 of 14 comparisons equal within rounding."
    ]
    assert any("async and async-free follow" in s for s in said["serial.other_rule"])
    folder = fake_ranks.make(tmp_path, different=True)
    assert "13 of 14" in say(folder)["serial.count"][0]
    assert "ring-n2, seed 0, on mindspore differs from single" in say(folder)["serial.diverged"][0]


def test_the_headline_counts_workers(folder: Path, tmp_path: Path) -> None:
    tone, text = headline(load([folder]), EN)
    assert tone == "good"  # an order that is free on purpose is no blemish
    assert text.endswith("n workers = one worker: 14 of 14 equal.")
    tone, text = headline(load([fake_ranks.make(tmp_path / "a", different=True)]), EN)
    assert tone == "bad"
    alone = fake_ranks.make(tmp_path / "b", backends=["torch"])
    assert headline(load([alone]), EN) == ("good", "n workers = one worker: 7 of 7 equal.")


def test_shared_cores_are_said_beside_the_times(folder: Path, tmp_path: Path) -> None:
    for chapter in chapters(load([folder]), EN):
        assert ("not speed-ups" in "".join(chapter.intro)) == (chapter.name != "staleness")
    assert "caveats.crowded" in say(folder)

    def roomy(run: dict) -> None:
        for known in run["environment"].values():
            known["cores"] = "64 usable, 64 physical, 128 logical"

    other = fake_ranks.make(tmp_path, change=roomy)
    assert "caveats.crowded" not in say(other)
    assert not [c for c in chapters(load([other]), EN) if "speed-ups" in "".join(c.intro)]


def test_both_languages_say_the_same(folder: Path) -> None:
    run = load([folder])
    en, zh = (analyse(run, Words(lang)) for lang in LANGUAGES)
    for a, b in zip(en, zh, strict=True):
        assert [f.key for f in a.findings] == [f.key for f in b.findings]
        for x, y in zip(a.findings, b.findings, strict=True):
            assert numbers(x.text) == numbers(y.text), x.text


# --- principle and figures ------------------------------------------------------------------------


def test_every_strategy_has_its_card(folder: Path) -> None:
    made = {c.name: c for c in cards(load([folder]), EN)}
    assert set(made) == {*fake_ranks.STRATEGIES, fake_ranks.ASYNC}
    assert "Patarasuk & Yuan 2009" in made["ring"].source
    assert made["tree"].counts[1] == (
        "n = 4: 4 steps; the busiest rank sends 2 messages and 2 S, all ranks together 6 S."
    )
    assert counts("ring", 4, EN).startswith("n = 4: 6 steps; the busiest rank sends 6 messages and")
    for name, formulas in CLOSED.items():
        assert len(formulas) == 3
        assert EN(f"strategy.{name}")
        if name not in ("all_reduce", "all_gather", "reduce_broadcast"):
            assert source(name), name


def test_schedules_are_drawn_once(folder: Path) -> None:
    made = {f.name: f for f in schedules(load([folder]), EN)}
    assert set(made) == {"schedule-all-reduce", "schedule-reduce-broadcast", "schedule-neighbour"}
    assert made["schedule-all-reduce"].alt == (
        "Schedule of all_reduce and ring among 4 ranks: 24 messages in 6 steps."
    )
    assert made["schedule-reduce-broadcast"].width < made["schedule-all-reduce"].width


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_page(folder: Path, tmp_path: Path, lang: str) -> None:
    paths = render([folder], tmp_path, lang)
    text, markdown = (p.read_text("utf-8") for p in paths[:2])
    page = Page(text)
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    names = [i.removeprefix("figure-") for i in ids if i.startswith("figure-")]
    for name in ("collectives", "predictions", "communication", "bottleneck-torch", "slowdown",
                 "serial-distance", "ranks-strategies", "ranks-reduce"):  # fmt: skip
        assert name in names
    for name in names:
        assert f"](figures/{name}.svg)" in markdown
        assert (tmp_path / f"figures/{name}.svg").is_file()
    assert [i for i in ids if i.startswith("chapter-")] == [
        f"chapter-{c}" for c in ("collectives", "training", "bottleneck", "staleness")
    ]
    for file in ("aggregation/ring.py", "aggregation/parallel.py", "dualml_torch/communicator.py"):
        assert file in text
        assert file in markdown
    assert render([folder], tmp_path / "again", lang)[0].read_text("utf-8") == text


# --- what is missing ------------------------------------------------------------------------------

SUBSETS = [
    ["micro-n2"],
    ["micro-n4", "single"],
    ["single"],
    ["all-reduce-n2"],
    ["slow-ring"],
    ["slow-ring", "base-ring"],
    ["async-free"],
    ["single", "sum"],
]


@pytest.mark.parametrize("arms", SUBSETS, ids=",".join)
@pytest.mark.parametrize("costs", [True, False])
def test_any_subset_makes_a_page(tmp_path: Path, arms: list[str], costs: bool) -> None:
    backends = ["torch"] if costs else ["numpy", "torch"]
    folder = fake_ranks.make(tmp_path, arms=arms, backends=backends, costs=costs, parity=not costs)
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name  # no table without a row
    if arms == ["slow-ring"]:
        assert "bottleneck.no_base" in say(folder)
    trained = [a for a in arms if "micro" not in a]
    assert ("<code>sgd</code>" in text) == bool(trained)


@pytest.mark.parametrize("status", ["failed", "unsupported"])
def test_everything_failed(tmp_path: Path, status: str) -> None:
    def fail(run: dict) -> None:
        keys = ("final_loss", "train_s", "updates", "test_accuracy", "ranks", "staleness")
        for trial in run["trials"]:
            trial |= {"status": status, "reason": "no process groups", "how": {}}
            trial |= dict.fromkeys(keys)

    folder = fake_ranks.make(tmp_path, change=fail, costs=False, parity=False)
    text = render([folder])[0].read_text("utf-8")
    assert len(rows(text, "failures")) == 34
    assert "chapter-bottleneck" not in text


def test_ranks_whose_times_are_lost(tmp_path: Path) -> None:
    def lose(run: dict) -> None:
        for trial in run["trials"]:
            for key in ("ranks", "communication_share", "how", "train_s"):
                trial.pop(key, None)

    folder = fake_ranks.make(tmp_path, change=lose, costs=False)
    for path in folder.glob("trials/*/*/*/rank*.times.npz"):
        path.unlink()
    for path in folder.glob("trials/*/*/*/collectives.json"):
        path.unlink()
    text = render([folder])[0].read_text("utf-8")
    assert "figure-communication" not in text
    assert "training.steps" not in say(folder)


def test_folders_of_two_backends_join(tmp_path: Path) -> None:
    a = fake_ranks.make(tmp_path / "a", backends=["torch"])
    b = fake_ranks.make(tmp_path / "b", backends=["torch", "mindspore"])
    run = load([a, b])
    assert {s.backend for s in run.serial} == {"torch (a)", "torch (b)", "mindspore"}
    assert {f["backend"] for f in run.cost["fits"]} == {"torch (a)", "torch (b)", "mindspore"}
    assert render([a, b], tmp_path / "out")
