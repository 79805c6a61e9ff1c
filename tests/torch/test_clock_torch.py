"""The clock: device events on a GPU; on a CPU there is no queue to mark."""

from __future__ import annotations

import pytest
import torch

from dualml.common.clock import EVENTS, WALL
from dualml_torch.backend import TorchBackend
from dualml_torch.common.clock import start_events


class Event:
    """A fake `torch.cuda.Event` that notes the calls in order."""

    made: list[str]
    done: list[str]

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.name = "begin" if "begin" not in type(self).made else "end"
        type(self).made.append(self.name)

    def record(self, stream: str) -> None:
        self.done.append(f"record {self.name} on {stream}")

    def synchronize(self) -> None:
        self.done.append(f"wait for {self.name}")

    def elapsed_time(self, end: Event) -> float:
        self.done.append(f"{self.name} to {end.name}")
        return 250.0  # milliseconds


def test_events_mark_the_queue_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    Event.made, Event.done = [], []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    elapsed = start_events(torch.device("cuda:1"))
    Event.done.append("work")
    assert elapsed() == 0.25
    where = "on stream of cuda:1"
    assert Event.done == [
        f"record begin {where}",
        "work",
        f"record end {where}",
        "wait for end",
        "begin to end",
    ]


def test_the_clock_of_a_device_stands_in_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TorchBackend("cpu")
    assert backend.clock == WALL
    assert backend.stopwatch()() >= 0
    backend.clock = EVENTS
    monkeypatch.setattr("dualml_torch.backend.start_events", lambda device: lambda: 1.5)
    assert backend.stopwatch()() == 1.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_events_tell_the_seconds_of_a_kernel() -> None:
    device = torch.device("cuda")
    x = torch.randn(4096, 4096, device=device)
    (x @ x).sum().item()
    elapsed = start_events(device)
    for _ in range(20):
        x = x @ x
    asked = elapsed()
    assert asked > 1e-4
