"""An update of data-parallel training on two ranks against loops written by hand.

    python benchmarks/parallel.py --backend torch|mindspore [--quick]     prints rows as JSON

LeNet, SGD, 64 samples an update shared by two ranks of one thread each. All loops take turns in the
same two ranks; a round's time is that of the slowest rank. The target is against the best loop of
the framework by itself.
"""

from __future__ import annotations

import argparse
import json

from ranks import on_ranks, slowest
from ratio_rows import RatioRow, fastest_variant, make_row

SIZE, TARGET = 2, 1.0
SECTIONS = {
    "torch": "data-parallel training on two ranks, torch",
    "mindspore": "data-parallel training on two ranks, mindspore",
}
WHAT = {"ours": "LeNet, sgd, all_reduce", "overlap": "LeNet, sgd, all_reduce, overlap = true"}
OURS = {"torch": ["ours", "overlap"], "mindspore": ["ours"]}
BY_HAND = {
    "torch": {
        "fused": "DistributedDataParallel, fused SGD",
        "foreach": "DistributedDataParallel, foreach SGD",
        "turns": "the same with gloo's threads as dualml leaves them",
    },
    "mindspore": {
        "each": "one compiled cell, ops.AllReduce per parameter",
        "flat": "one compiled cell, ops.AllReduce, flat",
        "native": "MindSpore's DATA_PARALLEL mode, one compiled cell",
    },
}


def rows(backend: str, rounds: int) -> list[RatioRow]:
    times = slowest(on_ranks(backend, SIZE, f"parallel_{backend}:train", {"rounds": rounds}))
    by_hand = BY_HAND[backend]
    alone = [name for name in by_hand if name != "turns"]
    best = fastest_variant(times, alone)
    return [
        make_row(
            SECTIONS[backend],
            WHAT[ours],
            by_hand[name],
            times,
            ours,
            name,
            target=TARGET if (ours, name) == ("ours", best) else None,
        )
        for ours in OURS[backend]
        for name in sorted(by_hand, key=lambda name: (name == "turns", name != best))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    made = rows(asked.backend, rounds=15 if asked.quick else 61)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
