"""Updates of split models on two ranks against the frameworks' own splits and the unsplit model.

    python benchmarks/split.py --backend torch|mindspore [--quick]     prints rows as JSON

One core and one thread per rank, SGD, batches of 256. All loops take turns in the same two ranks;
the time of a round is that of the slowest rank. The unsplit model runs on rank 0 while rank 1
waits. The bubble is the idle share of the ranks' time between the first and the last pass of an
update. It is compared with the bubble of the same passes if messages took no time, and with the
textbook's, which assumes equal passes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from oursplit import even_plan
from ranks import on_ranks, slowest
from ratio_rows import RatioRow, make_row

from dualml.interface.bench.timing import Ratio, Times
from dualml.parallel.split import schedules
from dualml.parallel.split.timeline import COLUMNS
from dualml.parallel.split.timeline_stats import measured_bubble, replayed_bubble

SIZE, BATCH, UPDATES = 2, 256, 4
EACH, MICRO_BATCHES, SCHEDULES = 32, (4, 8, 16), ("gpipe", "1f1b", "eager-1f1b")
CALLED = ("lenet", "deep_mlp")
WITHIN = 1.1  # of the bubble that theory gives
#: Allowed time of a MindSpore split, relative to the unsplit model and the split's transfers
#: together.
SUM_WITHIN = {"pipeline": 1.1, "mlp": 1.15}
TEXTBOOK, PASSES = "(p − 1)/(m + p − 1)", "the same passes, did messages take no time"
WHY = "passes of the two cores differ in length from one to the next, and who is early waits"
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


def rows(backend: str, rounds: int) -> list[RatioRow]:
    argument = {"rounds": rounds, "batch": BATCH, "updates": UPDATES}
    ranks = on_ranks(backend, SIZE, f"split_{backend}:train", argument)
    made, section = [], SECTIONS[backend]
    for name, what in WHAT.items():
        times: Times = slowest([rank[name] for rank in ranks])
        pairs = zip(times["whole"], times["transfers"], strict=True)
        times["sum"] = [a + b for a, b in pairs]
        if "other" in times:
            made.append(make_row(section, what, OTHERS[name], times, "ours", "other", target=1.0))
        for against, other in (
            ("the whole model on one rank", "whole"),
            ("the same and the split's transfers alone", "sum"),
        ):
            target = SUM_WITHIN.get(name) if (backend, other) == ("mindspore", "sum") else None
            made.append(make_row(section, what, against, times, "ours", other, target=target))
    if backend == "torch":
        made += by_calls(argument)
    return made


def by_calls(argument: dict[str, Any]) -> Iterator[RatioRow]:
    """Compare remote procedure calls with messages, in separate ranks because of the agents'
    threads."""
    given = argument | {"models": CALLED}
    ranks = on_ranks("torch", SIZE, "oursplit:calls_or_messages", given)
    for name in CALLED:
        times = slowest([rank[name] for rank in ranks])
        what = f"by remote procedure calls ({name}, two stages)"
        yield make_row(SECTIONS["torch"], what, "by messages", times, "ours", "messages")


def bubbles(backend: str, updates: int) -> list[RatioRow]:
    """Return the rows that compare measured bubbles with the textbook's."""
    argument = {
        "schedules": SCHEDULES,
        "micro_batches": MICRO_BATCHES,
        "each": EACH,
        "updates": updates,
    }
    ranks = on_ranks(backend, SIZE, "oursplit:stages_at_work", argument)
    return [
        made
        for schedule in SCHEDULES
        for m in MICRO_BATCHES
        for made in idle(backend, schedule, m, [rank[f"{schedule} {m}"] for rank in ranks])
    ]


def idle(backend: str, schedule: str, m: int, ranks: Sequence[Any]) -> Iterator[RatioRow]:
    """Return the measured idle time against the textbook's, and against that of the actual pass
    lengths."""
    plan = even_plan(schedule, m)
    events = [dict(zip(COLUMNS, np.array(rows).T, strict=True)) for rows in ranks]
    steps = np.unique(events[0]["step"])
    found = [measured_bubble(events, step) for step in steps]
    textbook = [schedules.bubble(SIZE, m)] * len(steps)
    alone = [replayed_bubble(plan, events, step) for step in steps]
    for against, theory in ((TEXTBOOK, textbook), (PASSES, alone)):
        ratios = [a / b for a, b in zip(found, theory, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        made = RatioRow(
            section=f"bubble, {backend}",
            against=against,
            unit="%",
            what=f"{schedule}, {m} micro-batches of {EACH}, equal halves",
            ours=100 * statistics.median(found),
            other=100 * statistics.median(theory),
            ratio=Ratio(middle, low, high),
            target=WITHIN if backend == "torch" else None,
        )
        missed = made.meets_target is False and against == TEXTBOOK
        yield replace(made, note=WHY) if missed else made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    made = rows(asked.backend, rounds=9 if asked.quick else 31)
    made += bubbles(asked.backend, updates=3 if asked.quick else 9)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
