"""Texts from the outside: `dualml run` with the reference, `dualml data`, the report."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from command import dualml, resumed, run, strict
from test_text_plan import TOML

from dualml.backend import Training
from dualml.experiment.data import TEXTS
from dualml.report import render
from dualml.runner.worker.evaluate import evaluate, perplexity

pytestmark = pytest.mark.whole


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def records(place: Path) -> list[dict]:
    return [strict(line) for line in (place / "rank0.jsonl").read_text().splitlines()]


def test_a_run_on_a_text(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, told = run(lab, out, "--arm", "all")
    assert code == 0, told
    for trial in told["trials"]:
        found = records(out / "trials" / trial["arm"] / "numpy" / "seed0")
        assert {r["metric"] for r in found} == {
            *("loss", "train_loss", "train_accuracy", "train_perplexity"),
            *("test_loss", "test_accuracy", "test_perplexity"),
        }
        looks: dict[int, dict] = {}
        for record in found:
            looks.setdefault(record["step"], {})[record["metric"]] = record
        last = looks[trial["updates"]]
        for part in ("train", "test"):
            one = last[f"{part}_perplexity"]
            assert one["value"] == pytest.approx(math.exp(last[f"{part}_loss"]["value"]))
            assert (one["unit"], last[f"{part}_loss"]["unit"]) == ("1", "nat")
            assert {"epochs", "seconds"} <= set(one)
        assert last["test_perplexity"]["value"] == trial["test_perplexity"]
        assert trial["test_perplexity"] < looks[0]["test_perplexity"]["value"]
        assert looks[0]["test_perplexity"]["value"] == pytest.approx(120, rel=0.1)
        assert trial["class_accuracy"] == []
    assert (told["data"]["kind"], told["data"]["vocabulary"]) == ("text", 120)
    assert [t["sample_gradients"] for t in told["trials"]] == [120, 60], "windows are the samples"

    for lang, word in (("en", "test perplexity"), ("zh", "测试困惑度")):
        render([out], out / lang, lang)
        page = (out / lang / "report.html").read_text("utf-8")
        table = re.search(r'<table id="table-trials"[^>]*>.*?</table>', page, re.S)
        assert table is not None
        assert word in table[0]
        assert f"{told['trials'][0]['test_perplexity']:.4g}" in table[0]
        assert 'id="table-reached"' not in page
        assert "main-epochs" in page


def test_resume_reads_the_same_text_again(lab: Path, tmp_path: Path) -> None:
    text = tmp_path / "my.txt"
    text.write_text("a b c d e\n" * 200 + "a c b\n" * 200)
    _, told = run(lab, tmp_path / "out", "--arm", "sgd", "--data", text)
    (trial,) = told["trials"]
    done = resumed(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (again,) = json.loads(done.stdout)["trials"]
    assert again["test_perplexity"] == trial["test_perplexity"]
    text.write_text("a b c d f\n" * 400)
    done = resumed(tmp_path / "out")
    assert done.returncode == 2
    assert "my.txt is not the one of the plan" in done.stderr


def test_data_that_stand_in_are_said_and_named_ones_never_do(lab: Path, tmp_path: Path) -> None:
    lab.write_text(TOML.replace('name = "sentences"', 'name = "emotion"'))
    env = {"DUALML_DATA": ""}
    few = ("--backend", "numpy", "--arm", "sgd", "--set", "arms.sgd.updates=1")
    done = dualml("run", lab, *few, "--out", tmp_path / "out", "--lang", "zh", env=env)
    assert done.returncode == 0, done.stderr
    assert "代替 emotion" in done.stdout
    assert "代替 emotion" in (tmp_path / "out" / "report.html").read_text("utf-8")
    done = dualml("run", lab, *few, "--data", "emotion", "--out", tmp_path / "no", env=env)
    assert done.returncode == 2
    assert "emotion cannot be downloaded" in done.stderr
    assert not (tmp_path / "no").exists()


def test_a_file_as_data(lab: Path, tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("天地玄黄宇宙洪荒日月盈昃辰宿列张\n" * 60, "utf-8")
    few = ("--arm", "sgd", "--data", path, "--set", "data.words=12")
    code, told = run(lab, tmp_path / "out", *few)
    assert code == 0
    assert (told["data"]["name"], told["data"]["vocabulary"]) == ("poem.txt", 12)
    assert "every character counts as a word" in told["data"]["notice"]["en"]
    path.write_text("天地\n")
    done = dualml("run", lab, *few, "--backend", "numpy", "--out", tmp_path / "no")
    assert done.returncode == 2
    assert "is too short" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_data_commands_know_texts(tmp_path: Path) -> None:
    env = {"DUALML_DATA": "", "COLUMNS": "200"}
    listed = dualml("data", "list", env=env).stdout
    assert "36,120 + 4,013 lines" in listed
    assert f"to have it: {TEXTS['emotion'].remedy}" in listed
    done = dualml("data", "get", "emotion", env=env)
    assert (done.returncode, "emotion cannot be downloaded; remedy: put" in done.stderr) == (
        2,
        True,
    )
    assert (
        dualml("data", "get", "sentences").stdout == "sentences is made by dualml: nothing to get\n"
    )
    assert dualml("data", "verify", "sentences").returncode == 0
    done = dualml("data", "verify", "emotion", env=env)
    assert "emotion is not in DUALML_DATA; remedy" in done.stderr
    (tmp_path / "train.json").write_text("[]")
    done = dualml("data", "verify", "emotion", "--dir", tmp_path)
    assert done.returncode == 2
    assert "BAD" in done.stdout
    assert "train.json is another file: expected 2,906,260 bytes" in done.stderr
    done = dualml("partition", "round_robin", "--data", "sentences")
    assert "sentences is a text without labels to show" in done.stderr


class Guess:
    """A model that always predicts word 1, with a loss that shows how many windows it got at
    once."""

    sizes: list[int]

    def __init__(self) -> None:
        self.sizes = []

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        self.sizes.append(len(x))
        return float(y.mean()), np.ones_like(y)


def test_hits_are_counted_over_all_positions() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, (150, 32))
    guess: Training = Guess()  # type: ignore[assignment]
    index = np.arange(20, 150)
    score = evaluate(guess, y.astype(np.int32), y, index, 0)
    assert score.accuracy == float((y[20:] == 1).mean())
    assert score.loss == pytest.approx(float(y[20:].mean()))
    assert score.counts.tolist() == [130 * 32]
    assert guess.sizes == [64, 64, 2]  # type: ignore[attr-defined]


def test_perplexity_of_a_loss_beyond_all_numbers() -> None:
    assert perplexity(math.log(120)) == pytest.approx(120)
    assert [perplexity(x) for x in (800.0, math.inf, math.nan)] == [math.inf] * 3
