"""The output of `dualml export` holds the numbers of the run; wrong input gives a one-line
error."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path
from typing import Any

import fake_ranks
import fake_run
import pytest
from command import dualml, start
from command import lab as lab

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import read_run
from dualml.experiment.store.records import read_records
from dualml.report.export import base, export
from dualml.report.export import live as live_runs
from dualml.report.export.base import TARGETS
from dualml.report.export.mlflow import hide_credentials
from dualml.report.export.trial_log import record_seconds
from dualml.runner.request import RunRequest
from dualml.runner.run import run

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_run.make_run(tmp_path_factory.mktemp("run"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_record(folder: Path, tmp_path: Path) -> None:
    done = export([folder], "csv", tmp_path / "out")
    assert done.files == ["records.csv", "trials.csv", "verdicts.csv"]
    written = rows(tmp_path / "out" / "records.csv")
    recorded = [
        {"arm": arm, "backend": backend, "seed": str(seed), "rank": "0", **record}
        for arm in fake_run.MAIN
        for backend in ("numpy", "torch", "mindspore")
        for seed in (0, 1)
        for record in map(
            json.loads,
            (folder / f"trials/{arm}/{backend}/seed{seed}/rank0.jsonl").read_text().splitlines(),
        )
    ]
    assert len(written) == len(recorded) > 7_000
    for line, record in zip(written, recorded, strict=True):
        for name, text in line.items():
            value = record.get(name)
            same = float(text) == value if isinstance(value, int | float) else text == (value or "")
            assert same, (name, line, record)
    trials = rows(tmp_path / "out" / "trials.csv")
    failed = [t for t in trials if t["status"] == "failed"]
    assert [(t["arm"], t["backend"], t["seed"]) for t in failed] == [("gd", "mindspore", "1")]
    assert {t["verdict"] for t in trials if t["arm"] == "sgd" and t["seed"] == "1"} == {
        "equal",
        "different",
    }


def test_collectives_have_the_bandwidths_of_nccl_tests(tmp_path: Path) -> None:
    folder = fake_ranks.make_run(tmp_path / "run", arms=["micro-n4"], parity=False)
    export([folder], "csv", tmp_path / "out")
    table = rows(tmp_path / "out" / "collectives.csv")
    assert len(table) == 2 * len(fake_ranks.rows("torch", 4))
    ring = next(
        r
        for r in table
        if (r["backend"], r["strategy"], r["bytes"]) == ("torch", "ring", "1048576")
    )
    # 2 (n − 1)/n of 4 ranks; GB are 10⁹ bytes
    assert float(ring["algbw_gb_per_s"]) == pytest.approx(2**20 / float(ring["seconds"]) / 1e9)
    assert float(ring["busbw_gb_per_s"]) == pytest.approx(1.5 * float(ring["algbw_gb_per_s"]))
    inexact = [r for r in table if r["strategy"] == "neighbour"]
    assert inexact
    assert {r["busbw_gb_per_s"] for r in inexact} == {""}


def test_seconds_are_those_of_the_last_evaluation(folder: Path) -> None:
    curves = read_records(folder / "trials/sgd/torch/seed0")
    evaluated = dict(zip(curves["train_loss"].step, curves["train_loss"].seconds, strict=True))
    seconds = record_seconds(curves["loss"], curves)
    for step, at in zip(curves["loss"].step, seconds, strict=True):
        assert at == evaluated[max(s for s in evaluated if s < step)]
    assert len({*seconds}) > 10
    assert record_seconds(curves["test_loss"], curves).tolist() == list(evaluated.values())


# --- TensorBoard ----------------------------------------------------------------------------------


def accumulated(place: Path) -> Any:
    """Return a folder of event files as TensorBoard reads it."""
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )
    events = event_accumulator.EventAccumulator(
        str(place), {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    )
    return events.Reload()


def same_scalars(place: Path, trial: Path) -> None:
    """Assert that exactly the run's records were written, in float32, with update and seconds."""
    import numpy as np

    events, curves = accumulated(place), read_records(trial)
    assert {*events.Tags()["scalars"]} == {*curves}
    for metric, curve in curves.items():
        read = events.Scalars(metric)
        assert [e.step for e in read] == curve.step.tolist()
        assert [e.value for e in read] == curve.value.astype(np.float32).tolist()
        begin = read[0].wall_time - record_seconds(curve, curves)[0]
        after = [e.wall_time - begin for e in read]
        assert after == pytest.approx(record_seconds(curve, curves).tolist(), abs=1e-5)


def test_tensorboard_reads_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="no tensorboard")
    arms = {name: fake_run.MAIN[name] for name in ("gd", "sgd")}
    folder = fake_run.make_run(tmp_path / "run", arms=arms, seeds=[1])
    done = export([folder], "tensorboard", lang="zh")
    out = Path(done.where)
    assert out == folder.resolve() / "export" / "tensorboard"
    for arm in arms:
        for backend in ("numpy", "torch", "mindspore"):
            place = f"{arm}/{backend}/seed1"
            same_scalars(out / place, folder / "trials" / place)
    events = accumulated(out / "sgd/torch/seed1")
    texts = {
        tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in ("experiment", "trial", "verdict")
    }
    assert "| optimizer.lr | 0.05 |" in texts["trial"]
    assert "torch – mindspore: ≠ 不同" in texts["verdict"]
    assert json.loads((folder / "run.json").read_text())["plan_hash"] in texts["experiment"]
    assert "_hparams_/session_start_info" in events.summary_metadata
    before = sorted(out.rglob("*tfevents*"))
    (out / "left over").touch()
    assert export([folder], "tensorboard").files  # its own place is replaced
    assert sorted(out.rglob("*")) == sorted(
        {*before, *(p for f in before for p in f.parents if out in p.parents)}
    )


