"""Several ranks in the report: the sentences hold the numbers of the run."""

from __future__ import annotations

import json
from pathlib import Path

import fake_ranks
import pytest
from page_parts import findings_by_key, page, same_in_both_languages

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.report.blocks import Notice, SectionBlock, walk
from dualml.report.headline import headline

EN = Messages("en")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_ranks.make_run(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def report_sentences(folder: Path) -> dict[str, list[str]]:
    return findings_by_key(folder)


def test_collectives_in_sentences(report_sentences: dict[str, list[str]]) -> None:
    assert report_sentences["collectives.answer"] == [
        "Fastest among 2 ranks: at 1 KiB all_reduce (torch, 0.101 ms; mindspore, 0.302 ms); at "
        "1 MiB all_reduce (torch, 0.624 ms; mindspore, 1.87 ms)."
    ]
    assert report_sentences["collectives.crossover"][0] == (
        "torch, n = 4: tree (few messages) is faster up to 1 KiB, ring (few bytes) from 1 MiB on: "
        "between them latency stops counting most and bandwidth starts to."
    )
    # 2 α = 2.5 S β at S = 80 kB
    assert "between 64 KiB and 128 KiB" in report_sentences["collectives.crossover_fit"][0]
    assert "all_reduce from 1 KiB to 1 MiB" in report_sentences["collectives.fastest"][0]
    assert (
        "mindspore takes 3 times as long as on torch" in report_sentences["collectives.backends"][0]
    )
    assert "24 of 24 measurements" in report_sentences["traffic.counted"][0]
    assert (
        len(report_sentences["traffic.wire_same"])
        == len(report_sentences["traffic.wire_more"])
        == 2
    )
    assert "ring × 2" in report_sentences["traffic.wire_more"][0]
    assert "α = 100 µs" in report_sentences["predictions.fit"][0]
    assert "1 / β = 1 GB/s" in report_sentences["predictions.fit"][0]
    assert "collectives.close" not in report_sentences
    assert (
        "20 of 20 measurements within a factor of two" in report_sentences["predictions.checks"][0]
    )


def test_a_close_race_is_said(tmp_path: Path) -> None:
    folder = fake_ranks.make_run(tmp_path, arms=["micro-n2"], backends=["torch"], costs=False)
    path = next(folder.glob("trials/*/torch/seed0/collectives.json"))
    told = json.loads(path.read_text("utf-8"))
    for line in told["rows"]:
        if line["strategy"] == "ring" and line["bytes"] == 1024:
            line["low"] = 0.0
    path.write_text(json.dumps(told), "utf-8")
    assert "at 1 of 2 sizes" in findings_by_key(folder)["collectives.close"][0]


def test_native_and_composed(report_sentences: dict[str, list[str]]) -> None:
    assert report_sentences["native.list"][1] == (
        "On mindspore, executed by the framework itself: all_reduce and broadcast; "
        "composed here of other messages: reduce."
    )
    assert len(report_sentences["native.composed_cost"]) == 2
    assert (
        "reduce_broadcast, of which mindspore composes a part, takes 3 times"
        in (report_sentences["native.composed_cost"][0])
    )
    assert "takes 2 times as long as all_reduce at 1 KiB" in report_sentences["native.ring"][0]


def test_training_in_sentences(report_sentences: dict[str, list[str]]) -> None:
    assert report_sentences["training.steps"] == [
        "n = 2, arms that differ in the strategy alone: the shortest update has all-reduce-n2 "
        "(torch, 10 ms; mindspore, 30 ms), the longest ring-n2 (torch, 15 ms; mindspore, 45 ms)."
    ]
    assert "torch: all_reduce 40.0 % and ring 40.0 %" in report_sentences["training.shares"][0]
    assert (
        "with learning rate 0.05 steps as a mean with 0.1" in report_sentences["combination.sum"][0]
    )
    same = report_sentences["combination.sum_same"][0]
    assert "steps as a mean with 0.05, the rate of all-reduce-n2" in same
    assert "every 4 updates" in report_sentences["combination.local"][0]
    assert "30 against 10 ms per update" in report_sentences["combination.one_by_one"][0]
    assert [s.split(" against ")[0] for s in report_sentences["combination.compress"]] == [
        "fp16 saves 50.0 % of the bytes",
        "top saves 98.0 % of the bytes",
    ]
    assert "1 on torch, at most 3" in report_sentences["staleness.mean"][0]
    assert "convergence.first" not in report_sentences


def test_the_slow_rank_in_sentences(report_sentences: dict[str, list[str]]) -> None:
    assert "slow-ring × 2.8" in report_sentences["bottleneck.one"][0]
    assert report_sentences["bottleneck.range"][0].startswith(
        "One slow node makes an update of the other"
    )
    assert "67.9 % of their time" in report_sentences["bottleneck.waits"][0]
    assert report_sentences["bottleneck.since"][0] == (
        "slow-late on torch: 10 ms per update until the handicap sets in at update 51, "
        "28 ms from then on (2.8 times)."
    )
    assert "1.25 at the median" in report_sentences["bottleneck.foreseen"][0]
    assert "bottleneck.no_base" not in report_sentences


def test_n_workers_against_one(report_sentences: dict[str, list[str]], tmp_path: Path) -> None:
    assert report_sentences["serial.count"] == [
        "n workers against one: 14 of 14 comparisons equal within rounding."
    ]
    assert any("async and async-free follow" in s for s in report_sentences["serial.other_rule"])
    folder = fake_ranks.make_run(tmp_path, different=True)
    assert "13 of 14" in findings_by_key(folder)["serial.count"][0]
    assert (
        "ring-n2, seed 0, on mindspore differs from single"
        in findings_by_key(folder)["serial.diverged"][0]
    )


def test_the_headline_counts_workers(folder: Path, tmp_path: Path) -> None:
    tone, text = headline(load([folder]), EN)
    assert tone == "good"  # an order that is free on purpose is no blemish
    assert text.endswith("n workers = one worker: 14 of 14 equal.")
    tone, text = headline(load([fake_ranks.make_run(tmp_path / "a", different=True)]), EN)
    assert tone == "bad"
    alone = fake_ranks.make_run(tmp_path / "b", backends=["torch"])
    assert headline(load([alone]), EN) == ("good", "n workers = one worker: 7 of 7 equal.")


def crowded(folder: Path) -> set[str]:
    """Return the topics that warn that their times are no speed-ups."""
    return {
        section.name
        for section in page(folder).blocks
        if isinstance(section, SectionBlock)
        and any(isinstance(b, Notice) and "not speed-ups" in b.text for b in walk(section.blocks))
    }


def test_shared_cores_are_said_beside_the_times(folder: Path, tmp_path: Path) -> None:
    assert crowded(folder) == {"collectives", "training", "bottleneck"}
    assert "caveats.crowded" in findings_by_key(folder)

    def roomy(run: dict) -> None:
        for known in run["environment"].values():
            known["cores"] = "64 usable, 64 physical, 128 logical"

    other = fake_ranks.make_run(tmp_path, change=roomy)
    assert "caveats.crowded" not in findings_by_key(other)
    assert not crowded(other)


def test_both_languages_say_the_same(folder: Path) -> None:
    same_in_both_languages(load([folder]))
