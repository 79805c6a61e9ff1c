"""Whole runs with recomputation on the reference (no framework needed)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import dualml, goes_on_when_interrupted, run, strict
from page_parts import evidence_figures, findings_by_key, page, tables

from dualml.common.words import Messages
from dualml.experiment.load import load
from dualml.experiment.store.load import load as load_run
from dualml.report.figure import LineMark

pytestmark = pytest.mark.whole

SHARED = """
optimizer = { name = "adam", lr = 0.001 }
batch_size = 16
updates = 8
"""
ARMS = {
    "kept": "",
    "selective": 'recompute = "selective"',
    "full": 'recompute = "full"',
    "by-name": 'recompute = ["qkv", "attention"]',
    "ranks": 'recompute = "full"\nworld_size = 2',
    "split": 'recompute = "full"\nworld_size = 2\nsplit = { cut = ["branch2"], micro_batches = 2 }',
    "bf16": 'precision = "bf16"',
    "bf16-full": 'precision = "bf16"\nrecompute = "full"',
}
TOML = """
name = "recompute"
model = "vit"
title = { en = "Recomputation", zh = "重计算" }
[data]
name = "digits"
train = 200
test = 50
[evaluation]
per_epoch = 1
early = []
train_samples = 20
""" + "".join(f"[arms.{name}]\n{text}\n{SHARED}" for name, text in ARMS.items())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "recompute.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def finished_run(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("recompute") / "out"
    code, summary = run(lab, out)
    assert code == 0
    return out, {trial["arm"]: trial for trial in summary["trials"]}


def test_every_bit_is_that_of_the_arm_that_keeps_all(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, trials = finished_run
    assert {trial["status"] for trial in trials.values()} == {"ok"}
    name = "numpy/seed0/weights.safetensors"
    for arm, other in (
        ("selective", "kept"),
        ("full", "kept"),
        ("by-name", "kept"),
        ("bf16-full", "bf16"),
    ):
        assert (out / "trials" / arm / name).read_bytes() == (
            out / "trials" / other / name
        ).read_bytes(), arm


def test_each_is_held_against_the_arm_that_keeps_all(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = finished_run
    serial = strict((out / "parity.json").read_text())["serial"]
    found = {c["arm"]: (c["against"], c["verdict"]) for c in serial}
    equal = dict.fromkeys(("selective", "full", "by-name", "ranks", "split"), ("kept", "equal"))
    assert found.items() >= equal.items()
    assert found["bf16-full"] == ("bf16", "equal")
    assert found["bf16"] == ("kept", None)


def test_less_is_kept(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    trials = {t.arm: t for t in load_run([out]).trials}
    kept = {arm: [r.activations for r in t.device_memory] for arm, t in trials.items()}
    whole, selective, full, by_name = (
        kept[arm][0] for arm in ("kept", "selective", "full", "by-name")
    )
    assert None not in (whole, selective, full, by_name)
    # Each of 16 samples: the softmax of four heads, float64.
    assert whole - selective == 16 * 8 * 4 * 28 * 28
    # And of the sequence the products qkv: 3 · 64 numbers of 28 positions.
    assert selective - by_name == 16 * 8 * 28 * 3 * 64
    assert full < by_name / 3
    assert kept["ranks"] == [full // 2] * 2
    assert max(kept["split"]) < whole / 4


def test_the_page_tells_what_is_saved_and_what_it_costs(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = finished_run
    for lang, kept, equal in (
        ("en", "keeps ", "Recomputed against kept: 4 of 4 comparisons equal within rounding."),
        ("zh", "保存 kept 的激活的 ", "重计算与保存对照：4 项比较中有 4 项在舍入范围内相等。"),
    ):
        told = findings_by_key(out, lang)
        said = [text for text in told["recompute.kept"] if "bf16" not in text and kept in text]
        named = {arm for text in said for arm in ("selective", "full", "by-name") if arm in text}
        assert len(named) == 3
        assert told["recompute.equal"] == [equal]
    found = tables(page(out))["recompute"]
    full = next(
        dict(zip([c.label for c in found.columns], [c.text for c in line], strict=True))
        for line in found.cells
        if line[0].text == "full"
    )
    assert full["verdict"] == "✓ equal"
    (figure,) = evidence_figures(load_run([out]), "recompute", Messages("en"))
    lines = [mark for mark in figure.panels[0].marks if isinstance(mark, LineMark)]
    (line,) = [line for line in lines if "full" in line.hints]
    assert list(line.hints) == ["kept", "selective", "by-name", "full"]  # from most to least
    assert list(line.y) == sorted(line.y, reverse=True)
    assert 0 < float(full["of all"].removesuffix(" %")) < 40


def test_an_interrupted_trial_goes_on(lab: Path, tmp_path: Path) -> None:
    words = ("--set", "arms.ranks.updates=300", "--set", "data.test=1")
    goes_on_when_interrupted(lab, tmp_path, "ranks", *words)


def test_the_experiment_is_shown_with_it(lab: Path) -> None:
    shown = dualml("show", lab)
    assert shown.returncode == 0
    assert "recompute" in shown.stdout
    assert "qkv, attention" in shown.stdout


def test_what_is_not_said_stands_in_no_plan(lab: Path) -> None:
    described = load(str(lab), arms=["all"]).describe()["arms"]
    assert "recompute" not in described["kept"]
    assert described["by-name"]["recompute"] == ["qkv", "attention"]
    said = load(str(lab), overrides=["arms.kept.recompute=none"], arms=["kept"]).describe()
    assert "recompute" not in said["arms"]["kept"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ('recompute="some"', "recompute is none, selective, full or a list of names"),
        ('recompute="selectiv"', "did you mean 'selective'"),
        (
            'recompute=["atention"]',
            "arms.kept: recompute: vit has no layer 'atention'; did you mean",
        ),
        ("recompute=[]", "names no layer; leave it out"),
        ('recompute=["qkv", "qkv"]', "names 'qkv' twice"),
        ("recompute=3", "arms.kept.recompute"),
        (
            'model="mlp"',
            "arms.kept: recompute = selective computes attention again, and mlp has none",
        ),
        ('method="single"', "method = single keeps what it keeps; leave out recompute"),
        ('split={engine="rpc"}', "use engine = messages, or leave out recompute"),
    ],
)
def test_bad_input_is_one_line(lab: Path, tmp_path: Path, override: str, words: str) -> None:
    given = [f"arms.kept.{override}"]
    if not override.startswith("recompute"):
        given.append("arms.kept.recompute=selective")
    if "rpc" in override:
        given.append("arms.kept.world_size=2")
    asked = [part for one in given for part in ("--set", one)]
    done = dualml(
        "run", lab, "--backend", "numpy", "--arm", "kept", "--out", tmp_path / "o", *asked
    )
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("dualml: ")
    assert words in line


def test_collectives_compute_nothing_again(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        TOML + '[arms.c]\nkind = "collectives"\nworld_size = 2\nsizes = [1024]\n'
        'strategies = ["ring"]\nrecompute = "full"\n'
    )
    done = dualml("show", path)
    assert done.returncode == 2
    assert "recompute is for training" in done.stderr
