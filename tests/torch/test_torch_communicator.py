"""Joining, leaving and failing with torch's communicator; its semantics are tested in
conformance."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from dualml.algorithms.communicator import Communicator, FileStore, MemoryStore, RankContext  # noqa: E402
from dualml.common.errors import CommunicationError, Unsupported, UserError  # noqa: E402
from dualml.launch.ranks import run_ranks  # noqa: E402
from dualml.launch.route import free_port  # noqa: E402
from dualml_torch.algorithms import gloo  # noqa: E402
from dualml_torch.algorithms.cluster import FAREWELL_S, leave  # noqa: E402
from dualml_torch.algorithms.communicator import connect  # noqa: E402

pytestmark = pytest.mark.system
HERE = Path(__file__).resolve().parent
ENV = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ENV, "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    path = os.environ.get("PYTHONPATH")  # the ranks import this file
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *([path] if path else [])]))


def ranks(function: str, size: int = 2, **options: Any) -> list[Any]:
    options = {"timeout": 20, "limit": 60} | options
    return run_ranks("torch", size, f"test_torch_communicator:{function}", **options)


# --- joining ------------------------------------------------------------------------------------


def total(comm: Communicator, argument: Any) -> float:
    return float(comm.all_reduce(torch.ones(3) * (comm.rank + 1)).sum())


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_rendezvous(kind: str, tmp_path: Path) -> None:
    where = {"file": f"file://{tmp_path}/meet", "tcp": f"tcp://127.0.0.1:{free_port()}"}[kind]
    assert ranks("total", rendezvous=where) == [9.0, 9.0]


def policies(comm: Communicator, argument: Any) -> list[list[bool]]:
    found = []
    for group in (comm, comm.subgroup([0, 1])):
        assert group is not None
        found.append(
            [os.sched_getscheduler(thread) == os.SCHED_BATCH for thread in gloo.loop_thread_ids()]
        )
    return found


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has this policy")
def test_receiving_threads_wait_their_turn() -> None:
    for world, both in ranks("policies"):
        assert world, "gloo's thread has another name in this version"
        assert len(both) > len(world) - 1
        assert all(both)


def listening(comm: Communicator, argument: Any) -> list[str]:
    comm.barrier()
    process = psutil.Process()
    told = (getattr(process, "net_connections", None) or process.connections)("tcp")
    found = [c.laddr.ip for c in told if c.status == psutil.CONN_LISTEN]
    comm.barrier()
    return found


def test_nothing_listens_beyond_the_loopback() -> None:
    for found in ranks("listening"):
        assert found, "gloo listens somewhere, or this test sees nothing"
        assert set(found) <= {"127.0.0.1", "::1"}


SCRIPT = """
import os, sys, torch
from pathlib import Path
from dualml.algorithms.communicator import FileStore, RankContext
from dualml_torch.algorithms.communicator import connect
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
for key in ("a", "b"):
    board = FileStore(Path(sys.argv[1]))
    comm = connect(RankContext(rank, size, board, "env://", timeout=20, key=key))
    assert comm.all_reduce(torch.ones(2)).tolist() == [2.0, 2.0]
    comm.close()