def test_tensorboard_follows_records_as_they_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="no tensorboard")
    monkeypatch.setattr(live_runs, "EVERY_S", 3600.0)
    arms = {"sgd": fake_run.MAIN["sgd"]}
    folder = fake_run.make_run(tmp_path / "run", arms=arms, seeds=[0], backends=["numpy", "torch"])
    places = {
        b: (folder / f"tensorboard/sgd/{b}/seed0", folder / f"trials/sgd/{b}/seed0")
        for b in ("numpy", "torch")
    }
    records = places["torch"][1] / "rank0.jsonl"
    lines = sorted(records.read_bytes().splitlines(True), key=lambda line: json.loads(line)["step"])
    whole, heard = b"".join(lines), list[Any]()  # in the order in which a rank writes
    run = RunFolder(folder, read_run(folder))
    live = live_runs.LiveTensorBoard(run, lambda trial, event: heard.append(event))
    trial = run.trials["sgd", "torch", 0]
    training = {"phase": "train", "loss": 1.0}
    records.write_bytes(whole[: len(whole) // 2])  # in the middle of a line
    live(trial, training)
    same_scalars(*places["torch"])
    records.write_bytes(whole)
    live(trial, training)  # too early for another look
    with pytest.raises(AssertionError):
        same_scalars(*places["torch"])
    live(trial, {"phase": "end"})
    assert [event["phase"] for event in heard] == ["train", "train", "end"]
    live.finish(Messages("en"))
    for place in places.values():  # also the trial that had ended before
        same_scalars(*place)
        assert {*accumulated(place[0]).Tags()["tensors"]} >= {"experiment", "trial", "verdict"}


def test_an_interrupted_run_leaves_whole_files(lab: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="no tensorboard")
    out, place = tmp_path / "out", "gd/numpy/seed0"
    process = start(
        "run",
        lab,
        "--backend",
        "numpy",
        "--out",
        out,
        "--no-report",
        "--tensorboard",
        "--arm",
        "gd",
        "--set",
        "arms.gd.updates=100000",
    )
    deadline = time.monotonic() + 60
    while sum(p.stat().st_size for p in (out / "tensorboard").rglob("*tfevents*")) < 10_000:
        assert process.poll() is None, "it ended before there were events"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    read, kept = accumulated(out / "tensorboard" / place), read_records(out / "trials" / place)
    for metric, curve in kept.items():
        steps = [event.step for event in read.Scalars(metric)]
        assert 0 < len(steps) <= len(curve.step)
        assert steps == curve.step[: len(steps)].tolist()


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "tensorbord"], "unknown export target 'tensorbord'; did you mean 'tensorboard'?"),
        (["--to", "csv", "--online"], "--online is for --to wandb"),
        (["--to", "csv", "--out", "."], "is there and not empty; choose another --out"),
        (["--to", "trace"], "trials with several ranks do"),
        ([], "Missing option '--to'"),
        (["--to", "csv", "--lang", "fr"], "--lang must be en or zh"),
    ],
)
def test_wrong_input_is_one_line(folder: Path, words: list[str], said: str) -> None:
    done = dualml("export", folder, *words, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "export" / "trace").exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://me:secr@t@db:5432/runs", "postgresql://…@db:5432/runs"),
        ("to https://token@mlflow.example/api failed", "to https://…@mlflow.example/api failed"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
    ],
)
def test_passwords_of_stores_are_not_printed(address: str, said: str) -> None:
    assert hide_credentials(address) == said


def test_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder"):
        export([tmp_path], "csv")


@pytest.mark.parametrize(
    ("target", "library"),
    [
        ("parquet", "pyarrow"),
        ("tensorboard", "tensorboard"),
        ("mlflow", "mlflow"),
        ("wandb", "wandb"),
    ],
)
def test_a_missing_library_is_named(
    folder: Path, target: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        export([folder], target)
    assert str(error.value) == f"{target} needs {library}: pip install 'dualml[{target}]'"
    if target == "tensorboard":  # nor does a run begin
        with pytest.raises(UserError, match="tensorboard needs tensorboard"):
            run(RunRequest(lab="lab1", tensorboard=True))


def test_records_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    folder = fake_run.make_run(tmp_path / "run", arms={"sgd": fake_run.MAIN["sgd"]}, seeds=[0])
    (folder / "trials/sgd/torch/seed0/rank0.jsonl").write_text("no record\nno record\n")
    done = dualml("export", folder, "--to", "csv", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["trials"] == 2
    assert "trials/sgd/torch/seed0/rank0.jsonl, line 1" in told["unreadable"][0]
    assert told["unreadable"][0] in done.stderr
    assert {row["backend"] for row in rows(tmp_path / "out" / "records.csv")} == {
        "numpy",
        "mindspore",
    }
    assert len(rows(tmp_path / "out" / "trials.csv")) == 3


def test_two_folders_of_one_plan_stand_side_by_side(tmp_path: Path) -> None:
    made = [
        fake_run.make_run(
            tmp_path / name,
            arms={"sgd": fake_run.MAIN["sgd"]},
            seeds=[0],
            backends=["torch"],
            failed=None,
            different=None,
        )
        for name in ("a", "b")
    ]
    export(made, "csv", tmp_path / "out")
    names = {row["backend"] for row in rows(tmp_path / "out" / "records.csv")}
    assert names == {"torch (a)", "torch (b)"}


def test_targets_in_their_order() -> None:
    known = ["csv", "parquet", "tensorboard", "mlflow", "wandb", "trace"]
    assert [name for name in TARGETS if name in known] == known
