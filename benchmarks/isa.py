"""MindSpore's convolution trap: one update with and without dualml's choice of instruction set.

    python benchmarks/isa.py        prints rows as JSON

oneDNN as MindSpore bundles it may choose a reference convolution on an AVX-512 CPU; dualml measures
this once per machine and caps ``ONEDNN_MAX_CPU_ISA`` where that helps (`dualml_ms.common.isa`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ratio_rows import RatioRow, make_row

from dualml.interface.bench.timing import time_interleaved

VARIABLE = "ONEDNN_MAX_CPU_ISA"
SECTION = "MindSpore's convolutions"
STEP = [sys.executable, str(Path(__file__).with_name("training_mindspore.py")), "--step"]


def update_ms(env: dict[str, str]) -> Callable[[], float]:
    """Return a round: the milliseconds of an SGD update in a separate process."""

    def run() -> float:
        told = subprocess.run(STEP, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        return float(json.loads(told.splitlines()[-1]))

    return run


def rows(rounds: int) -> list[RatioRow]:
    from dualml.backend import backends
    from dualml.common.machine import default_threads

    chosen = backends()["mindspore"].environ(default_threads())
    cap = chosen.get(VARIABLE, "")
    env = {**os.environ, **chosen}
    variants = {"ours": env, "default": {k: v for k, v in env.items() if k != VARIABLE}}
    times = time_interleaved({k: update_ms(v) for k, v in variants.items()}, rounds, warm_up=0)
    note = f"{VARIABLE}={cap}" if cap else f"{VARIABLE} is left alone on this CPU"
    return [
        make_row(
            SECTION, "one update, sgd", "without the choice", times, "ours", "default", note=note
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    made = rows(rounds=2 if parser.parse_args().quick else 3)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
