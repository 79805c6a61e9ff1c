"""Partitioning samples over ranks, and reading the partitioned samples.

    python benchmarks/partition.py [--quick]                             prints rows as JSON
    python benchmarks/partition.py --backend torch|mindspore [--quick]

Without a backend: the seconds in which every rule partitions a million labelled samples over 100
ranks and its guarantees are verified. With one: a rank's batches, taken by index from arrays in
memory as a trial takes them, against the framework's loader over the same arrays in the same order.
The loader's work before its first batch (mostly starting workers) is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ratio_rows import RatioRow, make_row
from workload import dataset

from dualml.experiment.data import normalised
from dualml.interface.bench.timing import time_interleaved
from dualml.parallel.partition import (
    PARTITIONS,
    DirichletLabels,
    Partition,
    partition_from,
    verify_partition,
)
from dualml.parallel.partition.from_file import save_partition

DEALS = "partitions of a million labelled samples to 100 ranks"
SECTIONS = {"torch": "reading batches, torch", "mindspore": "reading batches, mindspore"}
SAMPLES, RANKS, LIMIT_S = 10**6, 100, 2.0
#: Settings of rules that need some.
SETTINGS: dict[str, dict[str, Any]] = {
    "fractions": {"fractions": (1 / RANKS,) * RANKS},
    "dirichlet_labels": {"alpha": 0.5},
    "dirichlet_sizes": {"alpha": 0.5},
}
READERS, SIZES = 4, (64, 256)  # ranks that share the training set, samples of a batch


def deal_rows(rounds: int, folder: Path) -> list[RatioRow]:
    labels = np.random.default_rng(0).integers(0, 10, SAMPLES)
    path = folder / "deal.npz"
    save_partition(
        path,
        DirichletLabels(alpha=0.5).partition(labels, RANKS),
        labels,
        "some",
        DirichletLabels(alpha=0.5),
    )
    settings = {**SETTINGS, "file": {"path": str(path)}}
    dealing: dict[str, list[float]] = {name: [] for name in PARTITIONS}

    def timed(rule: Partition) -> Callable[[], float]:
        def run_once() -> float:
            begin = time.perf_counter()
            parts = rule.partition(labels, RANKS)
            dealing[rule.name].append(time.perf_counter() - begin)
            verify_partition(rule, parts, labels)
            return time.perf_counter() - begin

        return run_once

    rules = {name: partition_from({"name": name, **settings.get(name, {})}) for name in PARTITIONS}
    times = time_interleaved({name: timed(rule) for name, rule in rules.items()}, rounds, warm_up=1)
    return [
        RatioRow(
            section=DEALS,
            what=name,
            against="",
            ours=statistics.median(spent),
            other=None,
            unit="s",
            ratio=None,
            target=LIMIT_S,
            note=f"partitioning {statistics.median(dealing[name][1:]):.2f} s, "
            "the rest is verification",
        )
        for name, spent in times.items()
    ]


def paced(batches: Callable[[], Iterable[Any]]) -> Callable[[], float]:
    """Return a round: the milliseconds per batch, from the first batch to the last."""

    def run_once() -> float:
        found = iter(batches())
        next(found)
        begin, count = time.perf_counter(), 0
        for _ in found:
            count += 1
        return (time.perf_counter() - begin) * 1e3 / count

    return run_once


def torch_readers(
    x: np.ndarray, y: np.ndarray, rule: Partition, size: int
) -> dict[str, Callable[[], Iterable[Any]]]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from dualml_torch.parallel.partition import PartitionSampler

    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    sampler = PartitionSampler(rule, y, READERS, 0)
    order = sampler.order()

    def by_index() -> Iterator[Any]:
        for start in range(0, len(order), size):
            index = torch.from_numpy(order[start : start + size])
            yield images.index_select(0, index), labels.index_select(0, index)

    def loader(workers: int) -> Any:
        return DataLoader(
            TensorDataset(images, labels),
            batch_size=size,
            sampler=sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    kept = {f"DataLoader, {workers} workers": loader(workers) for workers in (0, 2)}
    return {"ours": by_index, **{name: one.__iter__ for name, one in kept.items()}}


class Source:
    """Arrays as a random-access source."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int32]:
        return self.x[index], self.y[index]

    def __len__(self) -> int:
        return len(self.y)


def mindspore_readers(
    x: np.ndarray, y: np.ndarray, rule: Partition, size: int
) -> dict[str, Callable[[], Iterable[Any]]]:
    import mindspore as ms
    import mindspore.dataset as ds

    from dualml_ms.parallel.partition import PartitionSampler

    y = y.astype(np.int32)
    sampler = PartitionSampler(rule, y, READERS, 0)
    order = sampler.order()

    def by_index() -> Iterator[Any]:
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            yield ms.Tensor.from_numpy(x[batch]), ms.Tensor.from_numpy(y[batch])

    def pipeline(workers: int) -> Callable[[], Iterable[Any]]:
        data = ds.GeneratorDataset(
            Source(x, y), ["x", "y"], sampler=sampler, num_parallel_workers=workers
        ).batch(size)
        return lambda: data.create_tuple_iterator(num_epochs=1)

    return {
        "ours": by_index,
        "GeneratorDataset, 1 worker": pipeline(1),
        "GeneratorDataset, 2 workers": pipeline(2),
    }


def read_rows(backend: str, rounds: int) -> list[RatioRow]:
    data, found = dataset(), []
    x, rule = normalised(data.train_x, data.mean, data.std), DirichletLabels(alpha=0.5)
    for size in SIZES:
        make = {"torch": torch_readers, "mindspore": mindspore_readers}[backend]
        readers = make(x, data.train_y, rule, size)
        times = time_interleaved(
            {name: paced(batches) for name, batches in readers.items()}, rounds
        )
        what = f"batches of {size} by index"
        found += [
            make_row(SECTIONS[backend], what, name, times, "ours", name)
            for name in times
            if name != "ours"
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    if asked.backend:
        made = read_rows(asked.backend, rounds=3 if asked.quick else 15)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = deal_rows(3 if asked.quick else 7, Path(folder))
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
