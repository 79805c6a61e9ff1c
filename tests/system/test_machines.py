"""Ranks started by hand, each in a separate terminal, without a shared folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conformance.backends import require
from running import TINY, LaunchedRun, bed, dualml, losses, netbed, trials

from dualml.launch.route import free_port

pytestmark = pytest.mark.system
FRAMEWORKS = ["torch", "mindspore"]
TOML = (
    TINY
    + """
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
updates = 3
"""
)
TOKEN = {"DUALML_TOKEN": "known to both machines"}
LONG = ["--arm", "ring", "--set", "arms.ring.updates=300"]
#: Checkpoints are frequent enough that a kill comes after one.
SAVING = {"DUALML_CHECKPOINT_S": "0.2"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machines") / "lab.toml"
    path.write_text(TOML)
    return path


def address() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def rank(number: int, where: str, folder: Path, *words: object, **env: str) -> LaunchedRun:
    """Return the terminal of one rank, which does not look into the others' folders."""
    ranks = ["--rank", number, "--world-size", 2, "--rendezvous", where]
    at = folder / f"machine{number}"
    at.mkdir(parents=True, exist_ok=True)
    temporary = at / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {**TOKEN, "TMPDIR": str(temporary), **env}
    return LaunchedRun(dualml("run", *words, *ranks), at, settings)


def weights(out: Path, backend: str) -> bytes:
    return (out / f"trials/ring/{backend}/seed0/weights.safetensors").read_bytes()


def facts(out: Path, backend: str) -> dict[str, Any]:
    """Return what rank 0 reports of a trial, without anything that depends on a clock."""
    path = out / f"trials/ring/{backend}/seed0/result.json"
    told = json.loads(path.read_text())
    assert len(told["apart"]) > 1
    return {name: told[name] for name in ("apart", "data", "samples", "final_loss")}


def checkpoints(out: Path, backend: str) -> bool:
    place = out / f"trials/ring/{backend}/seed0"
    return all(
        (place / name).exists()
        for name in ("checkpoint.safetensors", "rank1.checkpoint.safetensors")
    )


def test_both_frameworks_in_one_run(lab: Path, tmp_path: Path) -> None:
    for framework in FRAMEWORKS:
        require(framework)
    out, where = tmp_path / "out", address()
    with (
        rank(1, where, tmp_path) as other,
        rank(0, where, tmp_path, lab, "--out", out, "--backend", "both", "--no-report") as first,
    ):
        assert first.end() == 0, first.text() + other.text()
        assert other.end(20) == 0, other.text()
        assert (
            f"start the other ranks, on any machine that reaches this one, with: dualml run "
            f"--rank 1 --world-size 2 --rendezvous {where}" in first.text()
        )
        assert f"rank 1 of 2 is part of the run at {where}" in other.text()
    assert not list((tmp_path / "machine1/tmp").glob("dualml-*"))
    with LaunchedRun(
        dualml(
            "run",
            lab,
            "--out",
            tmp_path / "alone",
            "--arm",
            "ring",
            "--backend",
            "both",
            "--no-report",
        ),
        tmp_path,
    ) as alone:
        assert alone.end() == 0, alone.text()
    for backend in FRAMEWORKS:
        place = out / f"trials/ring/{backend}/seed0"
        told = json.loads((out / "run.json").read_text())["trials"]
        (trial,) = (t for t in told if (t["arm"], t["backend"]) == ("ring", backend))
        assert (trial["status"], trial["world_size"]) == ("ok", 2)
        assert len(trial["ranks"]) == 2  # the times of both
        for name in ("rank1.log", "rank1.jsonl", "rank1.times.npz", "rank1.usage.jsonl"):
            assert (place / name).exists(), name
        mine, whole = losses(out, "ring", backend), losses(tmp_path / "alone", "ring", backend)
        assert mine == pytest.approx(whole, rel=1e-6)


