"""`dualml run` from the outside, with the reference as the only backend (no framework needed)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import dualml, lab, run, strict
from safetensors.numpy import load_file

pytestmark = pytest.mark.whole

__all__ = ["lab"]


def test_the_run_folder_holds_what_the_contract_says(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "out")
    assert code == 0
    out = tmp_path / "out"
    on_disk = strict((out / "run.json").read_text())
    assert {"format", "experiment", "plan_hash", "environment", "trials", "data"} <= set(on_disk)
    assert told["trials"] == on_disk["trials"]
    wanted = {
        "arm",
        "backend",
        "seed",
        "status",
        "reason",
        "wall_s",
        "train_s",
        "final_loss",
        "test_accuracy",
        "plan_hash",
        "how",
    }
    for trial in on_disk["trials"]:
        assert wanted <= set(trial)
        assert (trial["status"], trial["plan_hash"]) == ("ok", on_disk["plan_hash"])
        place = out / "trials" / trial["arm"] / "numpy" / "seed0"
        records = [strict(line) for line in (place / "rank0.jsonl").read_text().splitlines()]
        assert all({"metric", "step", "value", "unit"} <= set(r) for r in records)
        losses = [r for r in records if r["metric"] == "loss"]
        assert [r["step"] for r in losses] == list(range(1, trial["updates"] + 1))
        assert losses[-1]["value"] < losses[0]["value"]
        assert set(load_file(place / "weights.safetensors")) == {"fc.weight", "fc.bias"}
        assert not (place / "checkpoint.safetensors").exists()
    assert strict((out / "parity.json").read_text())["comparisons"] == []
    assert (out / "plan" / "weights.safetensors").exists()


def test_the_same_experiment_gives_the_same_numbers(lab: Path, tmp_path: Path) -> None:
    """Equal experiments give equal numbers, also in fresh processes as users start them (other
    tests fork, see `forked`). The number of threads is fixed, because partial sums round
    differently, and other load on the machine reduces it.
    """
    _, one = run(lab, tmp_path / "1", "--threads", "1")
    words = ["run", str(lab), "--backend", "numpy", "--out", str(tmp_path / "2"), "--no-report"]
    words += ["--threads", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "dualml", *words, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)
    for a, b in zip(one["trials"], two["trials"], strict=True):
        assert a["final_loss"] == b["final_loss"]
    assert one["plan_hash"] == two["plan_hash"]


def test_options_and_arguments_may_stand_in_any_order(lab: Path, tmp_path: Path) -> None:
    done = dualml(
        "run",
        "--backend",
        "numpy",
        lab,
        "--arm",
        "gd",
        "--no-report",
        "--json",
        "--out",
        tmp_path / "o",
        "--seed",
        "3,4",
    )
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout)["trials"]
    assert [(t["arm"], t["seed"]) for t in trials] == [("gd", 3), ("gd", 4)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lap1"], "did you mean 'lab1'"),
        ([], "name an experiment"),
        (["LAB", "--backend", "torhc"], "did you mean 'torch'"),
        (["LAB", "--set", "arms.sgd.optimizer.lrr=1"], "did you mean 'lr'"),
        (["LAB", "--set", "arms.sgd.optimizer.lr=-1"], "0 < lr"),
        (
            ["LAB", "--set", "arms.sgd.epochs=inf"],
            "arms.sgd.epochs: Input should be a finite number",
        ),
        (["LAB", "--set", "limits.trial=inf"], "limits.trial: Input should be a finite number"),
        (
            ["LAB", "--set", "arms.sgd.schedule.gamma=x"],
            "gamma must lie in (0, 1]; received gamma='x'",
        ),
        (["LAB", "--set", "arms.sgd.epochs=0"], "--set arms.sgd.epochs=0: arms.sgd.epochs: Input"),
        (["LAB", "--set", "arms.sgd.epochs=1e9"], "are too many"),
        (["LAB", "--set", "arms.sgd.updates=9223372036854775808"], "arms.sgd.updates"),
        (["LAB", "--set", "arms.gd.optimizer.name=[1]"], "unknown optimizer [1]"),
        (["LAB", "--set", "arms.gd.schedule.evry=1"], "did you mean 'every'"),
        (["LAB", "--seed", "-1"], "--seed: seeds.0"),
        (["LAB", "--data", ""], "unknown dataset ''"),
        (["LAB", "--world-size", "2"], "--world-size 2"),
        (["LAB", "--data", "mnits"], "did you mean 'mnist'"),
        (["LAB", "--lang", "fr"], "en or zh"),
        (["LAB", "--seed", "one"], "whole numbers"),
        (["LAB", "--device", "tpu"], "unknown device 'tpu'"),
        (["LAB", "--device", "cuda"], "CPU only"),
        (["LAB", "--threads", "-1"], "threads"),
        (["LAB", "--nonsense"], "nonsense"),
        (["--resume", "nowhere"], "not a run folder"),
        (["LAB", "--resume", "nowhere", "--quick"], "leave out --quick"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    lab: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    given = [w.replace("LAB", str(lab)) for w in words]
    extra = [] if {"--backend", "--resume"} & set(given) else ["--backend", "numpy"]
    done = dualml("run", *given, *extra, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("train = 200", 'train = "many"', 7, "data.train: Input should be a valid integer"),
        ("lr = 0.05", "lr = -1", 14, "arms.sgd.optimizer: sgd: lr must satisfy"),
        ("epochs = 2", "epoch = 2", 16, "unknown key arms.sgd.epoch; did you mean 'epochs'"),
        ('[data]\nname = "digits"\ntrain = 200\ntest = 50', 'data = "digits"', 5, "data: needs a "),
    ],
)
def test_a_wrong_value_is_told_with_file_line_and_key(
    lab: Path, tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    text = lab.read_text()
    assert old in text
    lab.write_text(text.replace(old, new))
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "o")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert f"{lab}, line {line}: " in done.stderr
    assert message in done.stderr


def test_a_terminal_without_the_letters_gets_question_marks(lab: Path, tmp_path: Path) -> None:
    words = ["run", lab, "--backend", "numpy", "--arm", "gd", "--no-report", "--lang", "zh"]
    for more in ([], ["--json"]):
        done = dualml(
            *words, "--out", tmp_path / f"o{len(more)}", *more, env={"PYTHONIOENCODING": "ascii"}
        )
        assert done.returncode == 0, done.stderr
    assert strict(done.stdout)["experiment"]["title"]["zh"] == "小"


def test_brackets_in_a_title_are_no_markup(lab: Path) -> None:
    done = dualml("show", lab, "--set", "title.en=a[/b]c")
    assert done.returncode == 0, done.stderr
    assert "a[/b]c" in done.stdout


def test_a_folder_in_use_is_not_touched(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    done = dualml("run", lab, "--backend", "numpy", "--out", out)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_an_unwritable_folder_is_one_line(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "file" / "out")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_diverging_arm_fails_and_the_others_go_on(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "o", "--set", "arms.gd.optimizer.lr=1e30")
    assert code == 1
    gd, sgd = told["trials"]
    assert gd["status"] == "failed"
    assert "arm gd" in gd["reason"]
    assert "step" in gd["reason"]
    assert "learning rate" in gd["reason"]
    assert sgd["status"] == "ok"


def test_an_update_that_moves_nothing_fails_and_names_the_optimizer(
    lab: Path, tmp_path: Path
) -> None:
    _, told = run(lab, tmp_path / "o", "--set", "arms.sgd.optimizer.lr=1e-300")
    sgd = told["trials"][1]
    assert sgd["status"] == "failed"
    assert "sgd moved no parameter" in sgd["reason"]


def test_the_time_limit_of_a_trial(lab: Path, tmp_path: Path) -> None:
    _, told = run(lab, tmp_path / "o", "--set", "limits.trial=0.05", "--arm", "gd")
    assert told["trials"][0]["status"] == "failed"
    assert "time limit of 0.05 s" in told["trials"][0]["reason"]


def test_list_and_show(lab: Path) -> None:
    listed = dualml("list")
    assert listed.returncode == 0
    assert listed.stdout.startswith("lab1")
    assert "实验一" in dualml("list", "--lang", "zh").stdout
    shown = dualml("show", lab, "--json")
    assert strict(shown.stdout)["arms"]["sgd"]["optimizer"]["momentum"] == 0.9
    assert "sgd" in dualml("show", "lab1").stdout
    assert dualml("show", "lab9").returncode == 2


def test_parity_of_something_else_is_refused(tmp_path: Path) -> None:
    done = dualml("parity", tmp_path)
    assert done.returncode == 2
    assert "not a run folder" in done.stderr


def test_a_full_disk_is_one_line_and_the_folder_stays_readable(lab: Path, tmp_path: Path) -> None:
    """A full disk is reported, first for the worker's result, then for the run's own summary
    (/dev/full)."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    code = (
        "import os, pathlib, sys\n"
        "usual = os.open\n"
        "def full(name, flags, *more, **named):\n"
        "    if '.run.json.' in str(name) and pathlib.Path(sys.argv[-1], 'trials').exists():\n"
        "        return usual('/dev/full', os.O_WRONLY)\n"
        "    return usual(name, flags, *more, **named)\n"
        "os.open = full\n"
        "from dualml.interface.cli import main\n"
        "main()\n"
    )
    out = tmp_path / "o"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "run",
            str(lab),
            "--backend",
            "numpy",
            "--no-report",
            "--arm",
            "gd",
            "--out",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "run.json: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert strict((out / "run.json").read_text())["trials"][0]["status"] == "interrupted"
    assert dualml("run", "--resume", out, "--no-report").returncode == 0


