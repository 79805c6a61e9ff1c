"""Split models on torch: pending messages, the memory of a stage, and a stage that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from dualml.algorithms.communicator import Communicator  # noqa: E402
from dualml.algorithms.model.layers import Linear, Tanh  # noqa: E402
from dualml.algorithms.model.spec import ModelSpec  # noqa: E402
from dualml.algorithms.optim import SGD  # noqa: E402
from dualml.backend import PipelineStages, Segment, TrainingSpec, backends  # noqa: E402
from dualml.common.errors import CommunicationError  # noqa: E402
from dualml.launch.ranks import run_ranks  # noqa: E402
from dualml_torch.algorithms.cluster import leave  # noqa: E402

HERE = Path(__file__).resolve().parent
MARK = "DUALML_TEST_MARK"


def ranks(function: str, size: int = 2, timeout: float = 20) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        path = os.environ.get("PYTHONPATH")  # the ranks import this file
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *([path] if path else [])]))
        patch.delenv("GLOO_SOCKET_IFNAME", raising=False)
        target = f"test_split_torch:{function}"
        return run_ranks("torch", size, target, timeout=timeout, limit=60)


# --- messages -----------------------------------------------------------------------------------


def error_of(call: Any) -> str:
    try:
        call()
    except CommunicationError as error:
        return str(error)
    return ""


def messages(comm: Communicator, argument: Any) -> dict[str, Any]:
    """Exchange many messages of equal and different shapes, waited for in any order, both ways at
    once."""
    peer, told = 1 - comm.rank, dict[str, Any]()
    sizes = [3, 3, 3, 70_000, 1]
    sent = [comm.isend(torch.full((n,), 10.0 * comm.rank + i), peer) for i, n in enumerate(sizes)]
    coming = [comm.irecv(torch.empty(n), peer) for n in sizes]
    got: dict[int, Any] = {i: coming[i].wait() for i in (2, 0, 4, 1, 3)}
    for pending in sent:
        pending.wait()
    told["values"] = [got[i].unique().tolist() for i in range(len(sizes))]
    big = torch.full((2_000_000,), float(comm.rank))  # more than any buffer of the system
    first = comm.isend(big, peer)
    told["big"] = comm.irecv(torch.empty_like(big), peer).wait().unique().tolist()
    first.wait()
    told["books"] = [comm.traffic.sent, comm.traffic.received, comm.traffic.bytes_sent]
    told["refused"] = [error_of(lambda p=p: comm.isend(big, p)) for p in (comm.rank, 2, -1)]
    return told


def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    for rank, told in enumerate(ranks("messages")):
        assert told["values"] == [[10.0 * (1 - rank) + i] for i in range(5)]
        assert told["big"] == [1.0 - rank]
        assert told["books"] == [6, 6, 4 * (9 + 70_001 + 2_000_000)]
        for peer, text in zip((rank, 2, -1), told["refused"], strict=True):
            assert text == f"rank {rank} of 2 cannot exchange with rank {peer}"


def in_a_subgroup(comm: Communicator, argument: Any) -> list[float]:
    group = comm.subgroup([1, 2])
    if group is None:
        return []
    pending = group.isend(torch.full((2,), float(comm.rank)), 1 - group.rank)
    got: list[float] = group.irecv(torch.empty(2), 1 - group.rank).wait().tolist()
    pending.wait()
    return got


def test_ranks_of_a_subgroup_are_its_own() -> None:
    assert ranks("in_a_subgroup", 3) == [[], [2.0, 2.0], [1.0, 1.0]]


def deserted(comm: Communicator, argument: Any) -> list[Any]:
    comm.all_reduce(torch.ones(3))
    pending = comm.irecv(torch.empty(1000), 1 - comm.rank)
    comm.barrier()
    if comm.rank == 1:
        dist.destroy_process_group()
        return ["", 0.0]
    begin = time.monotonic()
    text = error_of(pending.wait)
    took = time.monotonic() - begin
    leave(comm.member)
    return [text, took]


def test_a_sender_that_is_gone() -> None:
    text, took = ranks("deserted")[0]
    assert text.startswith("rank 0 of 2, exchange: the connection to another rank is gone")
    assert "\n" not in text
    assert took < 10


def kept_waiting(comm: Communicator, argument: Any) -> str:
    comm.barrier()
    if comm.rank == 1:
        time.sleep(3)
        return ""
    text = error_of(lambda: comm.irecv(torch.empty(3), 1).wait())
    leave(comm.member)
    return text


def test_a_sender_that_keeps_the_others_waiting() -> None:
    text = ranks("kept_waiting", timeout=1.0)[0]
    assert text.startswith("rank 0 of 2, exchange: no answer within 1 s")


# --- what is kept for backward passes -----------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_bytes_kept_of_a_linear_and_a_tanh(first: bool) -> None:
    """A stage saves the input (for the weight's gradient) and the output (for tanh's derivative);
    the weight is a parameter, and counted elsewhere."""
    x = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    layers = (("fc", Linear(7, 5)), ("tanh", Tanh()))
    spec = ModelSpec("two layers", (7,), layers)
    recipe = TrainingSpec(
        spec=spec, weights={}, rule=SGD(lr=0.1), x=x, y=np.zeros(20, np.int64), updates=1
    )
    backend = backends()["torch"].create("cpu", 1)
    stage = backend.require_capability(PipelineStages).stage(
        [Segment(layers, 1, {})], recipe, first=first, last=False
    )
    stage.zero_grad()
    stage.counts_saved_bytes = True
    held = [stage.saved_activation_bytes()]
    for micro, size in enumerate((4, 3)):
        out = stage.forward(0, micro, (stage.samples(np.arange(size)),))
        held.append(stage.saved_activation_bytes())
        assert out[0].shape == (size, 5)
    for micro, size in enumerate((4, 3)):
        stage.backward(0, micro, (torch.ones(size, 5),))
        held.append(stage.saved_activation_bytes())
    assert held == [0, 4 * 4 * 12, 7 * 4 * 12, 3 * 4 * 12, 0]
    stage.counts_saved_bytes = False
    stage.forward(0, 0, (stage.samples(np.arange(4)),))
    assert stage.saved_activation_bytes() == 0


# --- a stage that dies --------------------------------------------------------------------------

#: Read by every worker at its start: what happens to which rank in its 30th action.
PLANTED = """
import os, signal, sys
words = sys.orig_argv
if "dualml.runner.worker.main" in words:
    from dualml.parallel.split.executor import Executor
    at = words.index("dualml.runner.worker.main")
    rank, arm = int(words[at + 1]), words[at + 2].split(os.sep)[-3]
    fate = dict(word.split("=") for word in os.environ["DUALML_TEST_FATES"].split(","))
    run_action, done = Executor.run_action, []

    def planted(self, action):
        done.append(action)
        if len(done) == 30 and fate.get(f"{arm}:{rank}") == "exit":
            os._exit(9)
        if len(done) == 30 and fate.get(f"{arm}:{rank}") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(done) == 30 and fate.get(f"{arm}:{rank}") == "raise":
            raise ValueError("a planted error")
        return run_action(self, action)

    Executor.run_action = planted
