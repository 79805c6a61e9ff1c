"""Trials of several models, batches and numbers of threads against the best loop written by hand.

python benchmarks/models_torch.py [--quick] [--gpt]        prints rows as JSON

With --gpt the language model `gpt`, which has a table of its own, in place of the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from handwritten_torch import HandWritten, lenet
from nets_torch import GPT, LanguageModel, Transformer, mlp
from ratio_rows import RatioRow, fastest_variant, make_row
from torch import nn
from workload import OurLoop, dataset

from dualml.backend import backends
from dualml.experiment.data import load as load_data
from dualml.interface.bench.timing import time_interleaved

SECTION, OF_GPT = "training loops of other sizes, torch", "training loops of gpt, torch"
#: Name → the model in the zoo, and a function that makes the hand-written one for so many words.
MODELS: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "LeNet": ("lenet", lambda words: lenet()),
    "MLP": ("mlp", lambda words: mlp()),
    "transformer": ("vit", lambda words: Transformer()),
    "LSTM": ("rnn_lm", LanguageModel),
}
#: Models with their default sizes.
DECODERS = {"gpt": ("gpt", lambda words: GPT(words, 32, 64, 2, 4, tied=True))}
TEXTS = ("LSTM", "gpt")
BATCHES, THREADS = (1, 64, 256), (1, 2)
ROUND_MS = 60.0
#: Epochs of the trials: enough for compilation to pay off if it is faster at all.
EPOCHS = 100
WHY = {
    "as recorded": "not compiled: Adam's update is six passes over the parameters, the fused "
    "kernel's is one",
    "compiled": "a tie: the same kernels take nearly all of the time",
}


def variants(images: bool, batch: int, threads: int) -> Iterator[tuple[str, str, str]]:
    """Return optimizer, memory format and `torch.compile` mode of the hand-written loops. Compiled
    ones use the fused optimizer; ``max-autotune``, which takes a minute each, is tried for one
    batch only."""
    formats = ("contiguous_format", "channels_last")[: 1 + images]
    for memory in formats:
        yield from (("fused", memory, ""), ("foreach", memory, ""), ("fused", memory, "default"))
    if batch == 64 and threads == 1:
        yield "fused", formats[-1], "max-autotune"


def rows(quick: bool, gpt: bool) -> list[RatioRow]:
    models = DECODERS if gpt else MODELS
    images, text = dataset(), load_data("emotion", explicit=False, words=2000, length=32)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    measured = []
    for threads, batch, name in itertools.product(THREADS, BATCHES, models):
        if threads > max(1, len(cores)) or (quick and threads > 1):
            continue
        if cores:
            os.sched_setaffinity(0, cores[-threads:])
        torch._dynamo.reset()
        torch._inductor.config.cpp.threads = threads
        backend = backends()["torch"].create("cpu", threads)
        zoo, net = models[name]
        lab, arm, data = ("rnn_ps", "whole", text) if name in TEXTS else ("lab1", "adam", images)
        overrides = [
            f'model="{zoo}"',
            f"arms.{arm}.batch_size={batch}",
            f"arms.{arm}.updates={EPOCHS * len(data.train_y) // batch}",
        ]
        with tempfile.TemporaryDirectory() as folder:
            ours = OurLoop(backend, data, arm, Path(folder), 2, lab, overrides)
            given = torch.from_numpy(ours.x), torch.from_numpy(ours.y), "adam", ours.rule.lr, 2
            by_hand = {
                ", ".join(filter(None, how)): HandWritten(
                    *given, *how, net=net(len(data.classes)), batch=batch
                )
                for how in variants(name == "LeNet", batch, threads)
                if not (quick and "max-autotune" in how)
            }
            check_same_size(ours.trial.training.parameters.values(), by_hand)
            for loop in by_hand.values():
                loop()  # compiles
            ours()
            steps = max(2, round(ROUND_MS / ours()))
            for loop in (ours, *by_hand.values()):
                loop.steps = steps
            times = time_interleaved({"ours": ours, **by_hand}, 3 if quick else 9)
        best = fastest_variant(times, list(by_hand))
        what = f"{name}, batch {batch}, {threads} thread{'s'[: threads > 1]}"
        choice = ours.trial.training.choice
        kernels = "compiled" if choice.compiled else "as recorded"
        measured.append(
            make_row(
                OF_GPT if gpt else SECTION,
                f"{what}, {kernels}",
                f"hand-written, {best}",
                times,
                "ours",
                best,
                target=1.02,
            ).with_reason(WHY[kernels])
        )
    return measured


def check_same_size(ours: Iterable[torch.Tensor], by_hand: Mapping[str, HandWritten]) -> None:
    """Raise AssertionError unless the compared models have the same size, which requires the
    vocabulary of the same text."""
    size = sum(p.numel() for p in ours)
    for how, loop in by_hand.items():
        other = sum(p.numel() for p in loop.net.parameters())
        assert other == size, f"{how}: {other} parameters by hand, {size} in the trial"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, one thread, no max-autotune"
    )
    parser.add_argument("--gpt", action="store_true", help="of gpt alone")
    asked = parser.parse_args()
    measured = rows(asked.quick, asked.gpt)
    print(json.dumps([r.describe() for r in measured]))


if __name__ == "__main__":
    main()
