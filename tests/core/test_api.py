"""The Python API returns and draws exactly what the files hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import fake_run
import numpy as np
import pytest
from command import TOML

import dualml
from dualml.experiment.store import table
from dualml.interface.api import plot
from dualml.interface.api.running import settings_to_overrides
from dualml.interface.cli.run import run as run_command
from dualml.report import legend
from dualml.report.draw.palette import COLORS

SETTINGS = {"arms.sgd.epochs": 1, "data": {"train": 100}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_run.make_run(tmp_path_factory.mktemp("api") / "run")


@pytest.fixture(scope="module")
def run(folder: Path) -> dualml.Run:
    return dualml.load(folder)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    yield pyplot
    pyplot.close("all")


def written_records(folder: Path) -> Iterator[dict]:
    """Yield every record of a run folder with its trial, read directly from the files."""
    for trial in json.loads((folder / "run.json").read_text())["trials"]:
        whose = {key: trial[key] for key in ("arm", "backend", "seed")}
        path = folder / "trials" / whose["arm"] / whose["backend"] / f"seed{whose['seed']}"
        for line in (path / "rank0.jsonl").open():
            yield whose | {"rank": 0} | json.loads(line)


# --- reading --------------------------------------------------------------------------------------


def test_a_frame_holds_every_record(folder: Path, run: dualml.Run) -> None:
    frame, lines = run.frame(), list(written_records(folder))
    assert len(frame) == len(lines) > 5000
    assert list(frame) == [*table.RECORD, "epochs", "seconds"]  # no record is of a class
    for name in frame:
        there = [line.get(name) for line in lines]
        assert [None if value != value else value for value in frame[name]] == there


def test_records_of_every_rank_and_class(tmp_path: Path) -> None:
    arms = {"sgd": fake_run.MAIN["sgd"] | {"world_size": 2}}
    folder = fake_run.make_run(tmp_path, arms=arms, backends=["torch"], seeds=[0], different=None)
    place = folder / "trials" / "sgd" / "torch" / "seed0"
    more = {"metric": "drift", "step": 3, "value": None, "unit": "1"}
    (place / "rank1.jsonl").write_text(json.dumps(more) + "\n" + '{"metric": "cut o')
    with (place / "rank0.jsonl").open("a") as file:
        of_class = {"metric": "class_accuracy", "step": 5, "value": 0.5, "unit": "1", "class": 7}
        file.write(json.dumps(of_class) + "\n")
    records = table.records(dualml.load(folder))
    assert {len(values) for values in records.values()} == {len(records["arm"])}
    rows = list(zip(*(records[name] for name in ("rank", "metric", "class", "value")), strict=True))
    assert rows[-2:] == [(0, "class_accuracy", 7, 0.5), (1, "drift", None, None)]
    (place / "rank1.jsonl").write_text('{"metric": "drift"}\n{}\n')
    with pytest.raises(dualml.UserError, match=r"rank1\.jsonl, line 1 is not a record"):
        table.records(dualml.load(folder))


def test_trials_and_verdicts_as_tables(folder: Path, run: dualml.Run) -> None:
    trials, known = run.frame("trials"), json.loads((folder / "run.json").read_text())["trials"]
    for name in ("arm", "backend", "seed", "status", "updates", "train_s", "peak_memory_mb"):
        assert list(trials[name]) == [trial[name] for trial in known]
    by_key = {(t.arm, t.backend, t.seed): t.verdict for t in trials.itertuples()}
    assert by_key["sgd", "mindspore", 1] == by_key["sgd", "torch", 1] == "different"
    assert by_key["sgd", "numpy", 1] == by_key["adam", "torch", 0] == "equal"
    assert not isinstance(by_key["gd", "mindspore", 1], str)  # it failed: nothing was compared
    verdicts = run.frame("verdicts")
    (different,) = verdicts[verdicts.verdict == "different"].itertuples()
    assert (different.arm, different.seed, different.a, different.b) == (
        "sgd",
        1,
        "torch",
        "mindspore",
    )
    assert (different.first_step, different.first_phase) == (12, "gradient")
    assert different.ratio > 1000
    assert (run.verdict, len(run.verdicts)) == ("different", len(verdicts))


def test_a_run_that_was_not_judged_has_no_verdict(tmp_path: Path) -> None:
    run = dualml.load(fake_run.make_run(tmp_path, parity=False))
    assert (run.verdict, run.verdicts) == (None, ())
    assert run.frame("trials").verdict.isna().all()
    assert "adam" in run._repr_html_()


def test_what_a_session_shows_is_a_line(run: dualml.Run) -> None:
    trial = run.trials[0]
    assert repr(trial).startswith(f"<Trial {trial.arm} · {trial.backend} · seed {trial.seed}: ")
    assert repr(next(iter(trial.curves.values()))).startswith("<Curve: ")
    assert all(len(repr(one)) < 120 for one in (*run.trials, *run.verdicts))


def test_one_trial_and_its_curve(run: dualml.Run) -> None:
    curve = run.curve("loss", arm="sgd", backend="numpy", seed=0)
    losses = fake_run.curve("sgd", fake_run.MAIN["sgd"], "numpy", 0)
    np.testing.assert_array_equal(curve.value, losses)
    assert run.trial("adam", "torch", 1).seed == 1
    for asked, problem in (
        ({"arm": "adm"}, "no trial of arm 'adm'; did you mean 'adam'"),
        ({"arm": "adam", "seed": 9}, "no trial of seed 9"),
        ({"arm": "adam", "seed": 0}, "there are 3 such trials; say backend, too"),
        ({"arm": "adam", "backend": "torch", "seed": 0, "metric": "lss"}, "did you mean 'loss'"),
    ):
        with pytest.raises(dualml.UserError, match=problem):
            run.curve(**asked)


def test_folders_of_one_plan_together(tmp_path: Path, folder: Path) -> None:
    other = fake_run.make_run(tmp_path / "other", backends=["torch"], failed=None)
    both = dualml.load(folder, other)
    names = {name for name in both.frame().backend if name.startswith("torch")}
    assert names == {"torch (run)", "torch (other)"}
    with pytest.raises(dualml.UserError, match="several folders"):
        dualml.compare(both, folder)


def test_what_is_no_run_is_refused(tmp_path: Path, run: dualml.Run) -> None:
    with pytest.raises(dualml.UserError, match=str(tmp_path)):
        dualml.load(tmp_path)
    with pytest.raises(dualml.UserError, match="no run folder given"):
        dualml.load()
    with pytest.raises(dualml.UserError, match="did you mean 'trials'"):
        run.frame("trails")


def test_a_notebook_shows_a_row_for_each_trial(run: dualml.Run) -> None:
    html = run._repr_html_()
    assert html.count("<tr>") == 1 + len(run.trials)
    assert "≠ different" in html
    assert repr(run).startswith("<Run lab1: 18 trials, different, ")


# --- drawing --------------------------------------------------------------------------------------


def lines_of(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.lines}


def test_lines_are_the_records(run: dualml.Run, pyplot: Any) -> None:
    axes = run.plot("test_accuracy", arm="adam", seed=0, against="updates")
    lines = lines_of(axes)
    assert set(lines) == {"numpy", "torch", "mindspore"}
    for backend, line in lines.items():
        curve = run.curve("test_accuracy", arm="adam", backend=backend, seed=0)
        np.testing.assert_array_equal(line.get_xdata(), curve.step)
        np.testing.assert_allclose(line.get_ydata(), 100 * curve.value)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("updates", "test accuracy / %")
    assert lines["mindspore"].is_dashed()
    assert not lines["torch"].is_dashed()


def test_seeds_are_taken_together_and_noise_stands_behind(run: dualml.Run, pyplot: Any) -> None:
    axes = run.plot.loss(backend="torch")
    lines = lines_of(axes)
    assert {"gd", "sgd", "adam"} <= set(lines)
    values = [run.curve(arm="sgd", backend="torch", seed=s).value for s in (0, 1)]
    means = [line.get_ydata() for line in axes.lines if line.get_label().startswith("_")]
    assert any(np.allclose(mean, np.mean(values, axis=0)) for mean in means if len(mean) == 500)
    colors = legend.colors(run)
    for arm in ("gd", "sgd", "adam"):
        assert lines[arm].get_color() == COLORS[colors[arm]][0]
    assert len(axes.collections) == 3  # shaded from the least to the greatest
    assert axes.get_ylabel() == "training loss / nat"


def test_a_failed_trial_ends_with_a_cross(run: dualml.Run, pyplot: Any) -> None:
    axes = run.plot.loss(arm="gd", backend="mindspore", seed=1)
    *_, end = axes.lines
    assert (end.get_marker(), list(end.get_xdata())) == ("x", [6.0])
    assert axes.get_legend() is not None


def test_axes_of_ones_own_and_chinese(
    run: dualml.Run, pyplot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = pyplot.figure().add_subplot()
    monkeypatch.setattr(plot, "CHINESE", ("DejaVu Sans",))  # stands for any that is installed
    assert run.plot.accuracy(arm="adam", ax=axes, lang="zh") is axes
    assert axes.get_ylabel() == "测试准确率 / %"
    assert axes.yaxis.label.get_fontfamily()[-1] == "DejaVu Sans"
    monkeypatch.setattr(plot, "CHINESE", ())
    with pytest.warns(UserWarning, match="no font with Chinese letters"):
        assert run.plot.loss(arm="adam", lang="zh").get_ylabel() == "training loss / nat"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"arm": "adm"}, "no arm 'adm' in this run; did you mean 'adam'"),
        ({"backend": "jax"}, "no backend 'jax'"),
        ({"seed": 7}, "no seed 7"),
        ({"metric": "test_los"}, "no curve 'test_los'; did you mean 'test_loss'"),
        ({"against": "second"}, "unknown axis 'second'; did you mean 'seconds'"),
        ({"lang": "de"}, "unknown language 'de'"),
    ],
)
def test_what_cannot_be_drawn(run: dualml.Run, asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(dualml.UserError, match=problem):
        run.plot(**asked)


@pytest.mark.parametrize("library", ["pandas", "matplotlib"])
def test_a_library_that_is_missing_is_named(
    run: dualml.Run, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    for name in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(dualml.UserError, match=rf"{library}.*pip install 'dualml\[notebook\]'"):
        run.frame() if library == "pandas" else run.plot.loss()


# --- running and comparing ------------------------------------------------------------------------


def test_running_is_what_the_command_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lab, out = tmp_path / "tiny.toml", tmp_path / "out"
    lab.write_text(TOML)
    run = dualml.run(lab, backend="numpy", out=out, settings=SETTINGS, progress=False, find=False)
    assert [(t.arm, t.status, t.updates) for t in run.trials] == [
        ("gd", "ok", 12),
        ("sgd", "ok", 5),
    ]
    assert capfd.readouterr() == ("", "")
    assert (out / "report.html").exists()
    assert 'lang="zh-CN"' in run.report(tmp_path / "page", lang="zh").read_text("utf-8")
    with pytest.raises(dualml.UserError, match="leave out --arm"):
        dualml.run(resume=out, arms="gd")
    assert dualml.run(resume=out, report=False, progress=False).trial("gd").ok


def test_the_command_has_nothing_that_python_has_not() -> None:
    """Python covers every command option except starting ranks on other machines and output
    formats."""
    other = {
        "set_": "settings",
        "arm": "arms",
        "seed": "seeds",
        "no_report": "report",
        "no_find": "find",
    }
    of_shell = {"context", "check", "rendezvous", "rank", "hosts", "insecure", "keep_local", "json"}
    options = {other.get(name, name) for name in signature(run_command).parameters} - of_shell
    assert options == set(signature(dualml.run).parameters) - {"progress"}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"lab": "lab7"}, "did you mean 'lab1'|known"),
        ({}, "name an experiment"),
        ({"lab": "lab1", "arms": "adm"}, "no arm 'adm'"),
        ({"lab": "lab1", "settings": {"arms.adam.optimizer.lr": -1}}, "lr must satisfy"),
        ({"lab": "lab1", "settings": {"seeds": None}}, "settings: seeds must be"),
        ({"lab": "lab1", "world_size": 0}, "--world-size must be from 1"),
        ({"lab": "lab1", "threads": -1}, "--threads must be from 0"),
        ({"lab": "lab1", "backend": "jax"}, "unknown backend 'jax'"),
        ({"lab": "lab1", "lang": "de"}, "unknown language"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is_written(
    tmp_path: Path, asked: dict[str, Any], problem: str
) -> None:
    out = tmp_path / "out"
    with pytest.raises(dualml.UserError, match=problem):
        dualml.run(**{"backend": "numpy", "out": out, **asked})
    assert not out.exists()


def test_settings_become_toml() -> None:
    given = {"a.b": 1e-3, "c": {"d": True, "e": ["x", "y\n"]}, "f": "文"}
    assert list(settings_to_overrides(given)) == [
        "a.b=0.001",
        "c.d=true",
        'c.e=["x", "y\\n"]',
        'f="文"',
    ]
    for value in (None, float("nan"), object()):
        with pytest.raises(dualml.UserError, match="settings: x must be a number"):
            list(settings_to_overrides({"x": value}))


def test_runs_traces_and_models_are_compared(
    tmp_path: Path, folder: Path, run: dualml.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualml.parity import against
    from dualml.parity.models import run as models

    called: list[tuple[str, Any]] = []

    def record_call(name: str) -> Any:
        return lambda *given, **options: called.append((name, (*given, options)))

    monkeypatch.setattr(against, "compare_runs", record_call("runs"))
    monkeypatch.setattr(models, "compare", record_call("models"))
    monkeypatch.setattr(models, "compare_traces", record_call("traces"))
    dualml.compare(run, folder, margin=4.0)
    dualml.compare(tmp_path, str(tmp_path))
    (timed := tmp_path / "at 12:30").mkdir()
    dualml.compare(timed, str(timed))
    dualml.compare("a.py:Net", dict, [1.0], steps=2)
    assert called == [
        ("runs", (folder, folder, {"margin": 4.0})),
        ("traces", (tmp_path, tmp_path, {})),
        ("traces", (timed, timed, {})),
        ("models", ("a.py:Net", dict, [1.0], {"steps": 2})),
    ]
    for given, problem in (
        ((folder, tmp_path / "none"), "there is no folder"),
        ((folder, dict), "compare takes two runs"),
        ((dict, dict), "compare takes two runs"),
        ((folder, folder, [1.0]), "inputs are of models"),
    ):
        with pytest.raises(dualml.UserError, match=problem):
            dualml.compare(*given)


def test_experiments_have_titles_in_both_languages() -> None:
    titles = dualml.experiments(), dualml.experiments("zh")
    assert set(titles[0]) == set(titles[1]) >= {"lab1", "lab2", "lab3", "lab4"}
    assert titles[0]["lab1"] != titles[1]["lab1"]
    with pytest.raises(dualml.UserError, match="unknown language"):
        dualml.experiments("de")


def test_importing_loads_nothing() -> None:
    code = (
        "import sys, dualml; assert not {'numpy', 'pydantic', 'dualml.interface.api'} & "
        "set(sys.modules); "
        "dualml.nothing"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "module 'dualml' has no attribute 'nothing'" in done.stderr
    assert set(dualml.__all__) <= set(dir(dualml))
