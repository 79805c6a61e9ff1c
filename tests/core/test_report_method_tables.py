"""The tables of a run of methods: their rows and cells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_methods import TEST, make_run, serial
from page_parts import findings, row, same_in_both_languages

from dualml.common.confusion import macro_average
from dualml.common.words import Messages
from dualml.experiment.methods import METHODS
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report.baseline_diff import exclusion_reason
from dualml.report.blocks import Code, Fold, Table
from dualml.report.code import count_added_lines
from dualml.report.methods import MethodResult
from dualml.report.topics import method_precision, method_ranks, methods
from dualml.report.topics.method_ranks import samples_per_rank
from dualml.runner.worker.evaluate import evaluate

EN = Messages("en")
OUTSIDE = {
    "step": 4,
    "after": 3,
    "phase": "update",
    "tensor": "fc.bias",
    "distance": 0.02,
    "envelope": 0.001,
}


def tables(run: RunData, topic: Any = methods, words: Messages = EN) -> dict[str, Table]:
    return {b.name: b for b in topic.evidence(run, words) if isinstance(b, Table)}


def arms(table: Table) -> list[str]:
    """Return the arms in the order of the rows."""
    column = [c.key for c in table.columns].index("arm")
    return [row[column].text for row in table.cells]


def notes(table: Table, arm: str) -> dict[str, str]:
    """Return column → text below the cell of an arm."""
    (line,) = (row for row in table.cells if row[1].text == arm)
    return {c.key: cell.note for c, cell in zip(table.columns, line, strict=True)}


def cells(table: Table, arm: str) -> dict[str, str]:
    (line,) = (row for row in table.cells if row[1].text == arm)
    return {c.key: cell.text for c, cell in zip(table.columns, line, strict=True)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    def change(trial: dict[str, Any]) -> None:
        if trial["arm"] == "zero":
            trial |= {"status": "unsupported", "reason": "no such engine here"}
        trial["confusion"] = [[50, 10], [20, 40]]

    return load([make_run(tmp_path_factory.mktemp("tables"), change=change)])


def test_every_arm_is_in_the_table_that_it_belongs_to(run: RunData) -> None:
    found = tables(run)
    right, others = (
        ["single", "loop", "ddp", "bf16", "lower"],
        ["twice", "padded", "other-rate", "longer"],
    )
    assert arms(found["methods"]) == arms(found["resources"]) == right
    assert arms(found["others"]) == others
    assert arms(found["absent"]) == ["zero"]
    assert sorted(arms(found["trained"])) == sorted(right + others)
    assert cells(found["absent"], "zero")["reason"] == "no such engine here"
    assert cells(found["others"], "twice")["other"] == "batches of 128 in place of 64"


def test_what_each_trained(run: RunData) -> None:
    trained = tables(run)["trained"]
    trial = {t.arm: t for t in run.trials}["ddp"]
    shown = cells(trained, "ddp")
    parts = [f"{n} · {sha[:8]}" for n, sha in trial.samples]
    assert [n for n, _ in trial.samples] == [178, 177]  # 5 · 32 + 18, 5 · 32 + 17
    assert shown["rank_samples"] == "; ".join(parts)
    assert shown["processes"] == "2"
    assert shown["batch"] == "64"
    assert shown["epoch_updates"] == "6"
    assert shown["f1"] == f"{100 * macro_average(np.array(trial.confusion))[2]:.1f}"
    assert cells(trained, "twice")["epoch_updates"] == "3"


def test_lines_that_a_method_changes() -> None:
    change = "  a\n- b\n+ c\n+ \n+ d\n? ^\n  e"
    assert count_added_lines(Code(change)) == 2
    assert count_added_lines(Code("  a\n+ b\n  c")) == 1  # nothing is taken away
    assert count_added_lines(Code("a\n+ b")) == 0  # no diff: the loop itself


def test_lines_changed_stand_in_the_table(run: RunData) -> None:
    shown = tables(run)["methods"]
    # DistributedDataParallel: its import, around the model, and the weight of the loss.
    assert [cells(shown, arm)["code_lines"] for arm in ("loop", "ddp")] == ["0", "3"]
    code = MethodResult(run, "ddp", "torch").code
    assert code is not None
    assert "+ from torch.nn.parallel import DistributedDataParallel" in code.text
    folds = [b.summary for b in methods.code(run, EN) if isinstance(b, Fold)]
    assert "DistributedDataParallel · torch · 3 lines" in folds


# --- seconds to an accuracy -----------------------------------------------------------------------


def seconds_to_target(run: RunData, arm: str) -> list[float]:
    """Return, by hand, each seed's first evaluation that reaches 95 % of the reference's final
    accuracy."""
    goal = 0.95 * np.mean([t.test_accuracy for t in run.select("single")])
    seconds = []
    for trial in run.select(arm):
        curve = trial.curves["test_accuracy"]
        seconds += [s for s, v in zip(curve.seconds, curve.value, strict=True) if v >= goal][:1]
    return seconds


def test_time_to_an_accuracy_with_quartiles_over_the_seeds(tmp_path: Path) -> None:
    def slow(trial: dict[str, Any]) -> None:
        pass

    run = load([make_run(tmp_path, arms=("single", "loop"), seeds=(0, 1, 2), change=slow)])
    for factor, trial in enumerate(run.select("loop"), start=1):
        trial.curves["test_accuracy"].seconds[:] *= factor
    first, second, third = sorted(seconds_to_target(run, "loop"))
    quartiles = ((first + second) / 2, second, (second + third) / 2)
    assert MethodResult(run, "loop", "torch").seconds_to_target_quartiles == pytest.approx(
        quartiles
    )
    shown = tables(run)["resources"]
    low, middle, high = (f"{s:.3g}" for s in quartiles)
    assert cells(shown, "loop")["to_target"] == middle
    assert notes(shown, "loop")["to_target"] == f"{low} – {high}, 3 seeds"


def test_time_to_an_accuracy_of_one_seed_is_what_it_is(run: RunData) -> None:
    shown = tables(run)["resources"]
    (seconds,) = seconds_to_target(run, "ddp")
    assert cells(shown, "ddp")["to_target"] == f"{seconds:.3g}"
    assert notes(shown, "ddp")["to_target"] == "1 seed"


def test_an_accuracy_that_a_seed_does_not_reach_has_no_time(tmp_path: Path) -> None:
    run = load([make_run(tmp_path, arms=("single", "loop"), seeds=(0, 1, 2))])
    run.select("loop")[1].curves["test_accuracy"].value[:] = 0.0
    shown = tables(run)["resources"]
    assert cells(shown, "loop")["to_target"] == "–"
    assert notes(shown, "loop")["to_target"] == "reached by 2 of 3 seeds"


# --- in a lower precision -------------------------------------------------------------------------


def lowered(tmp_path: Path, *own: dict[str, Any]) -> RunData:
    over = {"equivalent": True, "mean": 0.0, "low": -0.004, "high": 0.003, "margin": 0.01}
    test = {"evidence": {"equivalence": {**over, "seeds": 3}}}
    judged = [serial("lower", 0, None, "precision", **test)]
    names = ("single", "bf16", "lower")
    return load([make_run(tmp_path, arms=names, judged=judged, lowered=own)])


def test_both_verdicts_of_a_lower_precision(tmp_path: Path) -> None:
    run = lowered(tmp_path, serial("lower", against="bf16", ratio=0.62))
    shown = tables(run)["methods"]
    assert cells(shown, "lower")["verdict"] == "≈ statistically equal"
    assert notes(shown, "lower")["verdict"] == "−0.40 … +0.30 points, 3 seeds"
    assert cells(shown, "lower")["own_precision"] == "✓ equal"
    assert notes(shown, "lower")["own_precision"] == "0.62 of the envelope"
    own = tables(run, method_precision.TOPIC)["lowered"]
    assert cells(own, "lower")["against"] == "bf16"
    assert "first" not in cells(own, "lower")
    assert cells(own, "lower")["casts"] == METHODS["torch"]["amp_bf16"].casts["en"]
    same_in_both_languages(run)


def test_the_worst_of_the_seeds_is_said_with_what_its_engine_casts(tmp_path: Path) -> None:
    worst = serial(
        "lower",
        1,
        "different",
        "outside_envelope",
        against="bf16",
        ratio=40.0,
        first_divergence=OUTSIDE,
    )
    run = lowered(tmp_path, serial("lower", against="bf16"), worst)
    own = tables(run, method_precision.TOPIC)["lowered"]
    assert cells(own, "lower")["verdict"] == "≠ different"
    assert cells(own, "lower")["judged_seeds"] == "1 of 2"
    assert notes(own, "lower")["verdict"] == "40 of the envelope"
    assert cells(own, "lower")["first"].startswith("update 4, update fc.bias: 0.02")
    (said,) = (i for i in findings(run) if i.key == "methods.casts")
    assert said.warning
    assert "lower on torch leaves the envelope of bf16 at update 4" in said.text
    assert METHODS["torch"]["amp_bf16"].casts["en"] in said.text
    assert "`dualml diffs amp-norm`" in said.text
    # What is said of its own precision takes nothing from the verdict over the seeds.
    assert "lower" in arms(tables(run)["methods"])
    same_in_both_languages(run)


def test_a_method_that_lowered_nothing_is_named(tmp_path: Path) -> None:
    run = lowered(tmp_path, serial("lower", 0, "different", "float32", against="bf16"))
    (said,) = (i.text for i in findings(run) if i.key == "methods.float32")
    assert said == ("lower on torch is inside float32's own envelope: it computed nothing in bf16.")
    assert (
        "inside float32's own"
        in notes(tables(run, method_precision.TOPIC)["lowered"], "lower")["verdict"]
    )
    same_in_both_languages(run)


def test_folders_side_by_side_keep_their_own_verdicts(tmp_path: Path) -> None:
    names, reasons = ("single", "bf16", "lower"), ("inside_envelope", "float32")
    folders = [
        make_run(
            tmp_path / reason,
            arms=names,
            judged=[],
            lowered=[serial("lower", 0, "equal", reason, against="bf16")],
        )
        for reason in reasons
    ]
    run = load(folders)
    found = {
        b: [s.reason for s in MethodResult(run, "lower", b).same_precision_comparisons]
        for b in run.backends
    }
    assert found == {f"torch ({reason})": [reason] for reason in reasons}
    assert {
        b: exclusion_reason(MethodResult(run, "lower", b), EN) for b in run.backends
    } == dict.fromkeys(found, "")


# --- what ranks put together ----------------------------------------------------------------------


def test_the_last_batch_as_the_plan_deals_it(run: RunData) -> None:
    (last,) = tables(run, method_ranks).values()
    assert last.name == "last-batch"
    assert "update 6 with 35 samples, in 2 processes (ddp)" in last.caption
    first, second = ([c.text for c in line] for line in last.cells)
    assert first[:7] == ["0", "18", "18/35 = 0.514", "1.03", "1/2 = 0.5", "1/35", "1/36"]
    assert second[:7] == ["1", "17", "17/35 = 0.486", "0.971", "1/2 = 0.5", "1/35", "1/34"]
    assert row(last, "18")["predicts of the test set"] == str(TEST)  # one piece, of rank 0
    (said,) = (i.text for i in findings(run) if i.key == "methods.uneven")
    assert "each of the 17 samples would count 2.9 % more" in said
    code = [b.summary for b in method_ranks.evidence(run, EN) if isinstance(b, Fold)]
    assert len(code) == 3
    same_in_both_languages(run)


def test_code_that_puts_together_is_shown_whole(run: RunData) -> None:
    folds = [b for b in method_ranks.evidence(run, EN) if isinstance(b, Fold)]
    texts = [block.text for fold in folds for block in fold.blocks if isinstance(block, Code)]
    for part in ("share * self.comm.size", "losses * shares", "comm.all_gather", "def gather_rows"):
        assert any(part in text for text in texts), part


@pytest.mark.parametrize(("ranks", "samples"), [(2, 2000), (3, 1100), (4, 600)])
def test_predictions_are_dealt_as_the_evaluation_deals_them(ranks: int, samples: int) -> None:
    class Counting:
        """A communicator that counts the samples a rank predicts."""

        size, rank, seen = ranks, 0, 0

        def evaluate(self, x: Any, y: Any) -> tuple[float, Any]:
            self.seen += len(y)
            return 0.0, y

        def tensor(self, rows: Any) -> Any:
            return rows

        def numpy(self, rows: Any) -> Any:
            return rows

        def all_gather(self, rows: Any) -> list[Any]:
            return [rows] * ranks

    y = np.zeros(samples, np.int64)
    counted = []
    for rank in range(ranks):
        comm: Any = Counting()
        comm.rank = rank
        evaluate(comm, y, y, np.arange(samples), 2, comm)
        counted.append(comm.seen)
    told: Any = SimpleNamespace(text=False, meta={"data": {"test": samples}})
    assert samples_per_rank(told, ranks) == counted
    assert sum(counted) == samples


def test_without_a_plan_nothing_is_said_of_the_last_batch(tmp_path: Path) -> None:
    run = load([make_run(tmp_path, arms=("single", "ddp"), planned=False)])
    assert list(method_ranks.evidence(run, EN)) == []
    assert method_ranks.TOPIC.findings(run, EN) == []
