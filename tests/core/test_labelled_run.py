"""Labelled sentences from the outside: a run with the reference, its confusion matrix, the
report."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from command import dualml, resumed, run, start
from test_resume import wait_for_checkpoint

from dualml.backend import Training
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.model import Model
from dualml.common.arrays import read_tensors
from dualml.common.confusion import classification_report, macro_average
from dualml.experiment.plan import Plan
from dualml.experiment.samples import load_samples
from dualml.experiment.store.best import read_best, write_best
from dualml.experiment.store.plan import restore_plan
from dualml.experiment.store.records import read_records
from dualml.report import render
from dualml.runner.worker.evaluate import evaluate

pytestmark = pytest.mark.whole

TOML = """
name = "tiny-labels"
model = "text_classifier"
title = { en = "Tiny", zh = "小" }
[data]
name = "feelings"
labels = true
train = 200
validation = 70
test = 90
length = 12
words = 60
[evaluation]
train_samples = 30
per_epoch = 1
early = []
[arms.one]
optimizer = { name = "adam", lr = 0.003 }
batch_size = 20
epochs = 2
[arms.sharded]
optimizer = { name = "adam", lr = 0.003 }
batch_size = 20
epochs = 2
world_size = 2
zero = 3
[arms.two]
optimizer = { name = "adam", lr = 0.003 }
batch_size = 20
epochs = 2
world_size = 2
partition = { name = "dirichlet_labels", alpha = 0.5 }
"""


#: Language → text on its page.
WORDS = (
    ("en", "macro means", "the weights of the smallest validation loss"),
    ("zh", "宏平均", "验证损失最小的权重"),
)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def test_a_run_on_labelled_sentences(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, told = run(lab, out, "--arm", "all")
    assert code == 0, told
    data = told["data"]
    assert (data["kind"], data["labels"], len(data["classes"])) == ("labelled", True, 6)
    assert (data["train"], data["validation"], data["test"]) == (200, 70, 90)
    assert "477 of the 3,000 sentences of feelings have more than 12 tokens" in data["notice"]["en"]
    plan = restore_plan(out / "plan", told["plan_hash"])
    for trial in told["trials"]:
        table = np.array(trial["confusion"])
        assert (table.shape, int(table.sum())) == ((6, 6), 90)
        assert table.trace() / 90 == pytest.approx(trial["test_accuracy"])
        shares = table.diagonal() / table.sum(axis=1)
        assert trial["class_accuracy"] == pytest.approx(shares.tolist())
        assert trial["test_accuracy"] > 0.4, "learns more than one class in six"

        check_best(trial, out, plan)
        report = trial["classification"]
        kept = classification_report(trial["best"]["confusion"], data["classes"])
        assert report == kept
        assert report["weighted"]["recall"] == pytest.approx(report["accuracy"])

    f1 = macro_average(told["trials"][0]["best"]["confusion"])[2]
    for lang, head, weights in WORDS:
        render([out], out / lang, lang)
        page = (out / lang / "report.html").read_text("utf-8")
        of_arms = re.search(r'<table id="table-macro"[^>]*>.*?</table>', page, re.S)
        of_classes = re.search(r'<table id="table-each-class"[^>]*>.*?</table>', page, re.S)
        assert of_arms is not None
        assert of_classes is not None
        assert head in page
        assert weights in page
        assert f"{100 * f1:.1f}" in of_arms[0]
        assert all(name in of_classes[0] for name in data["classes"])
        for trial in told["trials"]:
            report = re.search(
                rf'<table id="table-report-{trial["arm"]}-numpy"[^>]*>.*?</table>', page, re.S
            )
            assert report is not None, trial["arm"]
            assert f"{100 * trial['classification']['weighted']['f1']:.1f}" in report[0]
        assert (out / lang / "figures" / "confusion.svg").exists()


def check_best(trial: dict, out: Path, plan: Plan) -> None:
    """Assert that the kept weights are those of the smallest loss, and score as recorded."""
    best, place = trial["best"], out / "trials" / trial["arm"] / "numpy" / "seed0"
    looks = read_records(place)["validation_loss"]
    at = int(looks.value.argmin())
    assert (best["step"], best["validation_loss"]) == (looks.step[at], looks.value[at])
    assert best["step"] > 0, "learns something"
    assert looks.step.tolist() == read_records(place)["test_loss"].step.tolist()
    weights, samples = read_tensors(place / "best.safetensors"), load_samples(plan)
    assert samples.validation is not None
    referee = Model(plan.spec, weights)
    for part, (x, y) in (
        ("validation", samples.validation),
        ("test", (samples.test_x, samples.test_y)),
    ):
        logits, _ = referee.forward(x)
        loss, _ = LOSSES["cross_entropy"](logits, y)
        assert best[f"{part}_loss"] == pytest.approx(loss)
        assert best[f"{part}_accuracy"] == pytest.approx((logits.argmax(1) == y).mean())
    assert np.array(best["confusion"]).sum() == 90
    assert np.array(best["confusion"]).trace() / 90 == pytest.approx(best["test_accuracy"])
    assert not list(place.parent.rglob("rank*.best.safetensors"))


def test_a_table_that_does_not_fit_the_classes_is_left_out(lab: Path, tmp_path: Path) -> None:
    run(lab, tmp_path / "out", "--arm", "one")
    path = tmp_path / "out" / "run.json"
    manifest = json.loads(path.read_text())
    for table in ([[1, 2], [3, 4]], [[1]] * 6, [[0] * 6] * 5):
        manifest["trials"][0]["confusion"] = manifest["trials"][0]["best"]["confusion"] = table
        path.write_text(json.dumps(manifest))
        render([tmp_path / "out"], tmp_path / "page", "en")
        page = (tmp_path / "page" / "report.html").read_text("utf-8")
        assert 'id="table-each-class"' not in page


def test_a_resumed_run_comes_to_the_same_confusion(lab: Path, tmp_path: Path) -> None:
    _, told = run(lab, tmp_path / "out", "--arm", "one")
    (trial,) = told["trials"]
    done = resumed(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)["trials"][0]
    assert again["confusion"] == trial["confusion"]
    assert again["best"] == trial["best"]


@pytest.mark.parametrize("damaged", [False, True])
def test_the_kept_weights_survive_an_interruption(lab: Path, tmp_path: Path, damaged: bool) -> None:
    """The best weights survive an interruption; if their file does not match the checkpoint, the
    trial restarts."""
    words = ["--arm", "one", "--set", "arms.one.epochs=12", "--set", "evaluation.per_epoch=2"]
    _, whole = run(lab, tmp_path / "whole", *words)
    process = start(
        "run",
        lab,
        "--backend",
        "numpy",
        "--out",
        tmp_path / "cut",
        "--no-report",
        *words,
        env={"DUALML_CHECKPOINT_S": "0.1"},
    )
    place = Path("trials") / "one" / "numpy" / "seed0"
    wait_for_checkpoint(tmp_path / "cut" / place, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    kept = tmp_path / "cut" / place / "best.safetensors"
    facts = read_best(kept.parent)
    assert facts is not None, "written with the checkpoint"
    if damaged:
        write_best(kept.parent, facts.model_copy(update={"step": 999}), read_tensors(kept))
    done = dualml("run", "--resume", tmp_path / "cut", "--no-report", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"][0]["best"] == whole["trials"][0]["best"]
    assert kept.read_bytes() == (tmp_path / "whole" / place / "best.safetensors").read_bytes()
    log = (kept.parent / "rank0.log").read_text()
    assert ("best.safetensors is not that of the checkpoint; starting again" in log) == damaged


@pytest.mark.parametrize("name", ["digits", "sentences"])
def test_other_data_have_no_validation_part(lab: Path, tmp_path: Path, name: str) -> None:
    model = {"digits": "softmax", "sentences": "rnn_lm"}[name]
    lab.write_text(f'''
name = "x"
model = "{model}"
title = {{ en = "x" }}
data = {{ name = "{name}", validation = 7 }}
arms.a.optimizer = {{ name = "adam", lr = 0.003 }}
''')
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert (
        f"data.validation = 7 is for labelled sentences (data.labels = true); {name}" in done.stderr
    )


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            'split = { cut = ["up1"] }',
            "passes over padding, which each of its layers has to see; it "
            "cannot be split: leave out split",
        ),
        (
            "zero = 2\naggregation = { bucket_bytes = 0 }",
            "apart between layers that pass over padding, "
            "which only the first of them is given; use zero = 1, or one unit: leave out "
            "aggregation.bucket_bytes",
        ),
    ],
)
def test_a_model_that_passes_over_padding_stays_whole(
    lab: Path, tmp_path: Path, settings: str, what: str
) -> None:
    text = TOML.replace('partition = { name = "dirichlet_labels", alpha = 0.5 }\n', "")
    lab.write_text(f"{text}{settings}\n")
    done = dualml("run", lab, "--backend", "numpy", "--arm", "all", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "arms.two: " in done.stderr
    assert "model 'text_classifier'" in done.stderr
    assert what in " ".join(done.stderr.split())


class Fixed:
    """A model that predicts the next class."""

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        return 1.0, (y + x) % 3


def test_the_confusion_of_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualml.runner.worker.evaluate.eval_batch_size", lambda y: 2)
    x, y = np.array([0, 1, 1, 2, 0]), np.array([0, 0, 1, 2, 2])
    fixed: Training = Fixed()  # type: ignore[assignment]
    score = evaluate(fixed, x, y, np.arange(5), 3)
    assert score.confusion is not None
    assert score.confusion.tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 1]]
    assert (score.hits.tolist(), score.counts.tolist()) == ([1, 0, 1], [2, 1, 2])
    assert score.accuracy == pytest.approx(0.4)
