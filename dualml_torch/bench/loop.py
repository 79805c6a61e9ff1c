"""The training loop of a trial compared with loops written by hand."""

from __future__ import annotations

from functools import partial

import torch

from dualml.bench.section import Add, Job
from dualml_torch.bench.by_hand import HOW, MODELS, ByHand, Ours, work
from dualml_torch.bench.race import Make, race


def section(job: Job, add: Add) -> None:
    """Add a row for each model and variant of the training loop."""
    torch.set_num_threads(job.threads)
    for model in MODELS[-1:] if job.quick else MODELS:
        own = work(job, model)
        variants: dict[str, Make] = {"ours": partial(Ours, own)}
        variants |= {how: partial(ByHand, own, how) for how in HOW}
        race(variants, 2 if job.quick else 25, "ours", add, model=model)
