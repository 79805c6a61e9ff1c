"""Automatic mixed precision: time saved per update, and the effect on the loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from dualml.bench.section import Add, Job
from dualml.bench.work import reason
from dualml_torch.bench.by_hand import MODELS, ByHand, work
from dualml_torch.bench.race import Make, race

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def section(job: Job, add: Add) -> None:
    """Add a row for each model and precision: time per update, and losses of a training run."""
    torch.set_num_threads(job.threads)
    for model in MODELS[-1:] if job.quick else MODELS:
        own = work(job, model)
        variants: dict[str, Make] = {
            name: partial(ByHand, own, "fused", kind) for name, kind in PRECISIONS.items()
        }
        timed: list[dict[str, Any]] = []
        race(variants, 2 if job.quick else 25, "float32", lambda t=timed, **row: t.append(row))
        exact: list[float] = []
        for row in timed:
            name = row.pop("variant")
            try:
                losses = losses_of(ByHand(own, "fused", PRECISIONS[name]), 2 if job.quick else 8)
            except Exception as error:
                add(model=model, precision=name, **{"reason": reason(error), **row})
                continue
            row["loss"] = mean(losses[-own.steps :])
            if name == "float32":
                exact = losses
            elif exact:
                row["first_gap"] = losses[0] / exact[0] - 1
                row["last_gap"] = row["loss"] / mean(exact[-own.steps :]) - 1
            add(model=model, precision=name, **row)


def losses_of(loop: ByHand, rounds: int) -> list[float]:
    """Run some rounds of a loop and return the loss of every update; the mean of the last round is
    reported."""
    for _ in range(rounds):
        loop.round()
    return loop.losses


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
