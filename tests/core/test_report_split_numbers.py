"""Split models in the report: the numbers in its tables and sentences."""

from __future__ import annotations

from pathlib import Path

import fake_splits
import pytest
from fake_splits import BATCH, LINK, UPDATE
from page_parts import page, sentences
from report_splits import row, table

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.planning.cost.split import all_reduce_s
from dualml.report.splits import calibration, events, times
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.splits.calibration import LAYER_SPLIT, TENSOR_SPLIT, make_question
from dualml.report.topics import splits as answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_splits.make_run(tmp_path_factory.mktemp("splits"))


def page_sentences(folder: Path) -> dict[str, list[str]]:
    return sentences(page(folder))


@pytest.fixture(scope="module")
def report_sentences(folder: Path) -> dict[str, list[str]]:
    return page_sentences(folder)


def test_settings(folder: Path) -> None:
    inter = row(folder, "split-settings", "inter")
    assert inter["mesh"] == "1 × 2 × 1"
    assert (inter["stages"], inter["schedule"]) == ("4", "interleaved 1F1B")
    assert row(folder, "split-settings", "even")["cut by"] == "activations"
    assert row(folder, "split-settings", "rpc")["engine"] == "RPC"
    assert row(folder, "split-settings", "slow-piped")["handicap"].startswith("rank 1: + 1 ms")
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
    assert not [r for r in table(folder, "split-parts").cells if r[0].text == "rpc"]


def test_the_answer_is_the_fastest_of_each_way(folder: Path) -> None:
    run = load([folder])
    made = answer.fastest_splits(Splits(run))
    ways = [(best.base, best.arm.main_split_kind) for best in made]
    assert len(ways) == len(set(ways))
    for best in made:
        assert not best.arm.slow
        for other in Splits(run).families[best.base]:
            alike = other.main_split_kind == best.arm.main_split_kind and not other.slow
            for backend in run.backends if alike else ():
                ratio = times.step_ratio(run, other.name, backend, best.base)
                assert ratio is None or len(run.backends) > 1 or ratio.mean >= best.ratio
    inside = row(folder, "splits", "mlp · inside the layers")
    expected = times.step_ratio(run, "narrow-inside", "torch", "narrow")
    assert expected is not None
    assert float(inside["torch"]) == pytest.approx(expected.mean, rel=1e-2)
    assert inside["verdict"] == "✓ equal"
    assert len(table(folder, "splits").rows) <= answer.ROWS


def test_which_arms_beat_the_whole_model(folder: Path) -> None:
    run = load([folder])
    (text,) = page_sentences(folder)["splits.faster"]
    splits = Splits(run)
    for backend in run.backends:
        ratios = {
            arm.name: r.mean
            for base, members in splits.families.items()
            for arm in members
            if not arm.slow
            and not times.is_oversubscribed(run, arm.name, backend)
            and (r := times.step_ratio(run, arm.name, backend, base))
        }
        best = min(ratios, key=lambda name: ratios[name])
        k = sum(ratio < 1 for ratio in ratios.values())
        assert f"{backend} {k} of {len(ratios)}, the best {best} with" in text


def test_calls_against_messages(folder: Path) -> None:
    run = load([folder])
    (text,) = page_sentences(folder)["splits.rpc"]
    assert text.startswith("rpc (2 ranks, remote procedure calls) against one-1 (messages)")
    one, other = (times.step_seconds(run, arm, "torch") for arm in ("rpc", "one-1"))
    assert one is not None
    assert other is not None
    assert f"torch 50 against {1e3 * other.mean:.3g} ms per update" in text
    assert f"{one.mean / other.mean:.3g} times as long" in text
    assert "mindspore" not in text  # its arm is unsupported


