"""Collectives of dualml's communicators and strategies against the framework's own, called
directly.

    python benchmarks/communication.py --backend torch|mindspore [--quick]    prints rows as JSON

All variants take turns in the same ranks. A round begins with a barrier, and its time is that of
the slowest rank.
"""

from __future__ import annotations

import argparse
import json

from ranks import on_ranks, slowest, tie
from ratio_rows import RatioRow, fastest_variant, make_row

KB, MB = 2**10, 2**20
#: Bytes, calls per round, and what else is timed; short calls are repeated until they take 30 ms.
SIZES = ((MB, 30, []), (4 * MB, 10, []), (16 * MB, 3, ["ring"]), (64 * MB, 1, ["copy"]))
TIE = "a tie: the communicator adds 6 µs to a call, rounds differ by a fifth and more"
RING = 16 * MB
SMALL = 256 * KB
SECTIONS = {"torch": "collectives, torch", "mindspore": "collectives, mindspore"}
MODELS = {"lenet": "LeNet, 52 thousand", "mlp": "MLP, 235 thousand", "many": "100 tensors, 4 MB"}


def torch_rows(rounds: int) -> list[RatioRow]:
    section = SECTIONS["torch"]
    every = [(nbytes, calls, ["ours", "native", *more]) for nbytes, calls, more in SIZES]
    told = on_ranks("torch", 2, "collectives_torch:sizes", {"sizes": every, "rounds": rounds})
    found = []
    for nbytes, *_ in SIZES:
        times = slowest([rank[str(nbytes)] for rank in told])
        what = f"all_reduce, 2 ranks, {nbytes // MB} MB"
        made = make_row(section, what, "dist.all_reduce", times, "ours", "native", target=1.05)
        found.append(tie(made, TIE))
    for n in (2, 4):
        small = {"sizes": [(SMALL, 20, ["ours", "pushy"])], "rounds": rounds}
        times = slowest(
            [r[str(SMALL)] for r in on_ranks("torch", n, "collectives_torch:sizes", small)]
        )
        what = f"all_reduce, {n} ranks, {SMALL // KB} KB"
        found.append(
            make_row(section, what, "gloo's receiving thread as it is", times, "ours", "pushy")
        )
    copied = slowest([rank[str(SIZES[-1][0])] for rank in told])
    what = f"all_reduce, 2 ranks, {SIZES[-1][0] // MB} MB"
    found.append(make_row(section, what, "copy in memory", copied, "ours", "copy"))
    two = slowest([rank[str(RING)] for rank in told])
    four = {"sizes": [(RING, 1, ["native", "ring"])], "rounds": rounds}
    told = on_ranks("torch", 4, "collectives_torch:sizes", four)
    for n, times in ((2, two), (4, slowest([rank[str(RING)] for rank in told]))):
        what = f"ring, {n} ranks, {RING // MB} MB"
        found.append(
            make_row(section, what, "dist.all_reduce", times, "ring", "native", target=1.5)
        )
    few = {"rounds": rounds // 3, "repeats": 3}  # a gain of many times needs no more
    told = on_ranks("torch", 2, "collectives_torch:buckets", few)
    for name in told[0]:
        times = slowest([rank[name] for rank in told])
        what = f"one bucket, 2 ranks, {MODELS[name]}"
        found.append(make_row(section, what, "tensor by tensor", times, "bucket", "each"))
    return found


def mindspore_rows(rounds: int) -> list[RatioRow]:
    section, found = SECTIONS["mindspore"], []
    told = on_ranks(
        "mindspore", 2, "collectives_mindspore:models", {"rounds": rounds, "repeats": 5}
    )
    for name in told[0]:
        times = slowest([rank[name] for rank in told])
        what = f"all_reduce, 2 ranks, {MODELS[name]}"
        native = {"each": "ops.AllReduce per parameter", "once": "ops.AllReduce, flat"}
        found += [
            make_row(section, what, native["each"], times, "ours", "each", target=0.7),
            make_row(section, what, native["once"], times, "ours", "once"),
            make_row(section, what, "copy in memory", times, "ours", "copy"),
        ]
        best, what = fastest_variant(times, list(native)), f"ring, 2 ranks, {MODELS[name]}"
        found.append(make_row(section, what, native[best], times, "ring", best))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=SECTIONS, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    # A collective wakes threads of other processes: single rounds differ by a fifth and more.
    rounds = 31 if asked.quick else 121
    made = torch_rows(rounds) if asked.backend == "torch" else mindspore_rows(rounds)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
