"""Files of jobs: permissions, contents, and how odd ones are read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from command import dualml
from hostile_cases import cases, try_cases
from hypothesis import strategies as st
from mutations import ODD, TEXTS, mutated, mutated_bytes

from dualml.common.errors import UserError
from dualml.common.machine import ProcessResult
from dualml.common.variables import is_secret
from dualml.common.words import Messages
from dualml.interface.cli.submit_options import FORBIDDEN_OPTIONS, parse_run_request
from dualml.interface.serve.jobs import Cache, CachedJobs, JobMonitor
from dualml.runner.jobs import control, local, logs, slurm
from dualml.runner.jobs.store import STATE, VARIABLE, Jobs, JobSpec, JobState
from dualml.runner.jobs.table import jobs_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """A private jobs folder whose queue is never started."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "jobs"))
    monkeypatch.setattr(local, "ensure_scheduler", lambda jobs: None)
    return Jobs(tmp_path / "jobs")


def add(jobs: Jobs, **more: Any) -> JobSpec:
    asked = {"on": "local", "words": ["lab1"], "cwd": "/", "out": "/nowhere/run", "python": "x"}
    return jobs.add(**{**asked, **more})


def printed(jobs: Jobs) -> str:
    """Return the output of `dualml jobs` as text and as JSON."""
    from rich.console import Console

    from dualml.report.page.terminal import render

    rows = control.list_jobs(jobs, everything=True)
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(render(jobs_table(rows, Messages("en")), 200))
    json.dumps([row.describe() for row in rows], allow_nan=False)
    return console.export_text()


# --- secrets ------------------------------------------------------------------------------------


