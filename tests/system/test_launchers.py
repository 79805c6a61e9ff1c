"""Ranks started by a framework's own launcher, and kinds of rendezvous."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from conformance.backends import require
from running import TINY, LaunchedRun, dualml, losses, trials

from dualml.launch.route import free_port

pytestmark = pytest.mark.system
FRAMEWORKS = ["torch", "mindspore"]
#: Settings by which `torchrun`, `msrun` and the `python` that msrun starts are this environment's.
PATH = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launched") / "lab.toml"
    path.write_text(TINY)
    return path


def launcher(backend: str, folder: Path) -> list[str]:
    """Return the launcher's words before those of ``dualml``."""
    if backend == "torch":
        return [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--master-port",
            str(free_port()),
            "-m",
            "dualml",
        ]
    return [
        str(Path(sys.executable).with_name("msrun")),
        "--worker_num",
        "2",
        "--local_worker_num",
        "2",
        "--master_port",
        str(free_port()),
        "--join",
        "True",
        "--log_dir",
        str(folder / "msrun"),
        "--",
        "python",
        "-m",
        "dualml",
    ]


@pytest.fixture(scope="module")
def self_launched_run(
    request: pytest.FixtureRequest, lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return a backend, and one of two folders of concurrent runs that started their own ranks."""
    backend = request.param
    require(backend)
    folder = tmp_path_factory.mktemp("itself")
    words = ["--backend", backend, "--no-report", "--out"]
    with (
        LaunchedRun(dualml("run", lab, *words, folder / "1"), folder) as one,
        LaunchedRun(dualml("run", lab, *words, folder / "2"), folder) as two,
    ):
        assert one.end() == 0, one.text()
        assert two.end() == 0, two.text()
    assert losses(folder / "1", "ring", backend) == losses(folder / "2", "ring", backend)
    return backend, folder / "1"


EITHER = pytest.mark.parametrize("self_launched_run", FRAMEWORKS, indirect=True)


@EITHER
def test_a_launcher_gives_the_numbers_of_a_run_by_itself(
    self_launched_run: tuple[str, Path], lab: Path, tmp_path: Path
) -> None:
    backend, alone = self_launched_run
    out = tmp_path / "out"
    words = [*launcher(backend, tmp_path), "run", lab, "--out", out, "--no-report"]
    with LaunchedRun(words, tmp_path, PATH) as run:
        assert run.end() == 0, run.text()
    (trial,) = trials(out).values()
    assert (trial["status"], trial["world_size"], trial["backend"]) == ("ok", 2, backend)
    assert losses(out, "ring", backend) == pytest.approx(losses(alone, "ring", backend), rel=1e-6)
    place = out / "trials/ring" / backend / "seed0"
    assert (place / "rank1.log").exists()
    # The same command again finds the folder in use, on every rank, and leaves it as it is.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    with LaunchedRun([*words[:-1]], tmp_path, PATH) as again:
        assert again.end(60) != 0
        told = again.text() + logs(tmp_path)
        assert "is not empty; choose another --out" in told, told
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / "msrun").glob("*.log")))


@pytest.mark.parametrize("backend", FRAMEWORKS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "OUT", "--arm", "rign"], "did you mean 'ring'"),  # what rank 0 alone finds out
        ([], "name the run folder with --out"),
    ],
    ids=["arm", "out"],
)
def test_wrong_input_ends_the_launcher_in_time(
    backend: str, words: list[str], message: str, lab: Path, tmp_path: Path
) -> None:
    require(backend)
    given = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    with LaunchedRun([*launcher(backend, tmp_path), "run", lab, *given], tmp_path, PATH) as run:
        assert run.end(60) != 0
        lines = (run.text() + logs(tmp_path)).splitlines()
    mine = [line for line in lines if "dualml: " in line]
    assert mine
    assert all(message in line for line in mine), mine
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_rank_of_a_launcher_that_is_killed(backend: str, lab: Path, tmp_path: Path) -> None:
    require(backend)
    out = tmp_path / "out"
    words = ["run", lab, "--out", out, "--no-report", "--set", "arms.ring.updates=20000"]
    with LaunchedRun([*launcher(backend, tmp_path), *words], tmp_path, PATH) as run:
        records = out / "trials/ring" / backend / "seed0/rank0.jsonl"
        run.wait_for(lambda: records.exists() and records.stat().st_size > 1000)
        victim = run.wait_for(lambda: run.rank(1))
        run.note_ports()
        begin = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        assert run.end(30) != 0
        print(backend, "killed under its launcher", round(time.monotonic() - begin, 1))
        told = run.text() + logs(tmp_path)
    (trial,) = trials(out).values()
    assert (trial["status"], trial["reason"]) == ("failed", "rank 1 was ended by SIGKILL"), told
    resumed = dualml("run", "--resume", out, "--no-report")
    with LaunchedRun(resumed, tmp_path) as again:
        again.wait_for(lambda: again.rank(1))
        again.process.send_signal(signal.SIGTERM)
        assert again.end(20) == 130, again.text()


@EITHER
@pytest.mark.parametrize("scheme", ["tcp", "file"])
def test_a_rendezvous_of_ones_own(
    self_launched_run: tuple[str, Path], scheme: str, lab: Path, tmp_path: Path
) -> None:
    backend, alone = self_launched_run
    out = tmp_path / "out"
    where = {"tcp": f"tcp://127.0.0.1:{free_port()}", "file": f"file://{tmp_path}/store"}[scheme]
    words = ["run", lab, "--backend", backend, "--out", out, "--no-report", "--check"]
    with LaunchedRun(dualml(*words, "--rendezvous", where), tmp_path) as run:
        code = run.end()
    (trial,) = trials(out).values()
    if (backend, scheme) == ("mindspore", "file"):
        assert code == 1
        assert "MindSpore has no rendezvous by file" in trial["reason"]
        return
    assert (code, trial["status"]) == (0, "ok"), trial
    assert losses(out, "ring", backend) == losses(alone, "ring", backend)
    assert not list(tmp_path.glob("store*")), "the ranks' store was left behind"


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_port_in_use_is_named(backend: str, lab: Path, tmp_path: Path) -> None:
    require(backend)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["run", lab, "--backend", backend, "--out", tmp_path / "o", "--no-report"]
        with LaunchedRun(
            dualml(*words, "--rendezvous", f"tcp://127.0.0.1:{port}"), tmp_path
        ) as run:
            assert run.end(60) == 1
    (trial,) = trials(tmp_path / "o").values()
    assert trial["status"] == "failed"
    assert str(port) in trial["reason"]
    assert "in use" in trial["reason"]
