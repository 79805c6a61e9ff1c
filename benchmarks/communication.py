"""Collectives of dualml's communicators and strategies against the framework's own, called by hand.

    python benchmarks/communication.py --backend torch|mindspore [--quick]    prints rows as JSON

All variants take turns in the same ranks; a round begins with a barrier and its time is that of the
slowest rank.
"""

from __future__ import annotations

import argparse
import json

from ranks import on_ranks, slowest
from timing import Row, fastest, row

MB = 2**20
#: Bytes and how often in one round: a short one is repeated until a round takes some milliseconds.
SIZES = ((MB, 10), (4 * MB, 3), (16 * MB, 1), (64 * MB, 1))
RING = 16 * MB
SECTIONS = {"torch": "collectives, torch", "mindspore": "collectives, mindspore"}
MODELS = {"lenet": "LeNet, 52 thousand", "mlp": "MLP, 235 thousand", "many": "100 tensors, 4 MB"}


def torch_rows(rounds: int) -> list[Row]:
    section = SECTIONS["torch"]
    every = {"sizes": SIZES, "names": ["ours", "native", "ring", "copy"], "rounds": rounds}
    told = on_ranks("torch", 2, "collectives_torch:sizes", every)
    found = []
    for nbytes, _ in SIZES:
        times = slowest([rank[str(nbytes)] for rank in told])
        what = f"all_reduce, 2 ranks, {nbytes // MB} MB"
        found.append(row(section, what, "dist.all_reduce", times, "ours", "native", target=1.05))
    copied = slowest([rank[str(SIZES[-1][0])] for rank in told])
    what = f"all_reduce, 2 ranks, {SIZES[-1][0] // MB} MB"
    found.append(row(section, what, "copy in memory", copied, "ours", "copy"))
    two = slowest([rank[str(RING)] for rank in told])
    four = {"sizes": [(RING, 1)], "names": ["native", "ring"], "rounds": rounds}
    told = on_ranks("torch", 4, "collectives_torch:sizes", four)
    for n, times in ((2, two), (4, slowest([rank[str(RING)] for rank in told]))):
        what = f"ring, {n} ranks, {RING // MB} MB"
        found.append(row(section, what, "dist.all_reduce", times, "ring", "native", target=1.5))
    told = on_ranks("torch", 2, "collectives_torch:buckets", {"rounds": rounds, "repeats": 5})
    for name in told[0]:
        times = slowest([rank[name] for rank in told])
        what = f"one bucket, 2 ranks, {MODELS[name]}"
        found.append(row(section, what, "tensor by tensor", times, "bucket", "each"))
    return found


def mindspore_rows(rounds: int) -> list[Row]:
    section, found = SECTIONS["mindspore"], []
    told = on_ranks(
        "mindspore", 2, "collectives_mindspore:models", {"rounds": rounds, "repeats": 5}
    )
    for name in told[0]:
        times = slowest([rank[name] for rank in told])
        what = f"all_reduce, 2 ranks, {MODELS[name]}"
        native = {"each": "ops.AllReduce per parameter", "once": "ops.AllReduce, flat"}
        found += [
            row(section, what, native["each"], times, "ours", "each", target=0.7),
            row(section, what, native["once"], times, "ours", "once"),
            row(section, what, "copy in memory", times, "ours", "copy"),
        ]
        best, what = fastest(times, list(native)), f"ring, 2 ranks, {MODELS[name]}"
        found.append(row(section, what, native[best], times, "ring", best))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    rounds = 9 if asked.quick else 31
    made = torch_rows(rounds) if asked.backend == "torch" else mindspore_rows(rounds)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
