"""Collectives on one device: one rank with nccl, two ranks with gloo, and the error of two with
nccl."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from dualml.interface.bench.section import AddRow, BenchJob
from dualml.interface.bench.work import error_reason
from dualml.launch.ranks import run_ranks
from dualml_torch.bench.race import time_milliseconds
from dualml_torch.common.environment import resolve_device

#: Engine and number of ranks; all ranks are on one device.
GROUPS = (("nccl", 1), ("gloo", 2), ("nccl", 2))
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
SIZES = (2**12, 2**20, 2**26)
#: Timeouts in seconds: of a rank that waits for another, and of a whole group.
WAIT_S, GROUP_S = 20.0, 45.0


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with a row for each group, collective and size that was reached, a row with the
    reason for a group that failed, and one for dualml's own communicator with two ranks. Old
    reports in the job's folder are removed."""
    sizes, calls = (SIZES[:1], 2) if job.quick else (SIZES, 20)
    for engine, ranks in GROUPS:
        report = Path(job.folder) / f"collectives-{engine}-{ranks}.jsonl"
        for left in (report, Path(f"{report}.store")):
            left.unlink(missing_ok=True)
        cells = {"engine": engine, "ranks": ranks}
        try:
            run_group(ranks, (engine, ranks, job.device, str(report), sizes, calls))
        except Exception as error:
            cells["reason"] = error_line(error)
        for line in report.read_text("utf-8").splitlines() if report.exists() else ():
            row = json.loads(line)
            add(engine=engine, ranks=ranks, **row, ok=row.get("right", True))
        if "reason" in cells:
            add(**cells)
    try:
        run_ranks(
            job.backend,
            2,
            "dualml_torch.bench.collectives:sum_over_ranks",
            device=job.device,
            timeout=WAIT_S,
            limit=GROUP_S,
        )
        add(engine="dualml", ranks=2, right=True)
    except Exception as error:
        add(engine="dualml", ranks=2, reason=error_reason(error))


def sum_over_ranks(comm: Any, argument: Any) -> float:
    """Return the all-reduced sum of ones, one from each rank, by dualml's own communicator: the
    number of ranks. ``argument`` is ignored."""
    return float(comm.numpy(comm.all_reduce(comm.tensor([1.0])))[0])


def run_group(ranks: int, arguments: tuple[Any, ...]) -> None:
    """Start ``ranks`` processes that call ``run_rank(number, *arguments)``, number from 0, wait for
    them, and kill those that are left after `GROUP_S` or a failure.

    Raises:
        TimeoutError: the processes took longer than `GROUP_S`.
        torch.multiprocessing.ProcessException: a process failed.
    """
    context = processes.start_processes(
        run_rank, arguments, ranks, join=False, daemon=True, start_method="spawn"
    )
    end = time.monotonic() + GROUP_S
    try:
        while not context.join(timeout=1):
            if time.monotonic() > end:
                raise TimeoutError(f"no end within {GROUP_S:.0f} s")
    finally:
        for process in context.processes:
            process.kill()


def error_line(error: BaseException) -> str:
    """Return the line that names the cause: NCCL's own last error, or the last line of a traceback
    that names an error, each at most 300 characters; else `error_reason` of it."""
    text = str(error)
    if "Last error:" in text:
        return "nccl: " + " ".join(text.partition("Last error:")[2].split("\n\n")[0].split())[:300]
    lines = [line.strip() for line in text.splitlines() if "Error: " in line]
    return lines[-1][:300] if lines else error_reason(error)


def run_rank(
    number: int, engine: str, ranks: int, name: str, report: str, sizes: tuple[int, ...], calls: int
) -> None:
    """Run process ``number``, from 0, of a group and end it by `os._exit`; process 0 appends a JSON
    line for each collective and size to the file ``report``."""
    device = resolve_device(name)
    if engine == "nccl" and device.type != "cuda":
        raise RuntimeError(f"nccl needs a GPU; the device is {device}")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    store = dist.FileStore(f"{report}.store", ranks)
    limit = timedelta(seconds=WAIT_S)
    dist.init_process_group(engine, store=store, rank=number, world_size=ranks, timeout=limit)
    for row in measure_rows(number, ranks, device, sizes, calls):
        if number == 0:
            with open(report, "a", encoding="utf-8") as file:
                print(json.dumps(row), file=file)
        if "reason" in row and engine == "nccl":  # nccl's group does not survive an error
            os._exit(0)
    dist.barrier()
    os._exit(0)  # gloo's threads can abort the interpreter's exit (pytorch #190489)


def measure_rows(
    number: int, ranks: int, device: torch.device, sizes: tuple[int, ...], calls: int
) -> Iterator[dict[str, Any]]:
    """Measure each collective at each size in bytes; yield the cells of a row, with the quartiles
    of the milliseconds per call. After a failure, the row's reason, the larger sizes of that
    collective are left out."""
    for collective in COLLECTIVES:
        for size in sizes:
            cells: dict[str, Any] = {"collective": collective, "bytes": size}
            x = torch.full((size // 4,), number + 1.0, device=device)
            try:
                cells["right"] = is_correct(collective, x, number, ranks)
                spent = [
                    time_milliseconds(
                        device, lambda x=x, c=collective: call_collective(c, x, number, ranks)
                    )
                    for _ in range(calls)
                ]
                low, median, high = statistics.quantiles(spent, n=4, method="inclusive")
                cells["milliseconds"] = [low, median, high]
            except RuntimeError as error:
                cells["reason"] = error_line(error)
            yield cells
            if "reason" in cells:
                break


def call_collective(collective: str, x: torch.Tensor, number: int, ranks: int) -> torch.Tensor:
    """Run a collective on ``x``, which an all-reduce or broadcast overwrites, and return this
    rank's result; any unknown name is a reduce-scatter."""
    if collective == "all_reduce":
        dist.all_reduce(x)
        return x
    if collective == "broadcast":
        dist.broadcast(x, 0)
        return x
    if collective == "all_gather":
        parts = [torch.empty_like(x) for _ in range(ranks)]
        dist.all_gather(parts, x)
        return torch.cat(parts)
    own = x.new_empty(len(x) // ranks)
    dist.reduce_scatter_tensor(own, x)
    return own


def is_correct(collective: str, x: torch.Tensor, number: int, ranks: int) -> bool:
    """Return whether a collective gives the correct result for ``x`` filled with ``number`` + 1, 1
    to n over the ranks; ``x`` is unchanged."""
    total = ranks * (ranks + 1) / 2
    wanted = {"all_reduce": [total], "reduce_scatter": [total], "broadcast": [1.0]}
    values = call_collective(collective, x.clone(), number, ranks).unique().tolist()
    return values == wanted.get(collective, [float(r + 1) for r in range(ranks)])
