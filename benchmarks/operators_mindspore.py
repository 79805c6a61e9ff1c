"""The five operators that take most of a LeNet update in MindSpore, and their lower bounds.

    python benchmarks/operators_mindspore.py [--quick]    prints rows as JSON

Measured by MindSpore's own profiler for a batch of 64 with SGD, as a trial trains it. The lower
bound of an operator that multiplies matrices is the time of the same products in NumPy; of any
other, a memory copy of the bytes that it must read and write.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from ourparallel import lenet
from ratio_rows import RatioRow

from dualml.backend import backends
from dualml.common.machine import default_threads
from dualml.interface.bench.timing import Ratio

SECTION, BATCH, TOP = "operators of an update of LeNet, mindspore", 64, 5
#: Numbers in the feature maps of a batch after each convolution, which are then pooled.
MAPS = BATCH * (6 * 28 * 28 + 16 * 10 * 10)
#: (rows, inner length, columns) of the matrix product that each convolution is.
CONVOLUTIONS = ((BATCH * 784, 25, 6), (BATCH * 100, 150, 16))
DENSE = ((BATCH, 400, 120), (BATCH, 120, 10))
PRODUCTS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "Conv2D": CONVOLUTIONS,
    "Conv2DBackpropFilter": tuple((k, n, m) for n, k, m in CONVOLUTIONS),
    "Conv2DBackpropInput": ((BATCH * 100, 16, 150),),  # nobody wants that of the images
    "MatMul": DENSE * 3,
}


def operators(call: Callable[[], Any], calls: int = 20) -> dict[str, tuple[int, float]]:
    """Return operator type → its calls per update, and the milliseconds they take together."""
    import logging

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            profiler = ms.profiler.Profiler(output_path=folder)
            for _ in range(calls):
                call()
            profiler.analyse()
        logging.disable(logging.NOTSET)
        (path,) = Path(folder).rglob("cpu_op_type_info_*.csv")
        rows = list(csv.DictReader(path.open()))
    return {
        r["op_type"]: (
            int(r["type_occurrences"]) // calls,
            float(r["total_compute_time"]) / calls,
        )
        for r in rows
    }


def median_ms(call: Callable[[], object], repeats: int = 30) -> float:
    """Return the median milliseconds of a call that runs alone."""
    spent = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        spent.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(spent)


def products(shapes: tuple[tuple[int, int, int], ...]) -> float:
    """Return the milliseconds of float32 products (m, k) by (k, n) in NumPy."""
    draw, total = np.random.default_rng(0), 0.0
    for m, k, n in shapes:
        a, b = (draw.normal(size=size).astype(np.float32) for size in ((m, k), (k, n)))
        out = np.empty((m, n), np.float32)
        total += median_ms(lambda a=a, b=b, out=out: np.matmul(a, b, out=out))
    return total


def copied(numbers: int) -> float:
    """Return the milliseconds to copy as many float32 numbers in memory."""
    x = np.ones(numbers, np.float32)
    out = np.empty_like(x)
    return median_ms(lambda: np.copyto(out, x))


def rows(repeats: int) -> list[RatioRow]:
    backend = backends()["mindspore"].create("cpu", default_threads())
    draw = np.random.default_rng(0)
    x = draw.normal(size=(4 * BATCH, 1, 28, 28)).astype(np.float32)
    recipe = lenet(x, draw.integers(0, 10, len(x)))
    training, batch = backend.training(recipe), np.arange(BATCH)
    training.load(recipe.weights, recipe.initial_state(), 0)
    for _ in range(5):
        training.step(batch, 1)
    runs = [operators(lambda: training.step(batch, 1)) for _ in range(repeats)]
    spent = {name: statistics.median(run[name][1] for run in runs) for name in runs[0]}
    whole = sum(spent.values())
    longest = []
    for name in sorted(spent, key=lambda name: -spent[name])[:TOP]:
        shapes = PRODUCTS.get(name)
        floor = products(shapes) if shapes else copied(MAPS)
        share = spent[name] / floor
        longest.append(
            RatioRow(
                section=SECTION,
                what=f"{name}, {runs[0][name][0]} of them",
                against="its products in NumPy" if shapes else "a copy of the feature maps",
                ours=spent[name],
                other=floor,
                unit="ms",
                ratio=Ratio(share, share, share),
                note=f"{100 * spent[name] / whole:.0f} % of all operators",
            )
        )
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    print(json.dumps([r.describe() for r in rows(repeats=1 if asked.quick else 5)]))


if __name__ == "__main__":
    main()
