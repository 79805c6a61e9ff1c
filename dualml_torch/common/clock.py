"""A stopwatch on the device's queue."""

from __future__ import annotations

from collections.abc import Callable

import torch


def start_events(device: torch.device) -> Callable[[], float]:
    """Record a start event on the CUDA stream; return a function that records an end event, waits
    for it and returns the seconds between the two. Launch latency is not included."""
    stream = torch.cuda.current_stream(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)

    def elapsed() -> float:
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return elapsed
