"""Training methods against the same loops by hand, and our ZeRO against engines on two ranks.

    python benchmarks/methods.py [--quick]     prints rows as JSON

The text classifier, Adam, 64 sentences per update. Engines that are not installed are left out. On
two ranks all take turns in the same two processes; the time of a round is that of the slower rank.

A tiny BERT with AdamW, 32 sentences per update on two threads, is compared with transformers' own.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from statistics import median

import bert_torch
import methods_torch
from methods_task import TIE
from ranks import on_ranks, slowest, tie
from ratio_rows import RatioRow, make_row

from dualml.experiment.methods import METHODS
from dualml.interface.bench.timing import Times

SECTION = "training methods, torch"
UNCOMPILED = (
    "not compiled: Adam's update is six passes over the parameters, the fused kernel's is one"
)
TARGETS = {"accelerate": 0.95, "deepspeed_zero1": 0.95, "deepspeed_zero2": 0.95}


def rows(rounds: int) -> list[RatioRow]:
    times = methods_torch.time_single_process(rounds)
    made = by_hand("text_classifier", times)
    made.append(
        make_row(SECTION, "text_classifier, amp_bf16", "float32", times, "amp_bf16", "single")
    )
    made += [
        make_row(
            SECTION, f'text_classifier, precision = "{name}"', "float32", times, name, "float32"
        )
        for name in ("bf16", "fp16")
    ]
    hands, ranks = (
        slowest(on_ranks("torch", 2, "methods_torch:train", {"rounds": rounds, "by_hand": apart}))
        for apart in (True, False)
    )
    made += by_hand("text_classifier, 2 ranks", hands)
    ours = min(("ours", "overlap"), key=lambda name: median(ranks[name]))
    what = "text_classifier, 2 ranks, all_reduce" + (ours == "overlap") * ", overlap = true"
    return made + [
        make_row(
            SECTION, what, METHODS["torch"][name].title, ranks, ours, name, target=TARGETS.get(name)
        )
        for name in ("ddp", *TARGETS)
        if name in ranks
    ]


def by_hand(what: str, times: Times) -> list[RatioRow]:
    """Return the rows of every method that ran, against its loop in a script."""
    return [
        tie(
            make_row(
                SECTION,
                f"{what}, {name}",
                "the same loop by hand",
                times,
                name,
                f"{name} by hand",
                target=1.02,
            ),
            TIE,
        )
        for name in times
        if f"{name} by hand" in times
    ]


def bert_rows(rounds: int) -> list[RatioRow]:
    """Return the rows of a tiny BERT; none if transformers is not installed."""
    if find_spec("transformers") is None:
        return []
    return [
        make_row(
            SECTION,
            f"BERT-tiny, {name}, {length} trial",
            "transformers, its Trainer's AdamW",
            times,
            length,
            "theirs",
            target=1.02,
        ).with_reason(UNCOMPILED)
        for name, dropout in bert_torch.DROPOUTS.items()
        for times in [bert_torch.updates(dropout, rounds)]
        for length in bert_torch.TRIALS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    rounds = 9 if asked.quick else 31
    print(json.dumps([r.describe() for r in rows(rounds) + bert_rows(rounds)]))


if __name__ == "__main__":
    main()
