"""How MindSpore's ranks connect, and what its communicator relies on.

The semantics of collectives are tested for all backends in
tests/conformance/test_communicator.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.communicator import MemoryStore, RankContext
from dualml.backend import backends
from dualml.common.errors import CommunicationError, Unsupported, UserError
from dualml_ms.algorithms import rendezvous
from dualml_ms.algorithms.cluster import join

LIMIT = 60.0
#: Seconds after the end of the last rank within which everything must have ended; an abandoned
#: scheduler stays for half a minute.
GONE = 15.0
MARK = "DUALML_TEST_MARK"
#: The program of one rank: join in a given way, do something, print one line of JSON.
RANK = """
import json, os, signal, sys, time
from pathlib import Path
job, rank = json.loads(sys.argv[1]), int(sys.argv[2])
import numpy as np, psutil
import mindspore as ms
from dualml.algorithms.communicator import FileStore, RankContext
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml_ms.algorithms import cluster, communicator, rendezvous

ms.set_context(mode=getattr(ms, job.get("mode", "GRAPH_MODE")))
size, board = job["size"], FileStore(Path(job["board"]))
place = RankContext(rank, size, board, job.get("rendezvous", "auto"), job["timeout"])
if rank in job.get("without_store", []):
    del rendezvous.private.TCPStore
if rank in job.get("late", []):
    store, form = rendezvous.store_functions()
    cluster.store_functions = lambda: (store, lambda *told: (time.sleep(5), form(*told)))
scheduler = None
if job.get("rendezvous") == "env://":
    if rank == 0:
        port = rendezvous.free_port("127.0.0.1")
        scheduler = rendezvous.start_scheduler(place, "127.0.0.1", port)
        board.set("port", str(port))
    port = int(cluster.wait_for_note(place, "port"))
    os.environ.update(rendezvous.cluster_environ(place, "MS_WORKER", "127.0.0.1", port))