def test_reasons_of_a_worker_are_one_line() -> None:
    import errno

    from dualml.launch.child import failure_reason

    full = OSError(errno.ENOSPC, "No space left on device", "trace.safetensors")
    assert failure_reason(full) == ("failed", "no space left on the device for trace.safetensors")
    assert "smaller batch" in failure_reason(MemoryError())[1]
    assert failure_reason(ZeroDivisionError("a\nb")) == ("failed", "ZeroDivisionError: a")


def test_a_loss_that_only_the_last_evaluation_shows(lab: Path, tmp_path: Path) -> None:
    words = ["--arm", "sgd", "--set", "arms.sgd.updates=1", "--set", "arms.sgd.optimizer.lr=1e30"]
    code, told = run(lab, tmp_path / "o", *words)
    assert (code, told["trials"][0]["status"]) == (1, "failed")
    assert "after the last update" in told["trials"][0]["reason"]


def test_a_full_disk_while_the_plan_is_written(lab: Path, tmp_path: Path) -> None:
    import resource

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dualml",
            "run",
            str(lab),
            "--out",
            str(tmp_path / "o"),
            "--backend",
            "numpy",
        ],
        preexec_fn=small,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "cannot be written: File too large" in done.stderr


def test_the_referee_runs_with_the_threads_asked_for(lab: Path, tmp_path: Path) -> None:
    _, told = run(lab, tmp_path / "o", "--arm", "gd", "--threads", "1")
    environment = told["environment"]["numpy"]
    assert (environment["threads"], environment["OPENBLAS_NUM_THREADS"]) == ("1", "1")
    assert {"cpu", "cores", "platform"} <= set(environment)
    assert set(map(int, environment["affinity"].split())) <= os.sched_getaffinity(0)
    assert [float(average) >= 0 for average in environment["load"].split()] == [True] * 3


def test_a_reason_with_brackets_is_printed_as_it_is() -> None:
    from io import StringIO

    from rich.console import Console

    from dualml.common.words import Messages
    from dualml.experiment.store.manifest import TrialRecord
    from dualml.runner.session.progress import trial_summary

    for reason in ("cannot open [/tmp/x/y]", "Conv [mindspore/ccsrc/foo.cc] failed"):
        out = StringIO()
        trial = TrialRecord(arm="sgd", backend="numpy", seed=0, status="failed", reason=reason)
        Console(file=out, width=200).print(trial_summary("sgd", trial, Messages("en")))
        assert reason in out.getvalue()
