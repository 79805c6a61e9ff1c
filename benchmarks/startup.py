"""Response time of the command line, in wall-clock seconds.

python benchmarks/startup.py [--quick]      prints rows as JSON
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from typing import Any

from ratio_rows import RatioRow

from dualml.interface.bench.timing import time_interleaved

SECTION = "start-up"
LIMIT_S = 0.25


def launcher() -> str | None:
    """Return the installed script ``dualml`` of this interpreter, or None."""
    return shutil.which("dualml", path=sysconfig.get_path("scripts"))


def commands() -> dict[str, list[Any]]:
    """Return what a user types → the command that it runs."""
    ways = {"dualml": [launcher()], "python -m dualml": [sys.executable, "-m", "dualml"]}
    return {
        f"{name} {word}": [*way, word]
        for word in ("--help", "list")
        for name, way in ways.items()
        if way[0]
    }


def make_round(command: list[str], cpu: list[float]) -> Callable[[], float]:
    """Return a round: the seconds until the command has ended; its CPU time is appended to
    ``cpu``."""

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        spent = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return spent

    return run


def rows(rounds: int) -> list[RatioRow]:
    asked = {**commands(), "python -c pass": [sys.executable, "-c", "pass"]}
    cpu: dict[str, list[float]] = {name: [] for name in asked}
    times = time_interleaved(
        {name: make_round(asked[name], cpu[name]) for name in asked}, rounds, warm_up=1
    )
    bare = statistics.median(times.pop("python -c pass"))
    return [
        RatioRow(
            section=SECTION,
            what=name,
            against="python -c pass",
            ours=statistics.median(times[name]),
            other=bare,
            unit="s",
            ratio=None,
            target=LIMIT_S,
            note=f"processor time {statistics.median(cpu[name]):.2f} s",
        )
        for name in times
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    made = rows(rounds=5 if parser.parse_args().quick else 9)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
