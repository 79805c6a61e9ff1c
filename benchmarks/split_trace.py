"""Time of an update of a split model in MindSpore, call by call, on each of two ranks.

    python benchmarks/split_trace.py [MODEL …]     prints tables

The tables list the calls of compiled cells and of the communicator, as a trial makes them, and the
operators that each call executes (by MindSpore's profiler, for the same cell and arguments). The
difference is MindSpore's runtime. For comparison they show a call of a graph with one small
addition, and the split's messages alone. Ranks as in split.py, with one core and one thread each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from efficiency import own_core
from ourparallel import samples
from ranks import on_ranks, paced

MODELS, ROUNDS = ("pipeline", "mlp", "wide_mlp"), 20
CELLS = {"apply": "update", "clear": "zero"}


def trace(comm: Any, argument: dict[str, Any]) -> dict[str, list[tuple[str, float, float, float]]]:
    """Return, per comparison, each call with its count per update, its milliseconds, and those of
    its operators."""
    own_core(comm.rank)
    from oursplit import races

    from dualml.interface.bench.timing import time_interleaved

    x, y = samples()
    tables = {}
    for name, variants in races(comm, x, y, 256, 1).items():
        if name not in argument["models"]:
            continue
        times = time_interleaved({n: paced(comm, call) for n, call in variants.items()}, ROUNDS)
        rows = [(f"whole update, {n}", 1.0, statistics.median(t), 0.0) for n, t in times.items()]
        tables[name] = rows + calls(comm, variants["ours"])
    return tables


def calls(comm: Any, ours: Any) -> list[tuple[str, float, float, float]]:
    """Time every cell and every message of our update in the same way."""
    from operators_mindspore import operators

    spent, last = defaultdict[str, list[float]](list), dict[str, Callable[[], Any]]()

    def timed(label: str, call: Any) -> Any:
        def timed_call(*given: Any, **more: Any) -> Any:
            begin = time.perf_counter()
            result = call(*given, **more)
            spent[label].append((time.perf_counter() - begin) * 1e3)
            last[label] = lambda: call(*given, **more)
            return result

        return timed_call

    executor, stage = ours.executor, ours.executor.stage
    for part, cells in (("forward", stage.forward_cells), ("backward", stage.backward_cells)):
        cells[:] = [timed(f"{part} of segment {i}", cell) for i, cell in enumerate(cells)]
    for attribute, label in CELLS.items():
        setattr(stage, attribute, timed(label, getattr(stage, attribute)))
    executor.send = timed("send", executor.send)
    executor.receive = timed("receive, waiting included", executor.receive)
    executor.all_reduce_sum = timed("all-reduce, waiting included", executor.all_reduce_sum)
    for _ in range(ROUNDS):
        comm.barrier()
        ours()
    rows = []
    for label, times in spent.items():
        cell = label.startswith(("forward", "backward")) or label in CELLS.values()
        kernels = sum(ms for _, ms in operators(last[label]).values()) if cell else 0.0
        rows.append((label, len(times) / ROUNDS, statistics.median(times), kernels))
    rows.append(("a graph of one small addition", 0.0, smallest(), 0.0))
    return rows


def smallest() -> float:
    """Return the milliseconds of a call of the smallest graph."""
    import mindspore as ms
    from mindspore import nn

    from dualml_ms.common.compiled import CompiledCell

    relu, x = CompiledCell(nn.ReLU()), ms.Tensor([1.0])
    spent = []
    for _ in range(300):
        begin = time.perf_counter()
        relu(x)
        spent.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(spent[20:])


def main() -> None:
    models = sys.argv[1:] or list(MODELS)
    for rank, tables in enumerate(
        on_ranks("mindspore", 2, "split_trace:trace", {"models": models})
    ):
        for name, rows in tables.items():
            print(f"\n{name}, rank {rank}: calls an update, ms of a call, of them in operators")
            for label, count, spent, kernels in rows:
                print(f"  {label:40s} {count:5.1f} {spent:9.3f} {kernels:9.3f}")


if __name__ == "__main__":
    main()
