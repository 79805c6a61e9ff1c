"""Ring attention against attention on gathered keys and values, on two ranks.

    python benchmarks/attention.py --backend torch|mindspore [--quick]     prints rows as JSON

Forward and backward pass of one attention layer whose sequence positions are sharded over two
ranks, each with one core and one thread. The baseline is what a script does without a ring:
all-gather keys and values, compute masked attention of the rank's two chunks to everything up to
their ends, and in the backward pass reduce-scatter the gradients of keys and values. A second
baseline is attention on a rank that has all positions of half of the samples. All variants take
turns in the same two ranks; the time of a round is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import json

from ranks import on_ranks, slowest
from ratio_rows import RatioRow, make_row

from dualml.interface.bench.timing import Times

SIZE, WITHIN = 2, 1.1
#: Samples, positions, heads, groups of heads that share keys and values, and head width.
SHAPES = {
    "4 × 512 positions, 8 heads of 32": (4, 512, 8, 8, 32),
    "1 × 2,048 positions, 8 heads of 32": (1, 2048, 8, 8, 32),
    "1 × 2,048 positions, keys and values of 2 groups": (1, 2048, 8, 2, 32),
}
SECTIONS = {"torch": "ring attention, torch", "mindspore": "ring attention, mindspore"}


def rows(backend: str, rounds: int) -> list[RatioRow]:
    argument = {"rounds": rounds, "shapes": SHAPES}
    ranks = on_ranks(backend, SIZE, f"attention_{backend}:attend", argument)
    made = []
    for what in SHAPES:
        times: Times = slowest([rank[what] for rank in ranks])
        for against, other, target in (
            ("keys and values collected, then attention", "collected", WITHIN),
            ("attention alone, half of the samples each", "alone", None),
        ):
            if other in times:
                given = (SECTIONS[backend], what, against, times, "ring", other)
                made.append(make_row(*given, target=target))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    made = rows(asked.backend, rounds=9 if asked.quick else 31)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
