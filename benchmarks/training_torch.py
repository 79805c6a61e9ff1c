"""The PyTorch training loop of a trial against loops written by hand.

python benchmarks/training_torch.py [--quick]        prints rows as JSON
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path

import torch
from handwritten_torch import Course, HandWritten
from ratio_rows import RatioRow, fastest_variant, make_row
from workload import ARMS, OurLoop, dataset

from dualml.backend import backends
from dualml.common.machine import default_threads
from dualml.interface.bench.timing import time_interleaved

SECTION = "training loop, torch"
#: Modes of `torch.compile`; "" is eager. ``reduce-overhead`` is for GPUs.
MODES = ("", "default", "max-autotune")


def rows(rounds: int, steps: int) -> list[RatioRow]:
    backend = backends()["torch"].create("cpu", default_threads())
    data = dataset()
    found = []
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            ours = OurLoop(backend, data, arm, Path(folder), steps)
            given = torch.from_numpy(ours.x), torch.from_numpy(ours.y), arm, ours.rule.lr, steps
            by_hand = {
                ", ".join(filter(None, how)): HandWritten(*given, *how)
                for how in itertools.product(
                    ("fused", "foreach"), ("contiguous_format", "channels_last"), MODES
                )
            }
            times = time_interleaved({"ours": ours, **by_hand, "course": Course(*given)}, rounds)
        best = fastest_variant(times, list(by_hand))
        found += [
            make_row(SECTION, arm, f"hand-written, {best}", times, "ours", best, target=1.02),
            make_row(
                SECTION, arm, "course script (DataLoader, loss.item())", times, "ours", "course"
            ),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    made = rows(rounds=7 if quick else 25, steps=30)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