@pytest.fixture(scope="module")
def uninterrupted(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function: backend → folder of an uninterrupted run of `LONG`."""
    made = dict[str, Path]()

    def reference_folder(backend: str) -> Path:
        if backend not in made:
            folder = tmp_path_factory.mktemp(backend)
            words = ["--backend", backend, "--no-report", "--threads", 1, *LONG]
            with LaunchedRun(dualml("run", lab, "--out", folder / "out", *words), folder) as run:
                assert run.end() == 0, run.text()
            made[backend] = folder / "out"
        return made[backend]

    return reference_folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_machine_that_dies_is_named_and_the_run_goes_on(
    backend: str, lab: Path, tmp_path: Path, uninterrupted: Callable[[str], Path]
) -> None:
    require(backend)
    out, where = tmp_path / "out", address()
    words = [lab, "--out", out, "--backend", backend, "--no-report", "--threads", 1, *LONG]
    with (
        rank(1, where, tmp_path, **SAVING) as other,
        rank(0, where, tmp_path, *words, **SAVING) as first,
    ):
        first.wait_for(lambda: checkpoints(out, backend))
        begin = time.monotonic()
        for process in other.marked_processes():  # as when the power fails
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        assert first.end(30) == 1, first.text()
        print(backend, "machine killed", round(time.monotonic() - begin, 1))
        assert f"the run ends here, continue with: dualml run --resume {out}" in first.text()
    (trial,) = trials(out).values()
    assert trial["status"] == "failed"
    gone = f"rank 1 its connection to rank 0 ended (on {socket.gethostname()})"
    assert trial["reason"] in (gone, "rank 1 was ended by SIGKILL"), trial["reason"]
    shutil.rmtree(tmp_path / "machine1")  # nothing of it is needed again
    where = address()
    with (
        rank(1, where, tmp_path, **SAVING) as other,
        rank(0, where, tmp_path, "--resume", out, "--no-report", **SAVING) as first,
    ):
        assert first.end() == 0, first.text() + other.text()
        assert other.end(20) == 0, other.text()
    assert "starting again" not in (out / f"trials/ring/{backend}/seed0/rank0.log").read_text()
    assert weights(out, backend) == weights(uninterrupted(backend), backend)
    assert facts(out, backend) == facts(uninterrupted(backend), backend)


def test_what_a_rank_writes_can_stay_on_its_machine(lab: Path, tmp_path: Path) -> None:
    require("torch")
    out, where, kept = tmp_path / "out", address(), tmp_path / "kept"
    words = [lab, "--out", out, "--backend", "torch", "--no-report", "--arm", "ring"]
    with (
        rank(1, where, tmp_path, "--keep-local", "--out", kept) as other,
        rank(0, where, tmp_path, *words) as first,
    ):
        assert first.end() == 0, first.text() + other.text()
        assert other.end(20) == 0, other.text()
    place = "trials/ring/torch/seed0"
    assert not list((out / place).glob("rank1.*"))
    names = {path.name for path in (kept / place).glob("rank1.*")}
    assert names == {"rank1.log", "rank1.jsonl", "rank1.times.npz", "rank1.usage.jsonl"}


def test_where_rank_0_dies_the_others_end(lab: Path, tmp_path: Path) -> None:
    require("torch")
    out, where = tmp_path / "out", address()
    with (
        rank(1, where, tmp_path) as other,
        rank(0, where, tmp_path, lab, "--out", out, "--backend", "torch", *LONG) as first,
    ):
        place = out / "trials/ring/torch/seed0"
        first.wait_for(lambda: (place / "rank0.jsonl").exists() and other.rank(1))
        first.process.send_signal(signal.SIGKILL)
        assert other.end(30) == 1
        (line,) = (line for line in other.text().splitlines() if "is gone" in line)
        assert f"rank 0 at {where} is gone" in line
        assert "to go on, start rank 0 with --resume" in line
        assert "Traceback" not in other.text()
        first.end(20)
    # One alone takes it up again, without the other machine.
    again = dualml("run", "--resume", out, "--no-report", "--no-find")
    with LaunchedRun(again, tmp_path) as run:
        assert run.end() == 0, run.text()


@pytest.mark.parametrize(("victim", "codes"), [(0, (130, 0)), (1, (1, 130))])
def test_ctrl_c_on_either_side_ends_both(
    victim: int, codes: tuple[int, int], lab: Path, tmp_path: Path
) -> None:
    require("torch")
    out, where = tmp_path / "out", address()
    words = [lab, "--out", out, "--backend", "torch", "--no-report", *LONG]
    with rank(1, where, tmp_path) as other, rank(0, where, tmp_path, *words) as first:
        place = out / "trials/ring/torch/seed0"
        first.wait_for(lambda: (place / "rank0.jsonl").exists() and other.rank(1))
        (first, other)[victim].process.send_signal(signal.SIGINT)
        assert first.end(30) == codes[0], first.text()
        assert other.end(30) == codes[1], other.text()
        assert "Traceback" not in first.text() + other.text()


def test_data_that_a_machine_lacks_are_named(tmp_path: Path) -> None:
    """A machine without the data ends the others within seconds, and rank 0 says where to put the
    data."""
    require("torch")
    lab, text = tmp_path / "lab.toml", tmp_path / "machine0/words.txt"
    text.parent.mkdir()
    lab.write_text(TOML.replace('name = "digits"', 'name = "mnist"'))
    if not os.environ.get("DUALML_DATA"):
        pytest.skip("MNIST is not at hand: set DUALML_DATA")
    out, where = tmp_path / "out", address()
    words = [lab, "--out", out, "--backend", "torch", "--no-report", "--arm", "ring"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with (
        rank(
            1, where, tmp_path, DUALML_DATA=str(empty), DUALML_CACHE=str(empty), DUALML_OFFLINE="1"
        ) as other,
        rank(0, where, tmp_path, *words) as first,
    ):
        assert first.end(60) == 1, first.text()
        assert other.end(20) == 1, other.text()
    (trial,) = trials(out).values()
    assert trial["reason"].startswith("rank 1: "), trial["reason"]
    # Both terminals end with what happened, and with what to do.
    last, told = (run.text().splitlines()[-1] for run in (first, other))
    assert last.endswith(f"; try again with: dualml run --resume {out}"), last
    assert last.startswith("dualml: 1 of 1 trials failed (rank 1: "), last
    assert told.startswith("dualml: rank 1: "), told
    assert "start rank 0 with --resume" in told
    assert "mnist" in trial["reason"].lower()
    assert f"(on {socket.gethostname()})" in trial["reason"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (["--world-size", 3], "says --world-size 3, rank 0 2"),
        (["--rank", 2, "--world-size", 3], "rank 2 of 2: the other ranks are 1 to 1"),
        ({"DUALML_TOKEN": "some other secret"}, "has another DUALML_TOKEN"),
    ],
)
def test_who_does_not_fit_says_so_in_one_line(
    other: Any, message: str, lab: Path, tmp_path: Path
) -> None:
    words = other if isinstance(other, list) else []
    where, env = address(), other if isinstance(other, dict) else {}
    start = [lab, "--out", tmp_path / "out", "--backend", "numpy"]
    with (
        rank(0, where, tmp_path, *start) as first,
        LaunchedRun(
            dualml("run", "--rank", 1, "--world-size", 2, "--rendezvous", where, *words),
            tmp_path,
            {**TOKEN, **env},
        ) as second,
    ):
        assert second.end(60) == 2
        lines = [line for line in second.text().splitlines() if "waiting for rank 0" not in line]
        assert len(lines) == 1, lines
        assert message in lines[0]
        first.process.send_signal(signal.SIGINT)
        assert first.end(20) in (2, 130), first.text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(
            False, id="shared", marks=pytest.mark.slow("the wire has all of it, and more")
        ),
        pytest.param(True, id="wire"),
    ],
)
def test_torchrun_starts_its_ranks_again(
    wire: bool, lab: Path, tmp_path: Path, uninterrupted: Callable[[str], Path]
) -> None:
    require("torch")
    out, where = tmp_path / "out", ["--rendezvous", address()] if wire else []
    port = address().rpartition(":")[2]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--master-port",
        port,
        "-m",
        "dualml",
    ]
    words = ["run", lab, "--out", out, "--no-report", "--threads", 1, *LONG, *where]
    with LaunchedRun([*launcher, *words], tmp_path, {**TOKEN, **SAVING}) as run:
        run.wait_for(lambda: checkpoints(out, "torch"))

        def victim() -> psutil.Process | None:
            for process in run.marked_processes():
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("RANK") == "1" and "dualml" in process.cmdline():
                        return process
            return None

        run.wait_for(victim).send_signal(signal.SIGKILL)
        assert run.end() == 0, run.text()
    (trial,) = trials(out).values()
    assert trial["status"] == "ok"
    assert weights(out, "torch") == weights(uninterrupted("torch"), "torch")


# --- two machines, as far as the network goes -----------------------------------------------------


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_over_a_network(backend: str, lab: Path, tmp_path: Path) -> None:
    require(backend)
    with bed(None, None) as (here, there):
        where, out = f"tcp://{here.address}:29500", tmp_path / "out"

        def node(at: Any, number: int, *words: object, **env: str) -> LaunchedRun:
            ranks = ["--rank", number, "--world-size", 2, "--rendezvous", where]
            return LaunchedRun(
                at.command(*dualml("run", *words, *ranks)), tmp_path / str(number), env
            )

        start = [lab, "--out", out, "--backend", backend, "--no-report", "--arm", "ring"]
        with node(here, 0, *start) as alone:
            assert alone.end(30) == 2
            assert f"{here.address} is open to the network: set DUALML_TOKEN" in alone.text()
        assert not out.exists()
        with node(there, 1, **TOKEN) as other, node(here, 0, *start, **TOKEN) as first:
            assert first.end() == 0, first.text() + other.text()
            assert other.end(20) == 0, other.text()
        (trial,) = trials(out).values()
        assert (trial["status"], trial["world_size"]) == ("ok", 2)


#: A lost machine is noticed after a short time, to keep the test short.
SOON = """
import runpy, dualml.launch.connection as wire
wire.SILENT_S = 4
runpy.run_module("dualml", None, "__main__")
"""


def test_a_cable_that_is_pulled_ends_both_sides(lab: Path, tmp_path: Path) -> None:
    """Both sides notice a pulled cable, although neither receives an end of the connection."""
    require("torch")
    with bed(None, None) as (here, there):
        where, out = f"tcp://{here.address}:29500", tmp_path / "out"

        def node(at: Any, number: int, *words: object) -> LaunchedRun:
            ranks = ["--rank", number, "--world-size", 2, "--rendezvous", where]
            dualml = [sys.executable, "-P", "-c", SOON, "run", *words, *ranks]
            return LaunchedRun(at.command(*dualml), tmp_path / str(number), TOKEN)

        words = [lab, "--out", out, "--backend", "torch", "--no-report", *LONG]
        words[-1] = "arms.ring.updates=20000"
        with node(there, 1) as other, node(here, 0, *words) as first:
            records = out / "trials/ring/torch/seed0/rank0.jsonl"
            first.wait_for(lambda: records.exists() and records.stat().st_size)
            netbed.run("ip", "-n", there.namespace, "link", "set", netbed.DEVICE, "down")
            assert first.end(20) == 1, first.text()
            assert other.end(20) == 1, other.text()
    assert "rank 0 heard nothing of it for 4 s" in first.text()
    assert f"rank 0 at {where} is gone" in other.text().splitlines()[-1]
