"""Start-up time of two ranks, with dualml's launcher and with the framework's.

    python benchmarks/launching.py --backend torch|mindspore [--quick]      prints rows as JSON

Both launchers do the same three things, timed from the command to the mark that each rank leaves:
import the framework, join the group, sum one number. The start of the command's own interpreter
counts for both. ``torchrun`` is also timed to its end. ``msrun`` waits for its scheduler long after
the ranks have ended, so it is ended here once they have left their marks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ranks import FOLDER, on_ranks
from ratio_rows import RatioRow

from dualml.interface.bench.timing import ratio_quartiles, time_interleaved

SIZE, LIMIT_S, POLL_S = 2, 60.0, 0.005
SECTIONS = {b: f"start-up of two ranks, {b}" for b in ("torch", "mindspore")}
#: Search path with which msrun starts its ranks with this ``python``.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
LAUNCHERS = {"torch": "torchrun", "mindspore": "msrun"}


def dualml_command(backend: str, marks: Path) -> list[str]:
    """Return the command that starts two ranks with dualml's launcher."""
    return [sys.executable, __file__, "--backend", backend, "--ranks", str(marks)]


def launcher_command(backend: str, marks: Path) -> list[str]:
    """Return the command of the framework's launcher as in its manual, with a rendezvous on a free
    port."""
    name = LAUNCHERS[backend]
    program = shutil.which(name, path=sysconfig.get_path("scripts")) or name
    script = [str(FOLDER / f"minimal_{backend}.py"), str(marks)]
    port = str(free_port())
    if backend == "torch":
        return [program, f"--nproc-per-node={SIZE}", f"--master-port={port}", *script]
    sizes = [f"--worker_num={SIZE}", f"--local_worker_num={SIZE}", "--join=True"]
    return [program, *sizes, f"--master_port={port}", f"--log_dir={marks / 'logs'}", *script]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def make_round(make: Callable[[Path], list[str]], ends: list[float] | None) -> Callable[[], float]:
    """Return a round: the seconds from the command to the last rank's mark.

    Args:
        ends: list that receives the seconds to the command's end; None ends it after the marks.

    Raises:
        RuntimeError: the marks did not appear within `LIMIT_S`, or the command failed before.
    """

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("wb") as log:
            marks = Path(folder)
            begin = time.perf_counter()
            process = subprocess.Popen(
                make(marks),
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PATH": PATH},
                start_new_session=True,
            )
            try:
                wait_for(marks, process, begin + LIMIT_S)
                spent = time.perf_counter() - begin
                if ends is not None:
                    process.wait(LIMIT_S)
                    ends.append(time.perf_counter() - begin)
                return spent
            finally:
                end_all(process)

    return run


def wait_for(marks: Path, process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait until all marks are there; raise `RuntimeError` if the process fails or is too late."""
    while not all((marks / str(rank)).exists() for rank in range(SIZE)):
        if time.perf_counter() > deadline or process.poll() not in (None, 0):
            said = (marks / "log").read_text("utf-8", errors="replace")[-400:]
            raise RuntimeError(f"{process.args[0]} started no ranks: {said}")
        time.sleep(POLL_S)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End the command and everything it started, scheduler included."""
    import psutil

    started = []
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in started:  # those in sessions of their own
        with contextlib.suppress(psutil.Error):
            child.kill()
    process.wait()
    psutil.wait_procs(started, timeout=5)


def rows(backend: str, rounds: int) -> list[RatioRow]:
    ends: dict[str, list[float]] = {"ours": [], "theirs": []}
    variants = {
        name: make_round(lambda marks, make=make: make(backend, marks), to_end)
        for name, make, to_end in (
            ("ours", dualml_command, ends["ours"] if backend == "torch" else None),
            ("theirs", launcher_command, ends["theirs"] if backend == "torch" else None),
        )
    }
    found = {"until the first sum is there": time_interleaved(variants, rounds, warm_up=1)}
    if backend == "torch":
        kept = {name: spent[-rounds:] for name, spent in ends.items()}  # without the warm-up
        found["until all has ended"] = kept
    return [
        RatioRow(
            section=SECTIONS[backend],
            what=what,
            against=LAUNCHERS[backend],
            ours=statistics.median(times["ours"]),
            other=statistics.median(times["theirs"]),
            unit="s",
            ratio=ratio_quartiles(times["ours"], times["theirs"]),
            target=1.0,
        )
        for what, times in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=LAUNCHERS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--ranks", type=Path, metavar="FOLDER", help="only start them: our command")
    asked = parser.parse_args()
    if asked.ranks:
        on_ranks(asked.backend, SIZE, "minimal:reduce_once", {"marks": str(asked.ranks)})
        return
    few = 3 if asked.backend == "mindspore" else 5  # msrun takes up to 20 s
    made = rows(asked.backend, rounds=few if asked.quick else 2 * few + 1)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
