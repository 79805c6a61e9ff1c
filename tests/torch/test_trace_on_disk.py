"""A Recorder whose trace lies on a disk records, measures and restores what one in memory does."""

from __future__ import annotations

import os
import resource
import signal
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from torch import nn

from dualml.common.errors import UserError
from dualml.parity.models import trace_files
from dualml.parity.models.trace import Trace, read_trace
from dualml_torch.record import Recorder

MB = 1 << 20


def record(folder: Path, steps: int = 2) -> tuple[Trace, dict[str, torch.Tensor]]:
    """Train for one step more than is recorded; return the trace and all that training left."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Dropout(0.3), nn.Linear(40, 5)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    recorder = Recorder(model, folder, optimizer, steps=steps)
    x, y = torch.randn(8, 30), torch.randint(0, 5, (8,))

    def update(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with recorder.watch_operations():
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()

    for _ in range(steps + 1):
        recorder.run(update, x, y)
    left: dict[str, Any] = dict(model.state_dict())
    left |= {f"{n}.grad": p.grad for n, p in model.named_parameters()}
    left |= {f"{i}.{s}": v for i, p in enumerate(optimizer.state.values()) for s, v in p.items()}
    return read_trace(folder), left


def test_disk_and_memory_agree_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, left = record(tmp_path / "memory")
    monkeypatch.setattr(trace_files, "SMALL_BYTES", 0)
    found, also_left = record(tmp_path / "disk")
    assert isinstance(expected.arrays, dict)
    assert not isinstance(found.arrays, dict)
    assert list(found.arrays) == list(expected.arrays)
    for name, value in expected.arrays.items():
        assert found.arrays[name].dtype == value.dtype
        assert np.array_equal(found.arrays[name], value), name
    assert found.envelope == expected.envelope
    assert (found.draws, found.random, found.order) == (3, None, expected.order)
    assert (found.operations, found.inputs) == (expected.operations, expected.inputs)
    assert left.keys() == also_left.keys()
    assert all(torch.equal(left[name], also_left[name]) for name in left)
    assert not [path for path in (tmp_path / "disk").iterdir() if path.name.startswith(".")]


def test_recording_holds_a_few_tensors_of_a_large_model(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(48)))  # 4 MB each
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    recorder = Recorder(model, tmp_path, optimizer, steps=1, draws=1)

    def update(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()

    x = torch.randn(2, 1024)
    assert recorder.files is not None
    recorder.files.small = 0
    tracemalloc.start()  # sees what NumPy allocates, not what PyTorch does
    recorder.run(update, x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert recorder.trace.draws == 1
    assert peak < 40 * MB < 48 * 4 * MB  # float64 copies of one pair


def test_a_full_disk_is_no_error_of_the_step(tmp_path: Path) -> None:
    model = nn.Linear(1024, 1024)
    recorder = Recorder(model, tmp_path, steps=1)
    assert recorder.files is not None
    recorder.files.small = 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 * MB, limits[1]))  # the weights take 4
    try:
        with (
            pytest.raises(UserError, match="the trace cannot be written"),
            recorder.step(x := torch.ones(2, 1024)),
        ):
            model(x).mean().backward()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert recorder.trace.raised is None


def test_weights_are_moved_in_place_as_in_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = record(tmp_path / "shared")
    monkeypatch.setattr(Recorder, "shared_view", lambda self, tensor: None)
    assert record(tmp_path / "copied")[0].envelope == expected.envelope


def test_only_plain_tensors_are_shared() -> None:
    recorder = Recorder(nn.Linear(2, 2), None)
    weight = recorder.named_tensors()["weight"]
    shared = recorder.shared_view(weight)
    assert shared is not None
    shared[0, 1] = 7
    assert weight[0, 1] == 7
    assert recorder.shared_view(weight.T) is None
    assert recorder.shared_view(weight.half()) is None
