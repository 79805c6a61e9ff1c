"""Predicted update times of `gpt` on the ranks of this machine, against measured ones.

    python benchmarks/planned.py [--backend torch] [--rounds N] [--out FILE]

The constants of `local_machine` are fitted to one and two ranks with one
thread each. Other layouts, and everything on four and eight ranks, are predicted for the available
cores. Layouts take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from local_machine import TimedLayout, fit_machine
from ranks import on_ranks

from dualml.backend import backends
from dualml.common.machine import usable_cores
from dualml.experiment.arm import make_arm
from dualml.planning.planner.arm import arm_from_layout
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.zoo import shape_by_name, sizes_from_shape
from dualml.report.plan.published import format_signed_percent
from dualml.runner.largest.rank import make_trainer, make_training_spec

#: Width → sizes of a `gpt`.
MODELS = {
    width: [
        "sizes.blocks=4",
        "sizes.tied=false",
        f"sizes.width={width}",
        "data.words=500",
        "data.length=64",
    ]
    for width in (128, 192, 256, 320)
}
BATCH = 16
#: Name → width, layout, and whether the constants are fitted to it.
LAYOUTS: dict[str, tuple[int, dict[str, Any], bool]] = {
    "1 rank, width 128": (128, {"micro": 16}, True),
    "1 rank, width 256": (256, {"micro": 16}, True),
    "1 rank, width 256, b 4": (256, {"micro": 4}, True),
    "1 rank, width 192": (192, {"micro": 16}, False),
    "1 rank, width 256, full": (256, {"micro": 16, "recompute": "full"}, False),
    "dp 2, width 128": (128, {"dp": 2, "micro": 8}, True),
    "dp 2, width 256": (256, {"dp": 2, "micro": 8}, True),
    "dp 2, ZeRO-1, width 128": (128, {"dp": 2, "micro": 8, "zero": 1}, True),
    "dp 2, ZeRO-3, width 128": (128, {"dp": 2, "micro": 8, "zero": 3}, True),
    "pp 2, width 128": (128, {"pp": 2, "micro": 4}, True),
    "tp 2, width 128": (128, {"tp": 2, "micro": 8}, True),
    "dp 2, width 256, one core": (256, {"dp": 2, "micro": 8}, True),
    "pp 2, width 256, one core": (256, {"pp": 2, "micro": 4}, True),
    "dp 2, ZeRO-3, width 256, one core": (256, {"dp": 2, "micro": 8, "zero": 3}, True),
    "tp 2, width 256, one core": (256, {"tp": 2, "micro": 8}, True),
    "dp 2, width 192": (192, {"dp": 2, "micro": 8}, False),
    "dp 2, ZeRO-1, width 256": (256, {"dp": 2, "micro": 8, "zero": 1}, True),
    "dp 2, ZeRO-3, width 256": (256, {"dp": 2, "micro": 8, "zero": 3}, False),
    "pp 2, width 256": (256, {"pp": 2, "micro": 4}, False),
    "tp 2, width 256": (256, {"tp": 2, "micro": 8}, False),
    "dp 4, width 320": (320, {"dp": 4, "micro": 4}, False),
    "dp 4, ZeRO-1, width 320": (320, {"dp": 4, "micro": 4, "zero": 1}, False),
    "dp 4, ZeRO-3, width 320": (320, {"dp": 4, "micro": 4, "zero": 3}, False),
    "dp 2 · pp 2, width 320": (320, {"dp": 2, "pp": 2, "micro": 4}, False),
    "dp 2 · tp 2, width 320": (320, {"dp": 2, "tp": 2, "micro": 8}, False),
    "pp 2 · tp 2, width 320": (320, {"pp": 2, "tp": 2, "micro": 4}, False),
    "pp 4, width 320": (320, {"pp": 4, "micro": 4}, False),
    "tp 4, width 320": (320, {"tp": 4, "micro": 16}, False),
    "dp 8, width 320": (320, {"dp": 8, "micro": 2}, False),
    "dp 8, ZeRO-1, width 320": (320, {"dp": 8, "micro": 2, "zero": 1}, False),
    "dp 4 · pp 2, width 320": (320, {"dp": 4, "pp": 2, "micro": 2}, False),
    "dp 4 · tp 2, width 320": (320, {"dp": 4, "tp": 2, "micro": 4}, False),
    "dp 2 · tp 4, width 320": (320, {"dp": 2, "tp": 4, "micro": 8}, False),
}


def arm(name: str) -> dict[str, Any]:
    width, keys, _ = LAYOUTS[name]
    shape = shape_by_name("gpt", MODELS[width])
    own = arm_from_layout(shape, Layouts.from_axes(BATCH, **keys).describe(0))
    own |= {"model": "gpt", "optimizer": {"name": "adam", "lr": 0.001}, "updates": 1000}
    if "split" not in own:
        own["aggregation"] = {"strategy": "ring"} if own["world_size"] > 1 else {}
    return own


def timed(comm: Any, argument: dict[str, Any]) -> list[list[tuple[float, float]]]:
    """Return the seconds of the updates of every layout of so many ranks, in alternating order from
    a common start: wall-clock and per core."""
    backend, trainers = backends()[comm.backend].create("cpu", 1), []
    names, all_cores = argument["names"], sorted(os.sched_getaffinity(0))
    for name in names:
        shape = shape_by_name("gpt", MODELS[LAYOUTS[name][0]])
        own = make_arm(arm(name))
        given = {
            "sizes": sizes_from_shape(shape),
            "blocks": shape.layers,
            "words": shape.vocabulary,
            "length": shape.sequence,
        }
        recipe = make_training_spec(own, given)
        trainer = make_trainer(comm, backend, recipe, own)
        trainer.load(recipe.weights, recipe.initial_state(), 0)
        trainers.append(trainer)
    batch, spent = np.arange(BATCH), [list[tuple[float, float]]() for _ in trainers]
    for step in range(1, argument["rounds"] + 3):
        for name, trainer, own_times in zip(names, trainers, spent, strict=True):
            on_cores(all_cores if cores_of(name) is None else all_cores[:1])
            comm.barrier()
            begin, core = time.perf_counter(), time.process_time()
            trainer.mean_losses([trainer.step(batch, step)])
            core = time.process_time() - core
            comm.barrier()
            own_times.append((time.perf_counter() - begin, core))
    return [each[2:] for each in spent]  # the first ones are slower


def cores_of(name: str) -> int | None:
    """Return the cores that all ranks of a layout share; None for all of the machine's."""
    return 1 if name.endswith("one core") else None