Path(sys.argv[1], f"well{rank}").touch()
sys.stdout.flush()
os._exit(0)
"""


def test_two_groups_one_after_the_other_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["--nproc-per-node=2", f"--master-port={free_port()}", tmp_path / "script.py", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "well0").exists()
    assert (tmp_path / "well1").exists()


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(CommunicationError, match=r"rank 1 waited 0\.5 s .* missing: ranks 0, 2 of"):
        connect(RankContext(1, 3, FileStore(tmp_path), timeout=0.5))
    assert time.monotonic() - begin < 5
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_a_port_in_use_is_told_to_every_rank(tmp_path: Path) -> None:
    told: dict[int, str] = {}

    def run(rank: int) -> None:
        try:
            connect(RankContext(rank, 2, FileStore(tmp_path), where, timeout=10))
        except CommunicationError as error:
            told[rank] = str(error)

    with socket.socket(socket.AF_INET6) as taken:  # dual stack, as torch's own server
        taken.bind(("::", 0))
        taken.listen()
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        threads = [threading.Thread(target=run, args=(rank,)) for rank in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert (
        told[0]
        == told[1]
        == f"the port of {where} is in use on rank 0's machine; " + ("choose another one, or auto")
    )


@pytest.mark.parametrize(
    ("rendezvous", "environ", "words"),
    [
        ("tcp://127.0.0.1", {}, "names no port"),
        ("tcp://127.0.0.1:many", {}, "names no port"),
        ("file:///no/such/folder/meet", {}, "not a folder"),
        ("env://", {"MASTER_ADDR": "127.0.0.1"}, "needs MASTER_PORT, RANK, WORLD_SIZE"),
        (
            "env://",
            {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "RANK": "1", "WORLD_SIZE": "4"},
            "RANK=1 of WORLD_SIZE=4; this is rank 0 of 2",
        ),
    ],
)
def test_a_rendezvous_that_cannot_be_meant(
    rendezvous: str,
    environ: dict[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=words):
        connect(RankContext(0, 2, FileStore(tmp_path), rendezvous, timeout=1))


def test_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(Unsupported, match="2 ranks, 1 GPUs"):
        connect(RankContext(0, 2, FileStore(tmp_path)), "cuda")


def test_one_rank_needs_no_group() -> None:
    comm = connect(RankContext(0, 1, MemoryStore()))
    x = torch.arange(6.0)
    assert not dist.is_initialized()
    assert comm.all_reduce(x, "mean").equal(x)
    assert comm.reduce(x).equal(x)
    assert comm.broadcast(x).equal(x)
    for found in (comm.gather(x), comm.all_gather(x), comm.all_to_all([x])):
        assert found[0].equal(x)
    assert comm.scatter([x], x).equal(x)
    assert comm.reduce_scatter(x).equal(x)
    assert comm.all_reduce(x, wait=False).wait().equal(x)
    assert comm.subgroup([0]).all_reduce(x).equal(x)
    assert comm.exchange({}, {}) == {}
    comm.barrier()
    comm.close()


# --- failing ------------------------------------------------------------------------------------


def error_of(call: Any) -> str:
    try:
        call()
    except CommunicationError as error:
        return str(error)
    return ""


def deserted(comm: Communicator, argument: Any) -> list[Any]:
    """Let rank 1 leave silently; return rank 0's error, and how long leaving takes."""
    x = torch.ones(1000)
    comm.all_reduce(x)
    if comm.rank == 1:
        dist.destroy_process_group()
        return ["", 0.0]
    text = error_of(lambda: comm.all_reduce(x))
    begin = time.monotonic()
    leave(comm.member)
    return [text, time.monotonic() - begin]


def test_a_rank_that_is_gone() -> None:
    text, took = ranks("deserted")[0]
    assert text.startswith("rank 0 of 2, all_reduce: the connection to another rank is gone")
    assert "\n" not in text
    assert took < FAREWELL_S + 1


def kept_waiting(comm: Communicator, argument: Any) -> list[Any]:
    comm.barrier()
    if comm.rank == 1:
        time.sleep(3)
        return ["", 0.0]
    text = error_of(lambda: comm.all_reduce(torch.ones(3)))
    begin = time.monotonic()
    leave(comm.member)
    return [text, time.monotonic() - begin]


def test_a_rank_that_keeps_the_others_waiting() -> None:
    text, took = ranks("kept_waiting", timeout=1.0)[0]
    assert text.startswith("rank 0 of 2, all_reduce: no answer within 1 s")
    assert took < FAREWELL_S + 1


def connect_twice(comm: Communicator, argument: Any) -> str:
    try:
        connect(comm.context)
    except UserError as error:
        return str(error)
    return ""


def test_joining_twice_is_refused() -> None:
    assert all("already" in told for told in ranks("connect_twice"))


# --- copies -------------------------------------------------------------------------------------


def addresses(comm: Communicator, argument: Any) -> dict[str, bool]:
    x, peer = torch.arange(6.0), 1 - comm.rank
    buffer = torch.empty(6)
    parts = comm.all_gather(x)
    return {
        "all_reduce in place": comm.all_reduce(x, inplace=True).data_ptr() == x.data_ptr(),
        "mean in place": comm.all_reduce(x, "mean", inplace=True).data_ptr() == x.data_ptr(),
        "broadcast in place": comm.broadcast(x, inplace=True).data_ptr() == x.data_ptr(),
        "received in the buffer": comm.exchange({peer: x}, {peer: buffer})[peer].data_ptr()
        == buffer.data_ptr(),
        "all_gather side by side": parts[1].data_ptr() - parts[0].data_ptr() == 6 * 4,
    }


def test_no_copies_where_none_are_needed() -> None:
    for told in ranks("addresses"):
        assert all(told.values()), told


def test_slices_are_views_and_a_view_is_written_nowhere() -> None:
    comm = connect(RankContext(0, 1, MemoryStore()))
    x = torch.arange(6.0)
    part = comm.slice(x, 2, 4)
    assert part.data_ptr() == x[2:].data_ptr()
    version = x._version
    assert comm.write(x, 2, part, "put") is x
    assert x._version == version
    comm.write(x, 0, torch.ones(2), "add")
    assert x.tolist() == [1, 2, 2, 3, 4, 5]


def test_arrays_are_copied_both_ways() -> None:
    comm = connect(RankContext(0, 1, MemoryStore()))
    a = np.arange(6.0)[::-1]
    x = comm.tensor(a)
    b = comm.numpy(x)
    b[:] = 9
    assert x.tolist() == a.tolist() == [5, 4, 3, 2, 1, 0]
    assert comm.tensor(np.float32(2)).shape == comm.numpy(torch.tensor(2.0)).shape == ()
