"""Split models in the report: the numbers in its tables and sentences."""

from __future__ import annotations

from pathlib import Path

import fake_splits
import pytest
from fake_splits import BATCH, LINK, UPDATE
from report_splits import row, table
from test_report_analysis import say

from dualml.cost.split import all_reduce_s
from dualml.report.load import load
from dualml.report.splits import arms, calibration, events, grids, pays, spent
from dualml.report.words import Words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_splits.make(tmp_path_factory.mktemp("splits"))


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    return say(folder)


def test_settings(folder: Path) -> None:
    inter = row(folder, "splits", "inter")
    assert inter["mesh"] == "1 × 2 × 1"
    assert (inter["stages"], inter["schedule"]) == ("4", "interleaved 1F1B")
    assert row(folder, "splits", "even")["cut by"] == "activations"
    assert row(folder, "splits", "rpc")["engine"] == "RPC"
    assert row(folder, "splits", "slow-piped")["handicap"].startswith("rank 1: + 1 ms")
    plan = row(folder, "split-plans", "naive, gpipe, one-1, one-4, one-8, gpipe-8, slow-piped")
    assert plan["stages"] == "flatten … tanh3 on rank 0; fc4 … fc7 on rank 1"
    assert (plan["parameters"], plan["over links"]) == ("3.54 MiB · 3.03 MiB", "1 MiB")
    inside = row(folder, "split-plans", "inside, inside-2, slow-inside")
    assert inside["slices"] == "by column: fc1, fc3, fc5; by row: fc2, fc4, fc6"
    assert inside["in collectives"] == "2.5 MiB"


def test_whole_against_split(folder: Path) -> None:
    whole, split = (row(folder, "split-whole", arm) for arm in ("deep", "gpipe"))
    # 6 · 256 · 1,717,248 operations at 100 GFLOP/s
    assert whole["torch: time per update"] == "26.4"
    assert whole["torch: / whole"] == "–"
    assert split["torch: time per update"] == "18.8"
    assert split["torch: / whole"] == "0.714"
    assert split["against the whole model"] == "✓ equal"
    assert row(folder, "split-whole", "mesh")["torch: time per update"].endswith(" *")
    rpc = row(folder, "split-whole", "rpc")
    assert (rpc["torch: time per update"], rpc["mindspore: time per update"]) == ("50", "–")
    parts = row(folder, "split-parts", "inside", "torch")
    update, sum_ = 1e3 * UPDATE, sum(all_reduce_s(2, 4 * BATCH * 512, LINK) for _ in range(5))
    assert float(parts["update"]) == update
    assert float(parts["transferring"]) == pytest.approx(1e3 * sum_, rel=5e-3)
    assert float(parts["waiting"]) == pytest.approx(0, abs=1e-3)
    assert not [r for r in table(folder, "split-parts").rows if r[0].text == "rpc"]


def test_parts_add_up_to_the_update(folder: Path) -> None:
    run = load([folder])
    for arm in ("naive", "inter", "inside", "mesh"):
        step = spent.step(run, arm, "torch")
        assert step is not None
        for parts in spent.by_rank(run, arm, "torch"):
            assert sum(parts.values()) == pytest.approx(step.mean, rel=0.02)


def test_typical_update_and_its_messages(folder: Path) -> None:
    run = load([folder])
    (trial,) = run.select("one-4", "torch")
    assert events.typical(trial) in (1.0, 3.0, 4.0)
    told = events.rows(run, trial)
    sends = [r for r in told if r[2] == "send"]
    assert len(sends) == 8
    waited = [end - begin for _, _, _, begin, end in sends if end - begin > 1e-5]
    assert waited == pytest.approx([LINK.seconds(1, 131072)] * len(waited))
    assert {r[1] for r in told if r[2] == "F" and r[0] == 1} == {"1F0", "1F1", "1F2", "1F3"}
    (both,) = run.select("mesh", "torch")
    assert events.met(both, 0)["forward"].nbytes == 512 * 1024
    assert events.met(both, 0).keys() == {"forward"}  # nobody wants the samples' gradient
    assert events.met(both, 2)["backward"].calls == 8


def test_bubble(folder: Path) -> None:
    run = load([folder])
    for arm, theory in (("one-1", 1 / 2), ("one-4", 1 / 5), ("gpipe-8", 1 / 9), ("inter", 1 / 9)):
        assert grids.ideal(run, arm) == pytest.approx(theory)
    assert grids.ideal(run, "naive") == 0.5
    assert grids.ideal(run, "inside") is None
    mine = row(folder, "bubble", "one-4", "torch")
    assert mine["idle, in theory"] == "20.0"
    trial = next(t for t in run.select("one-4", "torch"))
    assert mine["idle, measured"] == f"{100 * trial.split['bubble']:.1f}"
    assert mine["idle, with these passes"] == f"{100 * trial.split['bubble_passes']:.1f}"
    assert trial.split["bubble_passes"] <= trial.split["bubble"]
    assert "torch, 1F1B: from m = 1 to m = 8" in say(folder)["pipeline.counts"][1]


