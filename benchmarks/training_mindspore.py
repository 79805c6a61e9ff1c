"""The MindSpore training loop of a trial against loops written by hand.

python benchmarks/training_mindspore.py [--quick]    prints rows as JSON
python benchmarks/training_mindspore.py --step       prints the time of one update in ms

`run.py` starts it with the environment a trial's worker has; without, MindSpore falls into the slow
convolutions that isa.py measures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import mindspore as ms
from handwritten_mindspore import HandWritten, ModelTrain
from ratio_rows import RatioRow, make_row
from workload import ARMS, OurLoop, dataset

from dualml.backend import backends
from dualml.common.machine import default_threads
from dualml.interface.bench.timing import time_interleaved

SECTION = "training loop, mindspore"


def rows(rounds: int, steps: int) -> list[RatioRow]:
    backend = backends()["mindspore"].create("cpu", default_threads())
    data = dataset()
    found = []
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            ours = OurLoop(backend, data, arm, Path(folder), steps)
            given = ours.x, ours.y, arm, ours.rule.lr, steps
            times = time_interleaved(
                {
                    "ours": ours,
                    "graph": HandWritten(*given, ms.GRAPH_MODE),
                    "pynative": HandWritten(*given, ms.PYNATIVE_MODE),
                    "model": ModelTrain(*given),
                },
                rounds,
            )
        found += [
            make_row(
                SECTION, arm, "hand-written, one compiled cell", times, "ours", "graph", target=1.02
            ),
            make_row(SECTION, arm, "hand-written, PyNative", times, "ours", "pynative"),
            make_row(SECTION, arm, "Model.train", times, "ours", "model"),
        ]
    return found


def step_ms(rounds: int, steps: int) -> float:
    """Return the median time of one SGD update of our loop."""
    backend = backends()["mindspore"].create("cpu", default_threads())
    with tempfile.TemporaryDirectory() as folder:
        ours = OurLoop(backend, dataset(), "sgd", Path(folder), steps)
        return statistics.median(time_interleaved({"ours": ours}, rounds)["ours"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--step", action="store_true", help="only the time of one update")
    asked = parser.parse_args()
    if asked.step:
        print(json.dumps(step_ms(rounds=3, steps=15)))
        return
    made = rows(rounds=7 if asked.quick else 25, steps=30)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
