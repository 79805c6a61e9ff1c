"""Times of variants that run in turns, on the device's own clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dualml.common.errors import Unsupported
from dualml.interface.bench.section import AddRow
from dualml.interface.bench.timing import ratio_quartiles, time_interleaved
from dualml.interface.bench.work import error_reason

#: Factory of a variant, whose call runs one round and returns milliseconds.
MakeVariant = Callable[[], Callable[[], float]]


def time_milliseconds(device: torch.device, work: Callable[[], Any], times: int = 1) -> float:
    """Return milliseconds per call of ``work``, the mean over ``times`` calls: on a GPU between
    events recorded before the first call and after the last one, which includes the launch of the
    first kernel; elsewhere wall time."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - start) * 1e3 / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def race(
    variants: Mapping[str, MakeVariant], rounds: int, against: str, add: AddRow, **what: Any
) -> None:
    """Run the variants in turns and call ``add`` with a row for each: quartiles of its times, and,
    except for ``against`` itself, of their ratios to its times in the same rounds. A variant that
    cannot be made or run is a row with its reason.

    Args:
        variants: name → factory of a function that runs one round and returns milliseconds.
        rounds: timed calls of each variant, after a first one that does not count.
        against: name of the variant that the others are compared with.
        what: the other cells of the rows.
    """
    runs: dict[str, Callable[[], float]] = {}
    failed: dict[str, str] = {}
    for name, make in variants.items():
        try:
            once = make()
            once()
            runs[name] = once
        except Exception as error:
            failed[name] = error_reason(error)
    times = time_interleaved(runs, rounds)
    for name in variants:
        if name in failed:
            add(**what, variant=name, reason=failed[name])
            continue
        cells: dict[str, Any] = {"variant": name, "milliseconds": quartiles(times[name])}
        if name != against and against in times:
            slower = ratio_quartiles(times[name], times[against])
            cells[f"per_{against}"] = [slower.low, slower.median, slower.high]
        add(**what, **cells)


def quartiles(values: list[float]) -> list[float]:
    """Return lower quartile, median and upper quartile of at least two values."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, median, high]


def capture_graph(device: torch.device, update: Callable[[], Any], fresh: Callable[[], Any]) -> Any:
    """Capture one update as a CUDA graph and return it, as torch's manual does it: on a separate
    stream, after three updates, in which every library allocates its workspaces. Unsupported: no
    GPU.

    Args:
        fresh: called before the capture, so that gradients lie in the graph's own memory.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html, "Whole-network capture".
    """
    if device.type != "cuda":
        raise Unsupported(f"CUDA graphs need a GPU; the device is {device}")
    aside = torch.cuda.Stream(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        for _ in range(3):
            update()
    torch.cuda.current_stream(device).wait_stream(aside)
    fresh()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    return graph
