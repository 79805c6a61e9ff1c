"""Several ranks in the report: the sentences hold the numbers of the run."""

from __future__ import annotations

import json
from pathlib import Path

import fake_ranks
import pytest
from page_parts import page, same_in_both_languages, say

from dualml.report.blocks import Notice, Section, walk
from dualml.report.headline import headline
from dualml.store.load import load
from dualml.words import Words

EN = Words("en")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_ranks.make(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, list[str]]:
    return say(folder)


def test_collectives_in_sentences(said: dict[str, list[str]]) -> None:
    assert said["collectives.answer"] == [
        "Fastest among 2 ranks: at 1 KiB all_reduce (torch, 0.101 ms; mindspore, 0.302 ms); at "
        "1 MiB all_reduce (torch, 0.624 ms; mindspore, 1.87 ms)."
    ]
    assert said["collectives.crossover"][0] == (
        "torch, n = 4: tree (few messages) is faster up to 1 KiB, ring (few bytes) from 1 MiB on: "
        "between them latency stops counting most and bandwidth starts to."
    )
    # 2 α = 2.5 S β at S = 80 kB
    assert "between 64 KiB and 128 KiB" in said["collectives.crossover_fit"][0]
    assert "all_reduce from 1 KiB to 1 MiB" in said["collectives.fastest"][0]
    assert "mindspore takes 3 times as long as on torch" in said["collectives.backends"][0]
    assert "24 of 24 measurements" in said["traffic.counted"][0]
    assert len(said["traffic.wire_same"]) == len(said["traffic.wire_more"]) == 2
    assert "ring × 2" in said["traffic.wire_more"][0]
    assert "α = 100 µs" in said["predictions.fit"][0]
    assert "1 / β = 1 GB/s" in said["predictions.fit"][0]
    assert "collectives.close" not in said
    assert "20 of 20 measurements within a factor of two" in said["predictions.checks"][0]


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
    assert said["training.steps"] == [
        "n = 2, arms that differ in the strategy alone: the shortest update has all-reduce-n2 "
        "(torch, 10 ms; mindspore, 30 ms), the longest ring-n2 (torch, 15 ms; mindspore, 45 ms)."
    ]
    assert "torch: all_reduce 40.0 % and ring 40.0 %" in said["training.shares"][0]
    assert "with learning rate 0.05 steps as a mean with 0.1" in said["combination.sum"][0]
    same = said["combination.sum_same"][0]
    assert "steps as a mean with 0.05, the rate of all-reduce-n2" in same
    assert "every 4 updates" in said["combination.local"][0]
    assert "30 against 10 ms per update" in said["combination.one_by_one"][0]
    assert [s.split(" against ")[0] for s in said["combination.compress"]] == [
        "fp16 saves 50.0 % of the bytes",
        "top saves 98.0 % of the bytes",
    ]
    assert "1 on torch, at most 3" in said["staleness.mean"][0]
    assert "convergence.first" not in said


def test_the_slow_rank_in_sentences(said: dict[str, list[str]]) -> None:
    assert "slow-ring × 2.8" in said["bottleneck.one"][0]
    assert said["bottleneck.range"][0].startswith("One slow node makes an update of the other")
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


def crowded(folder: Path) -> set[str]:
    """Return the topics that warn that their times are no speed-ups."""
    return {
        section.name
        for section in page(folder).blocks
        if isinstance(section, Section)
        and any(isinstance(b, Notice) and "not speed-ups" in b.text for b in walk(section.blocks))
    }


def test_shared_cores_are_said_beside_the_times(folder: Path, tmp_path: Path) -> None:
    assert crowded(folder) == {"collectives", "training", "bottleneck"}
    assert "caveats.crowded" in say(folder)

    def roomy(run: dict) -> None:
        for known in run["environment"].values():
            known["cores"] = "64 usable, 64 physical, 128 logical"

    other = fake_ranks.make(tmp_path, change=roomy)
    assert "caveats.crowded" not in say(other)
    assert not crowded(other)


def test_both_languages_say_the_same(folder: Path) -> None:
    same_in_both_languages(load([folder]))