def on_cores(cores: list[int]) -> None:
    """Pin all threads of this process from now on."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--rounds", type=int, default=4, help="updates of each layout in a turn")
    parser.add_argument("--turns", type=int, default=6, help="of one, two, four and eight ranks")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in LAYOUTS}
    for size in asked.turns * (1, 2, 4, 8):
        names = [name for name in LAYOUTS if arm(name)["world_size"] == size]
        argument = {"names": names, "rounds": asked.rounds}
        ranks = on_ranks(asked.backend, size, "planned:timed", argument)
        clock, cores = np.moveaxis(np.array(ranks), -1, 0)  # [rank, layout, update]
        updates = np.stack([clock.max(axis=0), cores.sum(axis=0)], axis=-1)
        for name, each in zip(names, updates.tolist(), strict=True):
            found[name] += each
    seconds = {name: tuple(np.median(each, axis=0).tolist()) for name, each in found.items()}
    report(seconds, asked.out)


def report(seconds: dict[str, tuple[float, float]], out: Path | None) -> None:
    """Print the table of docs/plan.md."""
    points = [
        TimedLayout(
            name,
            shape_by_name("gpt", MODELS[width]),
            Layouts.from_axes(BATCH, **keys),
            *seconds[name],
            cores_of(name),
        )
        for name, (width, keys, _) in LAYOUTS.items()
    ]
    machine = fit_machine([p for p in points if LAYOUTS[p.name][2]], usable_cores())
    print(machine)
    print("| layout | fitted | measured / ms | predicted / ms | error | error, cores |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for p in points:
        own, cores = (
            what(p.shape, p.layout, p.cores) for what in (machine.predict, machine.core_seconds)
        )
        mark = "•" if LAYOUTS[p.name][2] else ""
        off = (
            format_signed_percent(own / p.seconds - 1),
            format_signed_percent(cores / p.core_seconds - 1),
        )
        print(
            f"| {p.name} | {mark} | {1e3 * p.seconds:.1f} | {1e3 * own:.1f} | {off[0]} | {off[1]} |"
        )
    if out is not None:
        out.write_text(json.dumps({"machine": vars(machine), "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