def test_memory(folder: Path) -> None:
    gpipe, one = (row(folder, "memory", arm, "torch") for arm in ("gpipe-8", "one-8"))
    held, bound = "micro-batches held", "micro-batches, the schedule's bound"
    assert gpipe[held] == gpipe[bound] == "2 × 8"
    assert one[held] == one[bound] == "2 · 1"
    assert (gpipe["activations held"], one["activations held"]) == (
        "2 × 250 KiB",
        "62.5 KiB · 31.2 KiB",
    )
    assert row(folder, "memory", "rpc", "torch")[held] == "–"
    assert say(folder)["pipeline.held"][0].endswith("62.5 KiB with 1F1B, 4 times as much.")
    assert say(folder)["pipeline.live"] == [
        "None of 52 ranks held more micro-batches at once than its schedule allows."
    ]


def test_links(folder: Path) -> None:
    made = row(folder, "links", "0 → 1", "activations", "naive, gpipe, one-4, cut-2, …")
    assert made["bytes, planned"] == made["bytes, counted"] == "524,288"
    assert (made["messages or calls, planned"], made["counted / planned"]) == ("4", "1")
    assert made["backend"] == "torch, mindspore"
    both = row(folder, "links", "mesh", "0 → 2; 1 → 3")
    assert both["what crosses"] == "activations"
    rpc = [r for r in table(folder, "links").rows if r[0].text == "rpc"]
    assert rpc
    assert all(r[-1].text == "–" for r in rpc)
    assert "72 carried what the plan says" in say(folder)["splits.crossed"][0]


def test_cuts(folder: Path) -> None:
    assert [r[1].text for r in table(folder, "cuts").rows] == ["fc2", "tanh3", "fc4"]
    assert row(folder, "cuts", "even")["cut by"] == "activations"
    told = say(folder)
    assert "slowest before fc2" in told["pipeline.cut"][0]
    assert told["pipeline.balances"][0].startswith("torch: where a balance cuts: activations tanh3")


def test_slow_link(folder: Path, said: dict[str, list[str]]) -> None:
    made = row(folder, "slow-link", "slow-inside", "torch")
    assert (made["crosses"], made["messages and calls"]) == ("2.5 MiB", "5")
    # five all-reduces, each 2 ms and 512 KiB over 100 MB/s longer
    slower = 5 * (2e-3 + 4 * BATCH * 512 / 1e8)
    before, after = float(made["without"]), float(made["with"])
    assert after - before == pytest.approx(1e3 * slower, rel=0.01)
    assert said["slow_link.order"][0] == (
        "torch: the slow link costs slow-piped least and slow-inside most."
    )


def test_when_splitting_pays(folder: Path, said: dict[str, list[str]]) -> None:
    run = load([folder])
    found = calibration.calibrate(run, "torch")
    assert found is not None
    assert found.rates == pytest.approx({"deep": 1e11, "narrow": 1e11})
    for fitted in (found.messages, found.reduces):
        assert fitted is not None
        assert fitted.link.alpha_s == pytest.approx(LINK.alpha_s, rel=1e-3)
        assert fitted.link.beta_s_per_byte == pytest.approx(LINK.beta_s_per_byte, rel=1e-3)
    made = {p.arm: p for p in calibration.predictions(run, found)}
    assert "naive" not in made  # its update is not the model's, with 4 micro-batches
    assert "mesh" not in made
    assert made["gpipe"].ratio == pytest.approx(0.94, abs=0.03)
    asked = pays.question(run, found)
    assert asked is not None
    assert (asked.arm, asked.layers, asked.m) == ("deep", 6, 4)
    first = pays.width_from(pays.INSIDE, pays.BY_LAYER, asked, found)
    assert first is not None

    def faster(d: int) -> bool:
        times = [pays.seconds(w, [d] * 7, asked, found) for w in (pays.INSIDE, pays.BY_LAYER)]
        return times[0] is not None and times[1] is not None and times[0] < times[1]

    assert faster(first)
    assert not faster(first - 1)
    assert f"from d = {first} on inside the layers is faster" in said["pays.width"][0]
    assert said["pays.rate"][0].startswith("torch: a rank does 100 GFLOP/s")
    assert "α = 100 µs and 1/β = 1 GB/s" in said["pays.messages"][0]


def test_how_an_arm_is_called(folder: Path) -> None:
    run, en, zh = load([folder]), Words("en"), Words("zh")
    told = {arm: arms.told(run, arm, en) for arm in arms.split_arms(run)}
    assert told["gpipe"] == "by layer in 2, GPipe, m = 4"
    assert told["inside"] == "inside in 2"
    assert told["mesh"] == "by layer in 2, inside in 2, 1F1B, m = 4"
    assert told["rpc"] == "by layer in 2, RPC"
    assert arms.told(run, "gpipe", zh) == "按层 2 段、GPipe、m = 4"
    assert arms.base_of(run, "slow-piped") == "one-4"
