"""Predicted seconds of updates of `gpt` on the ranks of this machine, beside what they take.

    python benchmarks/planned.py [--backend torch] [--rounds N] [--out FILE]

The constants of `dualml.planner.here` are fitted to one and two ranks with one thread each; layouts
of two, four and eight ranks are predicted, on all of the cores that there are. Layouts take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from ranks import on_ranks

from dualml.backend import backends
from dualml.experiment.arm import Arm
from dualml.largest.rank import recipe_of, training_of
from dualml.machine import usable_cores
from dualml.planner.arm import arm_of
from dualml.planner.compared import signed
from dualml.planner.here import Point, fit
from dualml.planner.layouts import Layouts
from dualml.planner.zoo import by_name, sizes_of

#: Width → sizes of a `gpt`.
MODELS = {width: ["sizes.blocks=4", "sizes.tied=false", f"sizes.width={width}", "data.words=500",
                  "data.length=64"] for width in (128, 192, 256)}  # fmt: skip
BATCH = 16
#: Name → width, layout, whether the constants are fitted to it.
LAYOUTS: dict[str, tuple[int, dict[str, Any], bool]] = {
    "1 rank, width 128": (128, {"micro": 16}, True),
    "1 rank, width 256": (256, {"micro": 16}, True),
    "1 rank, width 256, b 4": (256, {"micro": 4}, True),
    "1 rank, width 192": (192, {"micro": 16}, False),
    "1 rank, width 256, full": (256, {"micro": 16, "recompute": "full"}, False),
    "dp 2, width 128": (128, {"dp": 2, "micro": 8}, True),
    "dp 2, width 256": (256, {"dp": 2, "micro": 8}, True),
    "pp 2, width 128": (128, {"pp": 2, "micro": 4}, True),
    "dp 2, width 192": (192, {"dp": 2, "micro": 8}, False),
    "dp 2, ZeRO-1, width 256": (256, {"dp": 2, "micro": 8, "zero": 1}, False),
    "dp 2, ZeRO-3, width 256": (256, {"dp": 2, "micro": 8, "zero": 3}, False),
    "pp 2, width 256": (256, {"pp": 2, "micro": 4}, False),
    "tp 2, width 256": (256, {"tp": 2, "micro": 8}, False),
    "dp 4, width 256": (256, {"dp": 4, "micro": 4}, False),
    "dp 4, ZeRO-3, width 256": (256, {"dp": 4, "micro": 4, "zero": 3}, False),
    "dp 2 · pp 2, width 256": (256, {"dp": 2, "pp": 2, "micro": 4}, False),
    "pp 4, width 256": (256, {"pp": 4, "micro": 4}, False),
    "dp 8, width 256": (256, {"dp": 8, "micro": 2}, False),
}


def arm(name: str) -> dict[str, Any]:
    width, keys, _ = LAYOUTS[name]
    shape = by_name("gpt", MODELS[width])
    own = arm_of(shape, Layouts.one(BATCH, **keys).describe(0))
    own |= {"model": "gpt", "optimizer": {"name": "adam", "lr": 0.001}, "updates": 1000}
    if "split" not in own:
        own["aggregation"] = {"strategy": "ring"} if own["world_size"] > 1 else {}
    if own.get("zero", 0) > 1:
        own["aggregation"] = {"bucket_bytes": 0}
    return own


def timed(comm: Any, argument: dict[str, Any]) -> list[list[float]]:
    """Seconds of the updates of every layout of so many ranks, in turns, from a common start."""
    backend, trainings = backends()[comm.backend].create("cpu", 1), []
    for name in argument["names"]:
        shape = by_name("gpt", MODELS[LAYOUTS[name][0]])
        own = Arm.model_validate(arm(name))
        given = {"sizes": sizes_of(shape), "blocks": shape.layers, "words": shape.vocabulary,
                 "length": shape.sequence}  # fmt: skip
        recipe = recipe_of(own, given)
        training = training_of(comm, backend, recipe, own)
        training.load(recipe.weights, recipe.state(), 0)
        trainings.append((training, getattr(training, "read", backend.read)))
    batch, spent = np.arange(BATCH), [list[float]() for _ in trainings]
    for step in range(1, argument["rounds"] + 3):
        for (training, read), own_times in zip(trainings, spent, strict=True):
            comm.barrier()
            begin = time.perf_counter()
            read([training.step(batch, step)])
            comm.barrier()
            own_times.append(time.perf_counter() - begin)
    return [each[2:] for each in spent]  # the first ones are slower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    seconds: dict[str, float] = {}
    for size in (1, 2, 4, 8):
        names = [name for name in LAYOUTS if arm(name)["world_size"] == size]
        argument = {"names": names, "rounds": asked.rounds}
        ranks = on_ranks(asked.backend, size, "planned:timed", argument)
        slowest = np.max(ranks, axis=0)
        seconds |= dict(zip(names, np.median(slowest, axis=1).tolist(), strict=True))
    report(seconds, asked.out)


def report(seconds: dict[str, float], out: Path | None) -> None:
    """The table of docs/plan.md."""
    points = [
        Point(name, by_name("gpt", MODELS[width]), Layouts.one(BATCH, **keys), seconds[name])
        for name, (width, keys, _) in LAYOUTS.items()
    ]
    machine = fit([p for p in points if LAYOUTS[p.name][2]], usable_cores())
    print(machine)
    print("| layout | fitted | measured / ms | predicted / ms | error |")
    print("| --- | --- | ---: | ---: | ---: |")
    for p in points:
        own = machine.predict(p.shape, p.layout)
        mark = "•" if LAYOUTS[p.name][2] else ""
        print(f"| {p.name} | {mark} | {1e3 * p.seconds:.1f} | {1e3 * own:.1f} | "
              f"{signed(own / p.seconds - 1)} |")  # fmt: skip
    if out is not None:
        out.write_text(json.dumps({"machine": vars(machine), "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
