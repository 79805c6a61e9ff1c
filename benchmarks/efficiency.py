"""One worker against two with the same samples each and one core each: the cost of a second.

    python benchmarks/efficiency.py --backend torch|mindspore [--quick]   prints rows as JSON

LeNet, SGD, 256 samples a rank. The two take turns in the same two ranks: while rank 0 trains alone,
rank 1 waits. Efficiency is the time alone over the time together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from dataclasses import replace
from typing import Any

from ourparallel import Order, OurParallel, lenet, samples
from ranks import on_ranks, paced, slowest
from ratio_rows import RatioRow, make_row

from dualml.backend import backends
from dualml.interface.bench.timing import Times, time_interleaved

SIZE, EACH, STEPS = 2, 256, 16
#: Smallest efficiency that counts as good.
GOAL = {"torch": 0.85, "mindspore": 0.8}


class SingleWorker:
    """The whole step of one worker on rank 0, while the others do nothing."""

    def __init__(self, comm: Any, x: Any, y: Any) -> None:
        self.rank = comm.rank
        self.backend = backends()[comm.backend].create("cpu", 1)
        recipe = lenet(x, y)
        self.training = self.backend.training(recipe)
        self.training.load(recipe.weights, recipe.initial_state(), 0)
        self.next, self.step = Order(len(y), EACH), 0

    def __call__(self) -> None:
        if self.rank:
            return
        lazy = []
        for _ in range(STEPS):
            self.step += 1
            lazy.append(self.training.step(self.next(), self.step))
        self.backend.materialize_losses(lazy)


def own_core(rank: int) -> None:
    """Confine every thread of this process to one core, including those that a framework has
    started."""
    usable = sorted(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), {usable[rank % len(usable)]})


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update, alone and together."""
    own_core(comm.rank)
    x, y = samples()
    calls = {
        "together": OurParallel(comm, x, y, SIZE * EACH, STEPS),
        "alone": SingleWorker(comm, x, y),
    }
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / STEPS for t in found] for name, found in times.items()}


def rows(backend: str, rounds: int) -> list[RatioRow]:
    times = slowest(on_ranks(backend, SIZE, "efficiency:train", {"rounds": rounds}))
    section = f"two ranks against one, {backend}"
    made = make_row(
        section,
        f"an update of two ranks, LeNet, {EACH} samples each, a core each",
        f"one rank alone, {EACH} samples",
        times,
        "together",
        "alone",
        target=1 / GOAL[backend],
    )
    assert made.ratio is not None
    told = f"efficiency {1 / made.ratio.median:.2f}, at least {GOAL[backend]} is good"
    return [replace(made, note=told)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=GOAL, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    made = rows(asked.backend, rounds=9 if asked.quick else 31)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