"""
HEAD = """
name = "fates"
model = "mlp"
title = { en = "Fates", zh = "命运" }
data = { name = "digits", train = 200, test = 20 }
evaluation = { train_samples = 10, per_epoch = 1, early = [] }
parity = { draws = 1, horizon = 2 }
limits = { collective = 100 }
"""
ARM = """
[arms.{name}]
optimizer = {{ name = "sgd", lr = 0.05 }}
batch_size = 20
updates = 30
world_size = {size}
split = {{ {split} }}
"""
#: Arm → ranks, split, what happens to rank 1, and how it is reported.
FATES = {
    "leaves": (3, "micro_batches = 4", "exit", "rank 1 ended with exit code 9"),
    "dies": (2, 'schedule = "gpipe", micro_batches = 4', "kill", "rank 1 was ended by SIGKILL"),
    "errs": (2, "tensor = 2, micro_batches = 2", "raise", "rank 1: ValueError: a planted error"),
    "lives": (2, "micro_batches = 2", "", ""),
}


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if process.environ().get(MARK) == mark and alive:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_stage_that_dies_ends_its_trial_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(PLANTED)
    arms = "".join(ARM.format(name=n, size=f[0], split=f[1]) for n, f in FATES.items())
    (tmp_path / "lab.toml").write_text(HEAD + arms, "utf-8")
    out, mark = tmp_path / "out", uuid.uuid4().hex
    words = ["run", tmp_path / "lab.toml", "--backend", "torch", "--out", out, "--no-report"]
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    fates = ",".join(f"{name}:1={fate[2]}" for name, fate in FATES.items() if fate[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "dualml", *map(str, words)],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "DUALML_FORK": "0",
            "DUALML_TEST_FATES": fates,
            MARK: mark,
        },
        cwd=tmp_path,
    )
    try:
        assert process.wait(timeout=95) == 1  # sooner than a rank is waited for
        assert not marked(mark)
    finally:
        for left in marked(mark):
            left.send_signal(signal.SIGKILL)
    trials = {t["arm"]: t for t in json.loads((out / "run.json").read_text())["trials"]}
    for name, (_, _, fate, reason) in FATES.items():
        assert trials[name]["status"] == ("failed" if fate else "ok")
        assert (trials[name]["reason"] or "").startswith(reason)
