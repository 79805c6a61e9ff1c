"""The training loop of a trial compared with loops written by hand."""

from __future__ import annotations

from functools import partial

import torch

from dualml.interface.bench.section import AddRow, BenchJob
from dualml_torch.bench.plain_loop import MODELS, OPTIMIZER_OPTIONS, PlainLoop, TrialLoop, make_work
from dualml_torch.bench.race import MakeVariant, race


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with a row of times for each model (in a quick job for the last of `MODELS`
    alone) and variant of the training loop: the trial's own and each of `OPTIMIZER_OPTIONS`."""
    torch.set_num_threads(job.threads)
    for model in MODELS[-1:] if job.quick else MODELS:
        own = make_work(job, model)
        variants: dict[str, MakeVariant] = {"ours": partial(TrialLoop, own)}
        variants |= {how: partial(PlainLoop, own, how) for how in OPTIMIZER_OPTIONS}
        race(variants, 2 if job.quick else 25, "ours", add, model=model)
