"""Split models on MindSpore: pending messages, and the bytes a rank saves for backward passes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.layers import Linear, Tanh
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import SGD
from dualml.backend import PipelineStages, Segment, TrainingSpec, backends
from dualml.common.errors import CommunicationError
from dualml.launch.ranks import run_ranks

HERE = Path(__file__).resolve().parent


def ranks(function: str, timeout: float = 20) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        path = os.environ.get("PYTHONPATH")  # the ranks import this file
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *([path] if path else [])]))
        target = f"test_split_ms:{function}"
        return run_ranks("mindspore", 2, target, timeout=timeout, limit=60)


def error_of(call: Any) -> str:
    try:
        call()
    except CommunicationError as error:
        return str(error)
    return ""


def full(n: int, value: float) -> ms.Tensor:
    return ms.Tensor.from_numpy(np.full(n, value, np.float32))


def messages(comm: Communicator, argument: Any) -> dict[str, Any]:
    """Exchange many messages of equal and different shapes, both ways at once, larger than a socket
    buffer."""
    peer, told = 1 - comm.rank, dict[str, Any]()
    sizes = [3, 3, 70_000, 1, 2_000_000]
    sent = [comm.isend(full(n, 10.0 * comm.rank + i), peer) for i, n in enumerate(sizes)]
    coming = [comm.irecv(full(n, -1.0), peer) for n in sizes]
    told["values"] = [np.unique(comm.numpy(pending.wait())).tolist() for pending in coming]
    for pending in sent:
        pending.wait()
    told["books"] = [comm.traffic.sent, comm.traffic.received, comm.traffic.bytes_sent]
    told["refused"] = [error_of(lambda p=p: comm.irecv(full(1, 0), p)) for p in (comm.rank, 2)]
    return told


@pytest.mark.system
def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    for rank, told in enumerate(ranks("messages")):
        assert told["values"] == [[10.0 * (1 - rank) + i] for i in range(5)]
        assert told["books"] == [5, 5, 4 * (7 + 70_000 + 2_000_000)]
        for peer, text in zip((rank, 2), told["refused"], strict=True):
            assert text == f"rank {rank} of 2 cannot exchange with rank {peer}"


def deserted(comm: Communicator, argument: Any) -> list[Any]:
    """Let rank 1 leave before it sends what rank 0 waits for."""
    comm.barrier()
    if comm.rank == 1:
        time.sleep(8)
        return ["", 0.0]
    begin = time.monotonic()
    text = error_of(lambda: comm.irecv(full(1000, 0), 1).wait())
    return [text, time.monotonic() - begin]


@pytest.mark.system
def test_a_sender_that_keeps_the_others_waiting() -> None:
    text, took = ranks("deserted", timeout=3)[0]
    assert text.startswith("exchange failed on rank 0 of 2 (a rank that ended, or one later than 3")
    assert "\n" not in text
    assert took < 8


def test_bytes_kept_of_a_linear_and_a_tanh() -> None:
    """Linear and Tanh save their inputs: 7 and 5 numbers per sample."""
    x = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    layers = (("fc", Linear(7, 5)), ("tanh", Tanh()))
    spec = ModelSpec("two layers", (7,), layers)
    recipe = TrainingSpec(
        spec=spec, weights={}, rule=SGD(lr=0.1), x=x, y=np.zeros(20, np.int64), updates=1
    )
    backend = backends()["mindspore"].create("cpu", 1)
    stage = backend.require_capability(PipelineStages).stage(
        [Segment(layers, 1, {})], recipe, first=True, last=False
    )
    stage.zero_grad()
    stage.counts_saved_bytes = True
    held = [stage.saved_activation_bytes()]
    for micro in range(2):
        stage.forward(0, micro, (stage.samples(np.arange(4)),))
        held.append(stage.saved_activation_bytes())
    for micro in range(2):
        stage.backward(0, micro, (full(20, 1.0).reshape(4, 5),))
        held.append(stage.saved_activation_bytes())
    assert held == [0, 4 * 4 * 12, 2 * 4 * 4 * 12, 4 * 4 * 12, 0]
    np.testing.assert_array_equal(stage.gradients()["fc.bias"].shape, (5,))