start = time.monotonic()
told = {}
try:
    comm = communicator.connect(place)
    told["way"] = comm.member.join_method
    x = comm.tensor(np.full(3, rank + 1, np.float32))
    told["sum"] = comm.numpy(comm.all_reduce(x)).tolist()
    mine = [psutil.Process(), *psutil.Process().children(recursive=True)]
    told["listens"] = sorted({
        c.laddr.ip for p in mine for c in p.net_connections() if c.status == psutil.CONN_LISTEN
    })
    if job.get("overwrite"):
        # The message is what was sent, whatever becomes of the tensor and whenever it is received.
        sent = comm.tensor(np.full(4_000_000, rank, np.float32))
        comm.exchange({(rank + 1) % size: sent}, {})
        sent.asnumpy()[:] = -1
        time.sleep(0.5)
        got = comm.exchange({}, {(rank - 1) % size: comm.empty_like(sent)})
        told["got"] = np.unique(got[(rank - 1) % size].asnumpy()).tolist()
    comm.barrier()
    start = time.monotonic()
    if "die" in job:
        # A rank whose neighbour dies inside the barrier would fail there, not in what follows.
        all_gather_via_store(
            board, "passed", rank, range(size), "", job["timeout"], "the barrier"
        )
        if rank in job["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.all_reduce(x)
    comm.close()
except Exception as error:
    told["error"] = f"{type(error).__name__}: {error}"
    told["after"] = time.monotonic() - start
if scheduler is not None:
    rendezvous.end_scheduler(scheduler)
print(json.dumps(told), flush=True)
os._exit(0)
"""


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes started with this mark in their environment, whatever their parent is
    now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def run(tmp_path: Path, size: int, start: int | None = None, **job: Any) -> list[dict[str, Any]]:
    """Run ranks; return what each printed ({} for one that was killed), and assert that none is
    left."""
    job = {"size": size, "board": str(tmp_path / "board"), "timeout": 20.0, **job}
    mark = str(tmp_path)
    environ = {**os.environ, **backends()["mindspore"].environ(1), MARK: mark}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(job), str(rank)],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(size if start is None else start)
    ]
    end = time.monotonic() + LIMIT
    try:
        outputs = [p.communicate(timeout=max(1.0, end - time.monotonic()))[0] for p in ranks]
        gone = time.monotonic() + GONE
        while (left := marked(mark)) and time.monotonic() < gone:
            time.sleep(0.1)
        assert not left, "processes are left"
    finally:
        for process in marked(mark):
            with contextlib.suppress(psutil.Error):
                process.kill()
        for p in ranks:
            p.wait(5)
    return [json.loads(text.splitlines()[-1]) if text.strip() else {} for text in outputs]


def clean(found: list[dict[str, Any]], way: str) -> None:
    total = sum(range(1, len(found) + 1))
    for told in found:
        assert "error" not in told, told
        assert told["way"] == way
        assert told["sum"] == [total] * 3
        assert told["listens"] == ["127.0.0.1"]


@pytest.mark.system
@pytest.mark.parametrize("mode", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_ranks_find_one_another_on_the_loopback(tmp_path: Path, mode: str) -> None:
    found = run(tmp_path, 2, mode=mode, overwrite=True)
    clean(found, "store")
    assert [told["got"] for told in found] == [[1.0], [0.0]]


@pytest.mark.system
def test_a_rank_is_waited_for_that_has_its_core_to_share(tmp_path: Path) -> None:
    clean(run(tmp_path, 2, late=[1]), "store")


@pytest.mark.system
def test_ranks_meet_at_an_address(tmp_path: Path) -> None:
    port = rendezvous.free_port("127.0.0.1")
    clean(run(tmp_path, 2, rendezvous=f"tcp://localhost:{port}"), "store")


@pytest.mark.system
def test_a_rank_without_the_store_makes_all_use_the_scheduler(tmp_path: Path) -> None:
    clean(run(tmp_path, 2, without_store=[1]), "scheduler")


@pytest.mark.system
def test_the_cluster_of_msrun(tmp_path: Path) -> None:
    clean(run(tmp_path, 2, rendezvous="env://"), "env")


@pytest.mark.system
def test_a_port_in_use_is_told_to_every_rank(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for told in run(tmp_path, 2, rendezvous=f"tcp://127.0.0.1:{port}"):
            assert f"CommunicationError: rank 0 cannot open port {port}" in told["error"]
            assert told["after"] < 15


@pytest.mark.system
def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    for told in run(tmp_path, 3, start=2, timeout=4.0):
        assert "waited 4 s for join; missing: rank 2 of 3" in told["error"]
        assert told["after"] < 6


@pytest.mark.system
def test_a_killed_rank_fails_the_others_in_time(tmp_path: Path) -> None:
    survivor, killed = run(tmp_path, 2, die=[1], timeout=4.0)
    assert killed == {}
    assert "CommunicationError: all_reduce failed on rank 0 of 2" in survivor["error"]
    assert 3 < survivor["after"] < 8


@pytest.mark.system
def test_the_scheduler_ends_with_a_killed_rank_0(tmp_path: Path) -> None:
    assert run(tmp_path, 2, die=[0, 1], without_store=[0, 1]) == [{}, {}]


@pytest.mark.system
def test_a_rank_alone_needs_no_cluster(tmp_path: Path) -> None:
    [told] = run(tmp_path, 1)
    assert (told["way"], told["sum"], told["listens"]) == ("alone", [1.0] * 3, [])


@pytest.fixture
def no_cluster() -> Iterator[None]:
    """Assert after the test that no MindSpore variable of the environment has changed."""
    before = {name: value for name, value in os.environ.items() if name.startswith("MS_")}
    yield
    assert {name: value for name, value in os.environ.items() if name.startswith("MS_")} == before


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("file://{folder}/meet", "no rendezvous by file"),
        ("tcp://localhost", "host:port"),
        ("env://", "msrun"),
    ],
)
def test_a_rendezvous_that_cannot_be_is_refused(tmp_path: Path, where: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        join(RankContext(0, 2, MemoryStore(), where.format(folder=tmp_path), 1.0))


def test_another_device_is_refused() -> None:
    with pytest.raises(Unsupported, match="cuda"):
        join(RankContext(0, 2, MemoryStore(), timeout=1.0), "cuda")


def test_a_free_port_is_looked_for_again_when_it_is_taken() -> None:
    tried: list[int] = []

    def connect_on(port: int) -> str:
        tried.append(port)
        if len(tried) < 3:
            raise RuntimeError("Failure info [Failed to initialize the master node.].")
        return "made"

    assert rendezvous.open_at_port(connect_on, "127.0.0.1", 0) == ("made", tried[-1])
    tried.clear()
    with pytest.raises(CommunicationError, match=r"port 5 of 127.0.0.1.*\[Failed"):
        rendezvous.open_at_port(connect_on, "127.0.0.1", 5)


class Double(nn.Cell):
    def construct(self, x):
        return x * 2


def test_arrays_and_tensors_share_memory() -> None:
    """Arrays and tensors share memory, which the communicator's arithmetic relies on: otherwise it
    would be silently wrong."""
    double = Double()
    array = np.arange(1000, dtype=np.float32)
    for tensor in (ms.Tensor.from_numpy(array), ms.Tensor(array), double(ms.Tensor(array))):
        memory = tensor.asnumpy()
        memory[3] = -7
        assert tensor.asnumpy()[3] == -7
        assert double(tensor).asnumpy()[3] == -14
        part = ms.Tensor.from_numpy(memory[1:9])  # at an address no allocator would choose
        assert double(part).asnumpy()[2] == -14
        memory[3] = 5
        assert double(part).asnumpy()[2] == 10
        assert ops.add(part, part).asnumpy()[2] == 10


def test_memory_lives_as_long_as_a_view_of_it() -> None:
    double = Double()
    view = double(ms.Tensor(np.full(50_000, 3, np.float32))).asnumpy()
    part = ms.Tensor.from_numpy(double(ms.Tensor(np.full(50_000, 4, np.float32))).asnumpy()[5:50])
    for _ in range(20):
        double(ms.Tensor(np.zeros(50_000, np.float32))).asnumpy()
    assert (view == 6).all()
    assert (part.asnumpy() == 8).all()


def test_a_parameter_is_assigned_in_its_place() -> None:
    parameter = ms.Parameter(ms.Tensor(np.ones(8, np.float32)), name="p")
    memory = parameter.asnumpy()
    ops.assign(parameter, ms.Tensor(np.full(8, 3, np.float32)))
    assert (parameter.asnumpy() == 3).all()
    assert memory[0] == 3


def test_a_parameter_lies_in_the_memory_it_is_given() -> None:
    """A parameter shares the memory of the array part it is given, which shards rely on, also in
    compiled cells that read and assign it."""

    class ReadAndAdd(nn.Cell):
        def __init__(self, parameter: ms.Parameter) -> None:
            super().__init__()
            self.p = parameter

        def construct(self, x):
            read = self.p * x
            return ops.depend(read, ops.assign_add(self.p, ops.depend(x, read)))

    memory = np.ones(10, np.float32)
    parameter = ms.Parameter(ms.Tensor(np.zeros(8, np.float32)), name="p")
    parameter.set_data(ms.Tensor.from_numpy(memory[1:9]))
    cell, two = ReadAndAdd(parameter), ms.Tensor(np.full(8, 2, np.float32))
    assert cell(two).asnumpy().tolist() == [2.0] * 8
    assert memory.tolist() == [1.0, *[3.0] * 8, 1.0]
    memory[:] = 5
    assert cell(two).asnumpy().tolist() == [10.0] * 8
    assert memory.tolist() == [5.0, *[7.0] * 8, 5.0]
    other = np.full(8, 4, np.float32)
    parameter.set_data(ms.Tensor.from_numpy(other))  # also after it was compiled
    assert cell(two).asnumpy().tolist() == [8.0] * 8
    assert other.tolist() == [6.0] * 8
    assert memory[1] == 7
