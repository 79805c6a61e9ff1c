"""A stopwatch on the device's own queue."""

from __future__ import annotations

from collections.abc import Callable

import torch


def start_events(device: torch.device) -> Callable[[], float]:
    """Mark the queue of a CUDA device; return what marks it again, waits for that mark, and tells
    the seconds between the two. The way to the device is not part of them."""
    stream = torch.cuda.current_stream(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)

    def elapsed() -> float:
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return elapsed