def test_an_arm_is_held_against_plainer_ones_in_what_says_most(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter server that does not wait has several trainers, too."""
    ways = {
        "gpipe": ["by_layer", "trainers", "asynchronous"],
        "one-4": ["trainers"],
        "rpc": ["rpc"],
    }
    monkeypatch.setattr(
        SplitArm, "split_kinds", property(lambda arm: ways.get(arm.name, ["by_layer"]))
    )
    keys: dict[str, str] = {}
    monkeypatch.setattr(
        answer, "_compare_with_plainer", lambda notes, key, _, arm: keys.update({arm.name: key})
    )
    answer.TOPIC.findings(load([folder]), Messages("en"))
    assert keys == {"gpipe": "asynchronous", "one-4": "trainers", "rpc": "rpc"}


def test_parts_add_up_to_the_update(folder: Path) -> None:
    run = load([folder])
    for arm in ("naive", "inter", "inside", "mesh"):
        step = times.step_seconds(run, arm, "torch")
        assert step is not None
        for parts in times.by_rank(run, arm, "torch"):
            assert sum(parts.values()) == pytest.approx(step.mean, rel=0.02)


def test_median_update_and_its_messages(folder: Path) -> None:
    run = load([folder])
    splits = Splits(run).by_name
    (trial,) = run.select("one-4", "torch")
    assert events.median_update(trial) in (1.0, 3.0, 4.0)
    told = events.timeline_rows(splits["one-4"], trial)
    sends = [r for r in told if r[2] == "send"]
    assert len(sends) == 8
    waited = [end - begin for _, _, _, begin, end in sends if end - begin > 1e-5]
    assert waited == pytest.approx([LINK.seconds(1, 131072)] * len(waited))
    assert {r[1] for r in told if r[2] == "F" and r[0] == 1} == {"1F0", "1F1", "1F2", "1F3"}
    (both,) = run.select("mesh", "torch")
    assert events.collective_calls(both, 0)["forward"].nbytes == 512 * 1024
    # Nobody wants the samples' gradient.
    assert events.collective_calls(both, 0).keys() == {"forward"}
    assert events.collective_calls(both, 2)["backward"].calls == 8


def test_bubble(folder: Path) -> None:
    run = load([folder])
    splits = Splits(run).by_name
    for arm, theory in (("one-1", 1 / 2), ("one-4", 1 / 5), ("gpipe-8", 1 / 9), ("inter", 1 / 9)):
        assert splits[arm].ideal_idle == pytest.approx(theory)
    assert splits["naive"].ideal_idle == 0.5
    assert splits["inside"].ideal_idle is None
    mine = row(folder, "bubble", "one-4", "torch")
    assert mine["idle, in theory"] == "20.0"
    trial = next(t for t in run.select("one-4", "torch"))
    assert mine["idle, measured"] == f"{100 * trial.split['bubble']:.1f}"
    assert mine["idle, with these passes"] == f"{100 * trial.split['bubble_passes']:.1f}"
    assert trial.split["bubble_passes"] <= trial.split["bubble"]
    (text,) = (t for t in page_sentences(folder)["bubble.idle_counts"] if "1F1B" in t)
    assert "deep_mlp, 1F1B: from m = 1 to m = 8" in text
    assert "from 50.0 % to 11.1 % in theory" in text
    one = next(t for t in run.select("one-1", "torch")).split["bubble"]
    assert f"torch {100 * one:.1f} % to" in text
    (above,) = page_sentences(folder)["bubble.above"]
    assert all(f"{backend} " in above for backend in run.backends)


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
    assert (
        "torch 250 KiB against 62.5 KiB, 4 times as much"
        in page_sentences(folder)["held.schedules"][0]
    )
    assert page_sentences(folder)["held.live"] == [
        "None of 52 ranks held more micro-batches at once than its schedule allows."
    ]


def test_links(folder: Path) -> None:
    made = row(folder, "links", "0 → 1", "activations", "naive, gpipe, one-4, cut-2, …")
    assert made["bytes, planned"] == made["bytes, counted"] == "524,288"
    assert (made["messages or calls, planned"], made["counted / planned"]) == ("4", "1")
    assert made["backend"] == "torch, mindspore"
    both = row(folder, "links", "mesh", "0 → 2; 1 → 3")
    assert both["what crosses"] == "activations"
    rpc = [r for r in table(folder, "links").cells if r[0].text == "rpc"]
    assert rpc
    assert all(r[-1].text == "–" for r in rpc)
    assert "72 carried what the plan says" in page_sentences(folder)["links.crossed"][0]


def test_cuts(folder: Path) -> None:
    assert [r[1].text for r in table(folder, "cuts").cells] == ["fc2", "tanh3", "fc4"]
    assert row(folder, "cuts", "even")["cut by"] == "activations"
    told = page_sentences(folder)
    assert "torch fastest before" in told["cuts.cut"][0]
    assert "slowest before fc2" in told["cuts.cut"][0]
    assert told["cuts.balances"] == ["Where a balance cuts: activations before tanh3."]


def test_slow_link(folder: Path, report_sentences: dict[str, list[str]]) -> None:
    made = row(folder, "slow-link", "slow-inside", "torch")
    assert (made["crosses"], made["messages and calls"]) == ("2.5 MiB", "5")
    # five all-reduces, each 2 ms and 512 KiB over 100 MB/s longer
    slower = 5 * (2e-3 + 4 * BATCH * 512 / 1e8)
    before, after = float(made["without"]), float(made["with"])
    assert after - before == pytest.approx(1e3 * slower, rel=0.01)
    assert made["slowdown"] == f"{after / before:.3g}"
    texts = report_sentences["slow_link.costs"]
    assert [text.split()[0] for text in texts] == ["slow-piped", "slow-inside"]
    assert "for 2.5 MiB in 5 messages and calls" in texts[1]
    assert f"torch {made['slowdown']} times as long" in texts[1]


def test_when_splitting_pays(folder: Path, report_sentences: dict[str, list[str]]) -> None:
    splits = Splits(load([folder]))
    found = calibration.calibrate(splits, "torch")
    assert found is not None
    assert found.rates == pytest.approx({"deep": 1e11, "narrow": 1e11})
    for fitted in (found.messages, found.reduces):
        assert fitted is not None
        assert fitted.link.alpha_s == pytest.approx(LINK.alpha_s, rel=1e-3)
        assert fitted.link.beta_s_per_byte == pytest.approx(LINK.beta_s_per_byte, rel=1e-3)
    made = {p.arm.name: p for p in calibration.predictions(splits, found)}
    assert "naive" not in made  # its update is not the model's, with 4 micro-batches
    assert "mesh" not in made
    assert made["gpipe"].ratio == pytest.approx(0.94, abs=0.03)
    asked = make_question(splits, found)
    assert asked is not None
    assert (asked.arm, asked.layers, asked.m) == ("deep", 6, 4)
    first = asked.width_threshold(TENSOR_SPLIT, LAYER_SPLIT)
    assert first is not None

    def faster(d: int) -> bool:
        inside, by_layer = (asked.seconds(way, [d] * 7) for way in (TENSOR_SPLIT, LAYER_SPLIT))
        return inside is not None and by_layer is not None and inside < by_layer

    assert faster(first)
    assert not faster(first - 1)
    row_ = row(folder, "thresholds", "torch", "inside the layers", "by layer")
    assert row_["from width"] == f"d = {first:,}"
    constants = row(folder, "constants", "torch")
    assert constants["F"] == "100"
    assert (constants["message: α"], constants["message: 1/β"]) == ("100", "1")
    assert (constants["all-reduce: α"], constants["all-reduce: 1/β"]) == ("100", "1")
    assert "torch inside the layers d = " in report_sentences["pays.widths"][0]
    assert f"at the median of {len(made)} arms" in report_sentences["pays.errors"][0]


def test_how_an_arm_is_called(folder: Path) -> None:
    run, en, zh = load([folder]), Messages("en"), Messages("zh")
    splits = Splits(run)
    told = {arm.name: arm.describe(en) for arm in splits}
    assert told["gpipe"] == "by layer in 2, GPipe, m = 4"
    assert told["inside"] == "inside in 2"
    assert told["mesh"] == "by layer in 2, inside in 2, 1F1B, m = 4"
    assert told["rpc"] == "by layer in 2, RPC"
    assert splits.by_name["gpipe"].describe(zh) == "按层 2 段、GPipe、m = 4"
    assert run.contrast.arm_without_straggler("slow-piped") == "one-4"
