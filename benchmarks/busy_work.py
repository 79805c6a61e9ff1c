"""The programs that busy.py starts: a process that keeps a core busy, and ranks that train on
request.

    python benchmarks/busy_work.py             keeps a core busy until its parent ends
    python benchmarks/busy_work.py JOB         the ranks of one setting; JOB is JSON

Each rank reads from the named pipe ``go<rank>`` how many times to train `STEPS` updates, and writes
the milliseconds of an update to ``told<rank>``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STEPS = 16  # as many as a trial of several ranks makes between two readings of the loss
SAMPLES = 8192  # of each rank of several


def settle(runtime: Mapping[str, int]) -> None:
    """Apply MindSpore's own settings, which must precede any computation."""
    if not runtime:
        return
    import mindspore as ms

    calls: dict[str, Callable[[int], Any]] = {
        "dispatch_threads_num": ms.runtime.dispatch_threads_num,
        "op_tuning.threads_num": ms.device_context.cpu.op_tuning.threads_num,
        "set_cpu_affinity": lambda on: ms.runtime.set_cpu_affinity(bool(on)),
    }
    for name, value in runtime.items():
        calls[name](value)


def confine(rank: int, cores: int) -> None:
    """Pin the process as `dualml.common.machine.pin_cores` does, including threads that a
    framework has started."""
    from dualml.common.machine import USABLE, pin_cores

    pin_cores(rank, cores)
    mine = {USABLE[(rank * cores + i) % len(USABLE)] for i in range(cores)}
    for thread in os.listdir("/proc/self/task") if cores else ():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), mine)


def rounds(rank: int, folder: Path, once: Callable[[int], float]) -> None:
    """Answer every line with the time of a round, for as long as the parent lives."""
    with (folder / f"go{rank}").open() as go, (folder / f"told{rank}").open("w", 1) as told:
        once(2)
        told.write("ready\n")
        for line in go:
            told.write(json.dumps(once(int(line))) + "\n")


def run_single(job: Mapping[str, Any]) -> None:
    """Run the loop of a trial with one rank."""
    from workload import OurLoop, dataset

    from dualml.backend import backends

    confine(0, job["cores"])
    settle(job["runtime"])
    backend = backends()[job["backend"]].create("cpu", job["threads"])
    with tempfile.TemporaryDirectory() as records:
        loop = OurLoop(backend, dataset(), "sgd", Path(records), STEPS)
        rounds(0, Path(job["folder"]), lambda many: sum(loop() for _ in range(many)) / many)


def run_on_rank(comm: Any, job: Mapping[str, Any]) -> None:
    """Run the update of a trial with several ranks; the target of `run_ranks`."""
    from ourparallel import OurParallel, samples
    from ranks import paced

    confine(comm.rank, job["cores"])
    x, y = samples()
    call = OurParallel(comm, x[:SAMPLES].copy(), y[:SAMPLES].copy(), updates=STEPS)
    del x, y
    rounds(comm.rank, Path(job["folder"]), lambda many: paced(comm, call, many)() / STEPS)


def start(job: Mapping[str, Any]) -> None:
    """Start all ranks of the setting, in exactly the environment of this process."""
    from ranks import LIMIT_S, on_ranks

    from dualml.launch import ranks as launcher

    if job["size"] == 1:
        run_single(job)
        return
    there, info = dict(os.environ), launcher.backends()[job["backend"]]
    # The parent has set what is asked for: what dualml would add is not always wanted.
    object.__setattr__(info, "environ", lambda threads: there)
    assert job["limit_s"] < LIMIT_S
    on_ranks(job["backend"], job["size"], "busy_work:run_on_rank", job, job["threads"])


def main() -> None:
    from dualml.launch.child import on_death_of_parent

    on_death_of_parent(signal.SIGKILL)
    if len(sys.argv) > 1:
        start(json.loads(sys.argv[1]))
        return
    print("busy", flush=True)
    while True:
        pass


if __name__ == "__main__":
    main()
