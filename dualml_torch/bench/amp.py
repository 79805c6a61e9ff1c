"""Automatic mixed precision: time saved per update, and the effect on the loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from dualml.interface.bench.section import AddRow, BenchJob
from dualml.interface.bench.work import error_reason
from dualml_torch.bench.plain_loop import MODELS, PlainLoop, make_work
from dualml_torch.bench.race import MakeVariant, race

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with a row for each model (in a quick job for the last of `MODELS` alone) and
    precision: time per update, mean loss of the last round of a training run, and, for low
    precision, relative gaps to float32's losses."""
    torch.set_num_threads(job.threads)
    for model in MODELS[-1:] if job.quick else MODELS:
        own = make_work(job, model)
        variants: dict[str, MakeVariant] = {
            name: partial(PlainLoop, own, "fused", kind) for name, kind in PRECISIONS.items()
        }
        timed: list[dict[str, Any]] = []
        race(variants, 2 if job.quick else 25, "float32", lambda t=timed, **row: t.append(row))
        exact: list[float] = []
        for row in timed:
            name = row.pop("variant")
            try:
                losses = run_losses(
                    PlainLoop(own, "fused", PRECISIONS[name]), 2 if job.quick else 8
                )
            except Exception as error:
                add(model=model, precision=name, **{"reason": error_reason(error), **row})
                continue
            row["loss"] = mean(losses[-own.steps :])
            if name == "float32":
                exact = losses
            elif exact:
                row["first_gap"] = losses[0] / exact[0] - 1
                row["last_gap"] = row["loss"] / mean(exact[-own.steps :]) - 1
            add(model=model, precision=name, **row)


def run_losses(loop: PlainLoop, rounds: int) -> list[float]:
    """Run some rounds of a loop and return the losses of all updates that it has made so far."""
    for _ in range(rounds):
        loop.run_round()
    return loop.losses


def mean(values: list[float]) -> float:
    """Return the arithmetic mean of a non-empty list."""
    return sum(values) / len(values)
