"""Helpers of benchmarks with several ranks: a common start, and the slowest rank's time counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratio_rows import RatioRow

from dualml.interface.bench.timing import Times

FOLDER = Path(__file__).resolve().parent
LIMIT_S = 900.0  # of one group of ranks; the longest takes some minutes


def on_ranks(
    backend: str, size: int, target: str, argument: Mapping[str, Any], threads: int = 1
) -> Any:
    """Run ``module:function`` of this folder on each of ``size`` ranks and return the results.

    Args:
        argument: second argument of the function, after the communicator.
        threads: threads of each rank.
    """
    from dualml.launch.ranks import run_ranks

    paths = [str(FOLDER), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    return run_ranks(backend, size, target, dict(argument), threads=threads, limit=LIMIT_S)


def slowest(ranks: Sequence[Times]) -> Times:
    """Return the times of the group: in each round those of the slowest rank.

    Raises:
        ValueError: the ranks did not run the same rounds of the same variants.
    """
    rounds = {name: len(spent) for name, spent in ranks[0].items()}
    if any({name: len(spent) for name, spent in rank.items()} != rounds for rank in ranks):
        raise ValueError("the ranks did not run the same rounds of the same variants")
    return {n: [max(e) for e in zip(*(r[n] for r in ranks), strict=True)] for n in rounds}


def tie(made: RatioRow, why: str) -> RatioRow:
    """Return the row with ``why`` as the reason of a missed target, if at least a quarter of its
    rounds meet it; otherwise it is no tie."""
    tied = made.meets_target is False and made.ratio is not None and made.ratio.low < 1
    return replace(made, note=why) if tied else made


def paced(comm: Any, call: Callable[[], object], repeats: int = 1) -> Callable[[], float]:
    """Return a round of ``call`` on all ranks: the milliseconds of one call, from a common
    start.

    Args:
        repeats: calls per round; each later call starts when this rank has finished the one before.
    """

    def run_once() -> float:
        comm.barrier()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - begin) * 1e3 / repeats

    return run_once
