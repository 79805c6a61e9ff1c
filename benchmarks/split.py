"""Updates of split models on two ranks against the frameworks' own splits, and against the whole.

    python benchmarks/split.py --backend torch|mindspore [--quick]     prints rows as JSON

A core and a thread for each rank, SGD, batches of 256. All loops take turns in the same two ranks;
a round's time is that of the slowest rank. The whole model runs on rank 0 while rank 1 waits. The
bubble is the share of the ranks' time, between the first pass of an update and the last, in which
no stage works.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ranks import on_ranks, slowest
from timing import Ratio, Row, Times, row

from dualml.split.schedules import bubble

SIZE, BATCH, UPDATES = 2, 256, 4
EACH, MICRO_BATCHES, SCHEDULES = 128, (4, 8, 16), ("gpipe", "1f1b")
WITHIN = 1.1  # of the textbook's bubble
WHY = (
    "the passes of two ranks differ by some per cent from update to update, and who is early waits"
)
SECTIONS = {"torch": "split models, torch", "mindspore": "split models, mindspore"}
WHAT = {
    "pipeline": "1F1B, two stages, 4 micro-batches (deep_mlp)",
    "mlp": "column and row split (mlp)",
    "wide_mlp": "column and row split (wide_mlp)",
}
OTHERS = {
    "pipeline": "torch.distributed.pipelining, Schedule1F1B",
    "mlp": "DTensor, parallelize_module",
    "wide_mlp": "DTensor, parallelize_module",
}


def rows(backend: str, rounds: int) -> list[Row]:
    argument = {"rounds": rounds, "batch": BATCH, "updates": UPDATES}
    ranks = on_ranks(backend, SIZE, f"split_{backend}:train", argument)
    made, section = [], SECTIONS[backend]
    for name, what in WHAT.items():
        times: Times = slowest([rank[name] for rank in ranks])
        pairs = zip(times["whole"], times["transfers"], strict=True)
        times["sum"] = [a + b for a, b in pairs]
        if "other" in times:
            made.append(row(section, what, OTHERS[name], times, "ours", "other", target=1.0))
        for against, other in (
            ("the whole model on one rank", "whole"),
            ("the same and the split's transfers alone", "sum"),
        ):
            made.append(row(section, what, against, times, "ours", other))
    return made


def bubbles(backend: str, updates: int) -> list[Row]:
    argument = {"schedules": SCHEDULES, "micro_batches": MICRO_BATCHES, "each": EACH,
                "updates": updates}  # fmt: skip
    ranks = on_ranks(backend, SIZE, "oursplit:stages_at_work", argument)
    return [
        idle(backend, schedule, m, [rank[f"{schedule} {m}"] for rank in ranks])
        for schedule in SCHEDULES
        for m in MICRO_BATCHES
    ]


def idle(backend: str, schedule: str, m: int, ranks: Sequence[Any]) -> Row:
    """Measured against (p − 1)/(m + p − 1)."""
    theory, found = bubble(SIZE, m), []
    for updates in zip(*ranks, strict=True):
        begin, end = min(u[0] for u in updates), max(u[1] for u in updates)
        found.append(1 - sum(u[2] for u in updates) / (SIZE * (end - begin)))
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    made = Row(
        section=f"bubble, {backend}", what=f"{schedule}, {m} micro-batches of {EACH}, equal halves",
        against="(p − 1)/(m + p − 1)", ours=100 * middle, other=100 * theory, unit="%",
        ratio=Ratio(middle / theory, low / theory, high / theory),
        target=WITHIN if backend == "torch" else None,
    )  # fmt: skip
    return replace(made, note=WHY) if made.met is False else made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    made = rows(asked.backend, rounds=9 if asked.quick else 31)
    made += bubbles(asked.backend, updates=3 if asked.quick else 7)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
