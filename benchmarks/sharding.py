"""Sharded training against engines, on two and four ranks: time and memory of an update.

    python benchmarks/sharding.py [--quick] [--ranks 2]     prints rows as JSON

A language model, Adam, four samples of 64 tokens per update and rank. ZeRO 1 is compared with
`ZeroRedundancyOptimizer` after `DistributedDataParallel`, ZeRO 2 and 3 with `fully_shard` without
and with ``reshard_after_forward``, and all three with DeepSpeed if it is installed. The baseline is
the fastest of its variants: fused and foreach Adam, and DeepSpeed with and without overlapped
communication. All take turns in the same processes, but DeepSpeed's are separate from PyTorch's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from ranks import on_ranks, slowest
from ratio_rows import RatioRow, fastest_variant, make_row

from dualml.interface.bench.timing import Ratio

SECTION = "sharding, torch"
SIZES = (2, 4)
#: Our variant in `sharding_torch` → the variants it is compared with, and their name.
PAIRS = {
    "zero1 one unit": ("redundancy", "", "DDP and ZeroRedundancyOptimizer"),
    "zero2 one unit": ("fsdp2", "whole", "fully_shard, one unit, not resharded"),
    "zero2 units": ("fsdp2", "blocks", "fully_shard, block by block, not resharded"),
    "zero3 one unit": ("fsdp3", "whole", "fully_shard, one unit"),
    "zero3 units": ("fsdp3", "blocks", "fully_shard, block by block"),
}
NAMES = {
    "one unit": "one unit",
    "units": "units of an eighth",
    "units, overlap": "units of an eighth, overlap = true",
}


def title(ours: str, n: int) -> str:
    """Return the title of a variant: ``ZeRO 2, units of an eighth, 4 ranks``."""
    stage, _, units = ours.partition(" ")
    what = "" if stage == "zero1" else f", {NAMES[units]}"
    return f"ZeRO {stage[-1]}{what}, {n} ranks"


def rows(n: int, rounds: int) -> list[RatioRow]:
    """Return the rows of n ranks."""
    argument = {"rounds": rounds, "engines": ["ours", "torch"]}
    times = slowest(on_ranks("torch", n, "sharding_torch:train", argument))
    made = []
    for ours, (kind, units, against) in PAIRS.items():
        best = fastest_variant(times, variants_of(times, kind, units))
        named = f"{against}, {best.split()[1]} Adam"
        mine = [ours, *(name for name in times if name == f"{ours}, overlap")]
        made += [make_row(SECTION, title(o, n), named, times, o, best, target=1.0) for o in mine]
    if find_spec("deepspeed"):
        argument["engines"] = ["ours", "deepspeed"]
        times = slowest(on_ranks("torch", n, "sharding_torch:train", argument))
        for stage in (1, 2, 3):
            ours, best = (
                f"zero{stage} one unit",
                fastest_variant(times, variants_of(times, f"deepspeed{stage}")),
            )
            named = f"DeepSpeed {stage}" + ", overlap_comm" * best.endswith("overlap")
            made.append(make_row(SECTION, title(ours, n), named, times, ours, best, target=0.9))
    return made


def variants_of(times: Any, kind: str, units: str = "") -> list[str]:
    """Return the variants of an engine, or of one of its unit sizes."""
    return [name for name in times if name.split()[0] == kind and name.endswith(units)]


def memory(n: int) -> list[RatioRow]:
    """Return the memory on n ranks: our largest rank against the smallest result of the others."""
    argument = {"engines": ["ours", "torch"]}
    ranks = on_ranks("torch", n, "sharding_torch:measure_memory", argument)
    made = []
    for ours, (kind, units, against) in PAIRS.items():
        theirs = min(rank[name][1] for rank in ranks for name in variants_of(rank, kind, units))
        for o in [ours, *(name for name in ranks[0] if name == f"{ours}, overlap")]:
            most = max(rank[o][1] for rank in ranks)
            share = Ratio(*[most / theirs] * 3)
            made.append(
                RatioRow(
                    section=SECTION,
                    what=f"most memory, {title(o, n)}",
                    against=against,
                    ours=most / 1e6,
                    other=theirs / 1e6,
                    unit="MB",
                    ratio=share,
                    target=1.0,
                )
            )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--ranks", type=int, action="append", help="repeatable; default 2 and 4")
    asked = parser.parse_args()
    sizes: Sequence[int] = asked.ranks or SIZES
    made = [r for n in sizes for r in (*rows(n, rounds=7 if asked.quick else 21), *memory(n))]
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