def test_no_secret_stands_in_a_file_of_a_job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("DUALML_TOKEN", "DUALML_SECRET", "CUDA_API_KEY", "PATH_PASSWORD")
    for name in secrets:
        monkeypatch.setenv(name, "hidden-word")
    monkeypatch.setenv("WANDB_API_KEY", "hidden-word")
    monkeypatch.setenv("DUALML_CHECKPOINT_S", "7")
    job = add(jobs)
    assert job.environ["DUALML_CHECKPOINT_S"] == "7"
    assert not job.environ.keys() & {*secrets}
    files = [path for path in jobs.path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert all(b"hidden-word" not in path.read_bytes() for path in files)


def test_files_of_jobs_are_for_their_user_alone(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        job = add(jobs)
        jobs.update_state(job.id, status="stopped")
        monkeypatch.setattr(slurm, "run_slurm", lambda *_, **__: ProcessResult(0, "77\n", ""))
        slurm.submit(jobs, add(jobs, on="slurm"))
        queue = local.LocalQueue(jobs, local.Capacity(cores=(0,), gpus=0, memory=0))
        monkeypatch.setattr(local.subprocess, "Popen", lambda *_, **__: None)
        queue.start(job, [0], [])
    finally:
        os.umask(before)
    assert {path.name for path in jobs.path.rglob("*")} >= {"job.json", "job.sbatch", "log"}
    for path in (jobs.path, *jobs.path.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_the_process_of_the_queue_inherits_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, seen = Jobs(tmp_path), dict[str, Any]()
    monkeypatch.setenv("DUALML_TOKEN", "hidden-word")
    add(jobs)
    monkeypatch.setattr(local.subprocess, "Popen", lambda *_, **more: seen.update(more))
    local.ensure_scheduler(jobs)
    assert "hidden-word" not in seen["env"].values()
    assert stat.S_IMODE((tmp_path / "scheduler.log").stat().st_mode) == 0o600


def test_slurm_is_given_the_token_of_now_and_no_other_secret(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = dict[str, str]()

    def bounded(words: list[str], limit: float, environ: dict[str, str]) -> ProcessResult:
        seen.update(environ)
        return ProcessResult(0, "77\n", "")

    monkeypatch.setattr(slurm, "require_program", lambda program: None)
    monkeypatch.setattr(slurm, "run_bounded", bounded)
    monkeypatch.setenv("DUALML_SECRET", "hidden-word")
    monkeypatch.setenv("DUALML_TOKEN", "of-the-user")
    slurm.submit(jobs, add(jobs, on="slurm"))
    assert seen["DUALML_TOKEN"] == "of-the-user"
    assert "hidden-word" not in seen.values()
    monkeypatch.delenv("DUALML_TOKEN")
    slurm.submit(jobs, add(jobs, on="slurm"))
    assert len(seen["DUALML_TOKEN"]) == 32


def test_names_of_secrets_are_known() -> None:
    for name in ("DUALML_TOKEN", "MLFLOW_TRACKING_PASSWORD", "WANDB_API_KEY", "aws_secret"):
        assert is_secret(name)
    assert not any(map(is_secret, ("DUALML_DATA", "PATH", "OMP_NUM_THREADS", "CUDA_HOME")))


# --- what is queued -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--rank", "0"], ["--rank", "3"], ["--resume", "x"], ["--json"]])
def test_what_a_job_cannot_have_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match=f"submit takes no {words[0]}: "):
        parse_run_request(["lab1", *words], FORBIDDEN_OPTIONS)


def test_rank_0_is_not_queued(jobs: Jobs) -> None:
    done = dualml("submit", "lab1", "--rank", 0, env={VARIABLE: str(jobs.path)})
    assert done.returncode == 2
    assert "submit takes no --rank: a job starts its own ranks" in done.stderr
    assert jobs.numbers() == []


def test_a_path_that_is_no_unicode_is_refused_in_a_line(jobs: Jobs) -> None:
    for asked in ({"cwd": "/\udcff"}, {"out": "a\0b"}, {"words": ["\udcff"]}):
        with pytest.raises(UserError, match=f"{next(iter(asked))}"):
            add(jobs, **asked)
    assert jobs.numbers() == []


def test_a_variable_that_is_no_unicode_is_left_out(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/\udcff")
    assert "CUDA_HOME" not in add(jobs).environ


@pytest.mark.parametrize("name", ["0", "007", "１", "-1", "9" * 5000, "1 ", "x", "1\n2"])
def test_folders_of_other_names_are_no_jobs(jobs: Jobs, name: str) -> None:
    add(jobs)
    name = name[:255]
    folder = jobs.path / name
    folder.mkdir()
    STATE.write(folder, JobState(status="queued", since=0))
    assert jobs.numbers() == [1]
    assert add(jobs).id == 2


def test_process_0_is_never_sent_a_signal(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 0 is never sent a signal: the number means the sender's whole process group."""
    sent = list[int]()
    monkeypatch.setattr(local.os, "kill", lambda pid, sign: sent.append(pid))
    for pid in (0, None, 2**22 + 1):
        state = JobState(status="running", since=0, pid=pid)
        assert not local.is_alive(state)
        local.kill(state, 15)
    assert sent == []


# --- logs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "loop"])
def test_logs_are_read_from_files_alone(jobs: Jobs, tmp_path: Path, kind: str) -> None:
    job = add(jobs, out=str(tmp_path / "run"))
    (tmp_path / "mine").write_text("not a log")
    for path in (jobs.log(job.id), tmp_path / "run/trials/a/torch/seed0/rank0.log"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            goal = {"link": tmp_path / "mine", "device": "/dev/zero", "loop": path}[kind]
            path.symlink_to(goal)
    for rank in (None, 0):
        begin = time.monotonic()
        with pytest.raises((UserError, OSError)):
            list(logs.iter_log(jobs, job, rank, follow=False))
        assert time.monotonic() - begin < 5


def test_logs_steer_no_terminal_and_keep_lines_and_tabs(jobs: Jobs) -> None:
    job = add(jobs)
    jobs.log(job.id).write_bytes(b"1\tone\r\n\x1b[2J\x1b]0;x\x07\xe2\x80\xaetwo\xff\n")
    done = dualml("logs", job.id, env={VARIABLE: str(jobs.path)})
    assert done.stdout == "1\tone\n\\x1b[2J\\x1b]0;x\\x07\\u202etwo\ufffd\n"


def test_the_list_of_jobs_steers_no_terminal(jobs: Jobs) -> None:
    job = add(jobs, words=["lab\x1b[2J"], out="/x/\u202erun")
    jobs.update_state(job.id, status="failed", reason="\x1b]0;title\x07")
    done = dualml("jobs", env={VARIABLE: str(jobs.path), "COLUMNS": "200"})
    assert done.returncode == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
    assert "\\x1b[2J" in done.stdout


# --- records that nobody meant ------------------------------------------------------------------


@cases(150, 5000)
def test_whatever_stands_in_files_of_jobs_ends_in_a_table_or_in_one_line(
    jobs: Jobs, tmp_path: Path, count: int
) -> None:
    add(jobs)
    run = tmp_path / "run"
    run.mkdir()
    job = add(jobs, out=str(run), cores=1, words=["lab1", "--quick"])
    jobs.update_state(job.id, status="running", pid=2**22 + 1, created=1.0, starts=1)
    files = {name: (jobs.folder(job.id) / name).read_bytes() for name in ("job.json", "state.json")}
    trials = {"trials": [{"status": "ok"}, {"status": "interrupted"}]}
    kept = JobMonitor(CachedJobs(jobs.path, Cache()))

    def case(draw: Any) -> None:
        for name, content in files.items():
            (jobs.folder(job.id) / name).write_bytes(content)
        name = draw(st.sampled_from(["job.json", "state.json", "run.json"]))
        place = run if name == "run.json" else jobs.folder(job.id)
        whole = json.dumps(trials).encode() if name == "run.json" else files[name]
        if draw(st.integers(0, 3)):
            value = json.loads(whole)
            if name != "run.json" and draw(st.booleans()):
                value[draw(st.sampled_from(sorted(value)))] = draw(
                    st.one_of(ODD, st.sampled_from(TEXTS), st.text(max_size=20))
                )
            else:
                value = mutated(draw, value)
            text = json.dumps(value).encode()
        else:
            text = mutated_bytes(draw, whole)
        (place / name).write_bytes(text)
        for use in (
            lambda: printed(jobs),
            lambda: control.stop(jobs, job.id),
            lambda: control.resume(jobs, job.id),
            lambda: list(logs.iter_log(jobs, jobs.job(job.id), 0, follow=False)),
            lambda: local.LocalQueue(jobs, local.Capacity((0,), 0, 2**30)).run_once(),
            kept.run_folders,
            lambda: kept.logs(run),
        ):
            with contextlib.suppress(UserError, OSError):
                use()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "STOP_S", 0.0)
        patch.setattr(local.LocalQueue, "start", lambda *_: None)
        patch.setattr(
            "dualml.runner.jobs.slurm.run_slurm", lambda *_, **__: ProcessResult(1, "", "down")
        )
        try_cases(count, case)
